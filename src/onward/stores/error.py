"""Why a store cannot be opened."""


class StoreError(Exception):
    """A store cannot be used. The message is a sentence for its operator, without passwords."""
