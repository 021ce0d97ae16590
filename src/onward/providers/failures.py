"""What callers are told of a provider that does not do its part.

No name, address, key or word of the provider's: those are for the operator's log alone.
"""

from typing import Final

from onward.core.failure import Failure, FailureKind

_TOO_SLOW: Final = "The provider of this model took too long to answer. Try again later."


class Unsent(Failure):
    """Nothing of the request was written: it may be sent elsewhere."""


_SENT: Final = "the request was sent"


def mark_sent(error: BaseException) -> None:
    """Note on what cut a request short that it was written: its provider may work on it all the same."""
    error.add_note(_SENT)


def was_sent(error: BaseException) -> bool:
    """Whether a request that was cut short by this had been written."""
    return _SENT in getattr(error, "__notes__", ())


def unreachable() -> Unsent:
    """No connection."""
    message = "The provider of this model cannot be reached. Try again later."
    return Unsent(FailureKind.UPSTREAM_UNAVAILABLE, message)


def unconnected() -> Unsent:
    """No connection in time."""
    return Unsent(FailureKind.UPSTREAM_TIMEOUT, _TOO_SLOW)


def overloaded() -> Unsent:
    """As many requests as may wait for a connection do."""
    message = "Too many requests wait for the provider of this model. Try again soon."
    return Unsent(FailureKind.UPSTREAM_UNAVAILABLE, message, retry_after=1, excused=True)


def no_turn() -> Unsent:
    """All connections were busy for too long."""
    return Unsent(FailureKind.UPSTREAM_TIMEOUT, _TOO_SLOW, excused=True)


def broken() -> Failure:
    """An answer that is none, or that ended before its end."""
    message = "The provider of this model gave a broken answer. Try again."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message)


def too_long() -> Failure:
    """An answer beyond the bound of whoever reads it."""
    message = "The provider of this model gave an answer that is too long. Ask for fewer tokens."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message, excused=True)


def too_slow() -> Failure:
    """A bound on time has passed."""
    return Failure(FailureKind.UPSTREAM_TIMEOUT, _TOO_SLOW)
