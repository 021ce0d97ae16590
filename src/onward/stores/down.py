"""The failure of a store that does not answer."""

from onward.core.failure import Failure, FailureKind


def down() -> Failure:
    """STORE_DOWN as callers see it. What is wrong with the store stands in our log, not here."""
    return Failure(
        FailureKind.STORE_DOWN,
        "The server cannot reach its records at the moment. Try again in a few seconds.",
        retry_after=2,
    )
