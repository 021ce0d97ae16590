"""What callers are told of a provider that does not do its part.

No name, address, key or word of the provider's: those are for the operator's log alone.
"""

from onward.core.failure import Failure, FailureKind


def unreachable() -> Failure:
    """No connection."""
    message = "The provider of this model cannot be reached. Try again later."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message)


def overloaded() -> Failure:
    """As many requests as may wait for a connection do."""
    message = "Too many requests wait for the provider of this model. Try again soon."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message, retry_after=1)


def broken() -> Failure:
    """An answer that is none, or that ended before its end."""
    message = "The provider of this model gave a broken answer. Try again."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message)


def too_long() -> Failure:
    """An answer beyond the bound of whoever reads it."""
    message = "The provider of this model gave an answer that is too long. Ask for fewer tokens."
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message)


def too_slow() -> Failure:
    """A bound on time has passed."""
    message = "The provider of this model took too long to answer. Try again later."
    return Failure(FailureKind.UPSTREAM_TIMEOUT, message)
