"""Which failures of a deployment may move a request on to the next one, and what they become. Pure policy."""

from collections.abc import Collection
from typing import Final

from onward.core.failure import Failure, FailureKind

_MOVABLE: Final = frozenset(
    {
        FailureKind.ENGINE_FULL,
        FailureKind.ENGINE_STARTING,
        FailureKind.ENGINE_FAILED,
        FailureKind.UPSTREAM_RATE_LIMITED,
        FailureKind.UPSTREAM_UNAVAILABLE,
        FailureKind.UPSTREAM_TIMEOUT,
        FailureKind.UPSTREAM_CONTENT_REJECTED,
        FailureKind.UPSTREAM_CONTEXT_EXCEEDED,
        FailureKind.INVALID_REQUEST,
        FailureKind.BODY_TOO_LARGE,
        FailureKind.CONTEXT_LENGTH_EXCEEDED,
        FailureKind.UNKNOWN_MODEL,
        FailureKind.SURFACE_UNSUPPORTED,
    }
)
_UNBILLED: Final = frozenset(
    {
        FailureKind.ENGINE_FULL,
        FailureKind.ENGINE_STARTING,
        FailureKind.ENGINE_FAILED,
        FailureKind.STORE_DOWN,
        FailureKind.INTERNAL,
    }
)


def moves_on(failure: Failure, final: Collection[FailureKind]) -> bool:
    """Whether the next deployment is tried after a failure before any output.

    `final`: failures after which an API tries no other one. What a deployment holds against the
    request moves on as well where it is not among them (K-7).
    """
    return failure.kind not in final and failure.kind in _MOVABLE


def after_output(failure: Failure) -> Failure:
    """What a failure is once the caller has a piece of the answer: silence has a name of its own then."""
    if failure.kind is not FailureKind.UPSTREAM_TIMEOUT:
        return failure
    return Failure(
        FailureKind.PARTIAL_RESPONSE_TIMEOUT,
        "The model's provider fell silent in the middle of its answer. Send the request again.",
    )


def billed(kind: FailureKind) -> bool:
    """Whether what was made before this failure is charged. Failures of ours are not."""
    return kind not in _UNBILLED
