"""The one way in which a source fails."""


class SourceError(Exception):
    """A model cannot be had from its source. One line: why, and what to do about it."""
