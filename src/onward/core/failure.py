"""What can go wrong, as a closed list of kinds.

Code below `wire` raises `Failure` with a kind; which status, type and code a caller sees is a
row in the dialect's table (`dialects/`). A kind that a dialect does not list is a fault of that
table and is caught by a test.
"""

from enum import StrEnum


class FailureKind(StrEnum):
    """Every way in which a request can fail. Total over all dialects."""

    INVALID_KEY = "invalid_key"
    TENANT_SUSPENDED = "tenant_suspended"
    MODEL_NOT_ALLOWED = "model_not_allowed"
    AGREEMENT_REQUIRED = "agreement_required"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_ROUTE = "unknown_route"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INVALID_REQUEST = "invalid_request"
    """A field (or the whole body) is wrong: `param` names it."""
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    BODY_TOO_LARGE = "body_too_large"
    MEDIA_TOO_LARGE = "media_too_large"
    """An image has more bytes or pixels than are taken."""
    MEDIA_FETCH_FAILED = "media_fetch_failed"
    """What an image's address leads to could not be had, or may not be asked for."""
    MEDIA_UNSUPPORTED = "media_unsupported"
    """The model takes no such media, or it is none that can be read."""
    HEADERS_TOO_LARGE = "headers_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    """The caller did not finish sending the request in time."""
    SURFACE_UNSUPPORTED = "surface_unsupported"
    INSUFFICIENT_BALANCE = "insufficient_balance"
    PAYMENT_REQUIRED = "payment_required"
    BUDGET_EXCEEDED = "budget_exceeded"
    RATE_LIMITED = "rate_limited"
    ENGINE_FULL = "engine_full"
    ENGINE_STARTING = "engine_starting"
    ENGINE_FAILED = "engine_failed"
    """The engine died or misbehaved while it worked on the request."""
    UPSTREAM_RATE_LIMITED = "upstream_rate_limited"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    PARTIAL_RESPONSE_TIMEOUT = "partial_response_timeout"
    """A provider fell silent after the first piece of output."""
    UPSTREAM_CONTENT_REJECTED = "upstream_content_rejected"
    """A provider's own filter refused the prompt."""
    UPSTREAM_CONTEXT_EXCEEDED = "upstream_context_exceeded"
    """A provider refused the request as too long for the model."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    CONTENT_BLOCKED_INPUT = "content_blocked_input"
    CONTENT_BLOCKED_OUTPUT = "content_blocked_output"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    TOOL_CHOICE_BROKEN = "tool_choice_broken"
    STORE_DOWN = "store_down"
    INTERNAL = "internal"


class Failure(Exception):  # noqa: N818 - a failure is a result that a caller sees, not a bug
    """A request ends here, for a reason that its caller is told.

    `message` says what is wrong and what to change; it never holds more than a short excerpt of
    the input. `param` is the path of the offending field, such as ``messages[2].content``.
    `retry_after` is in whole seconds; 429 and 503 always carry one (a default where unset).
    `upstream_status` is what the only provider of a model answered: some APIs pass it on (K-7).
    `excused`: it says nothing of a deployment's health, though others of its kind do. `one_address`: it is
    of one of a deployment's addresses, and another one takes requests: `retry_after` is not of them all.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        upstream_status: int | None = None,
        excused: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.upstream_status = upstream_status
        self.excused = excused
        self.one_address = False


def invalid(param: str | None, message: str) -> Failure:
    """The failure of a field that the caller must change."""
    return Failure(FailureKind.INVALID_REQUEST, message, param=param)


def media_unsupported(param: str, message: str) -> Failure:
    """The failure of an image, or of what is sent as one, that the model does not take."""
    return Failure(FailureKind.MEDIA_UNSUPPORTED, message, param=param)


def media_too_large(param: str, message: str) -> Failure:
    """The failure of too large an image, or of one too many."""
    return Failure(FailureKind.MEDIA_TOO_LARGE, message, param=param)


def excerpt(value: object, limit: int = 100) -> str:
    """`value` as it may stand in a message: at most `limit` characters of it."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
