"""How a command says that it failed."""


class CommandError(Exception):
    """A command was refused or failed. One line for the user: why, and what to do."""
