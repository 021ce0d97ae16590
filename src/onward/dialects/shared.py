"""What dialects have in common besides fields: failures in OpenAI's words, forms of model references."""

from typing import Final

from onward.core.failure import FailureKind as Kind
from onward.dialects.schema import ErrorRow, Header, HeaderValue, Reference

_REQUEST, _SERVER, _BUSY = "invalid_request_error", "server_error", "service_unavailable"
FAILURES: Final[dict[Kind, ErrorRow]] = {
    Kind.INVALID_KEY: ErrorRow(401, "authentication_error", "invalid_api_key"),
    Kind.TENANT_SUSPENDED: ErrorRow(403, "permission_error", "tenant_suspended"),
    Kind.MODEL_NOT_ALLOWED: ErrorRow(404, _REQUEST, "model_not_found"),
    Kind.AGREEMENT_REQUIRED: ErrorRow(403, "permission_error", "agreement_required"),
    Kind.UNKNOWN_MODEL: ErrorRow(404, _REQUEST, "model_not_found"),
    Kind.UNKNOWN_ROUTE: ErrorRow(404, _REQUEST, "unknown_url"),
    Kind.METHOD_NOT_ALLOWED: ErrorRow(405, _REQUEST, "method_not_allowed"),
    Kind.INVALID_REQUEST: ErrorRow(400, _REQUEST, "invalid_request"),
    Kind.CONTEXT_LENGTH_EXCEEDED: ErrorRow(400, _REQUEST, "context_length_exceeded"),
    Kind.BODY_TOO_LARGE: ErrorRow(413, _REQUEST, "request_entity_too_large"),
    Kind.MEDIA_TOO_LARGE: ErrorRow(400, _REQUEST, "invalid_request"),
    Kind.MEDIA_FETCH_FAILED: ErrorRow(400, _REQUEST, "invalid_request"),
    Kind.MEDIA_UNSUPPORTED: ErrorRow(400, _REQUEST, "invalid_request"),
    Kind.HEADERS_TOO_LARGE: ErrorRow(431, _REQUEST, "request_header_fields_too_large"),
    Kind.REQUEST_TIMEOUT: ErrorRow(408, _REQUEST, "request_timeout"),
    Kind.SURFACE_UNSUPPORTED: ErrorRow(400, _REQUEST, "endpoint_not_supported_for_model"),
    Kind.INSUFFICIENT_BALANCE: ErrorRow(402, "billing_error", "insufficient_balance"),
    Kind.PAYMENT_REQUIRED: ErrorRow(402, "billing_error", "payment_required"),
    Kind.BUDGET_EXCEEDED: ErrorRow(429, "billing_error", "budget_exceeded"),
    Kind.RATE_LIMITED: ErrorRow(429, "rate_limit_error", "rate_limit_exceeded"),
    Kind.ENGINE_FULL: ErrorRow(503, _BUSY, "engine_full"),
    Kind.ENGINE_STARTING: ErrorRow(503, _BUSY, "engine_starting"),
    Kind.ENGINE_FAILED: ErrorRow(503, _BUSY, "engine_failed"),
    Kind.UPSTREAM_RATE_LIMITED: ErrorRow(429, "rate_limit_error", "upstream_rate_limited"),
    Kind.UPSTREAM_UNAVAILABLE: ErrorRow(503, _BUSY, "upstream_unavailable"),
    Kind.UPSTREAM_TIMEOUT: ErrorRow(504, _SERVER, "upstream_timeout"),
    Kind.PARTIAL_RESPONSE_TIMEOUT: ErrorRow(504, _SERVER, "upstream_timeout"),
    Kind.UPSTREAM_CONTENT_REJECTED: ErrorRow(400, _REQUEST, "content_rejected"),
    Kind.UPSTREAM_CONTEXT_EXCEEDED: ErrorRow(400, _REQUEST, "context_length_exceeded"),
    Kind.DEADLINE_EXCEEDED: ErrorRow(504, _SERVER, "deadline_exceeded"),
    Kind.CANCELLED: ErrorRow(499, _REQUEST, "request_cancelled"),
    Kind.CONTENT_BLOCKED_INPUT: ErrorRow(400, _REQUEST, "content_blocked"),
    Kind.CONTENT_BLOCKED_OUTPUT: ErrorRow(400, _REQUEST, "content_blocked"),
    Kind.IDEMPOTENCY_CONFLICT: ErrorRow(409, _REQUEST, "idempotency_conflict"),
    Kind.TOOL_CHOICE_BROKEN: ErrorRow(422, _REQUEST, "tool_choice_broken"),
    Kind.STORE_DOWN: ErrorRow(503, _BUSY, "store_down"),
    Kind.INTERNAL: ErrorRow(500, _SERVER, "internal_error"),
}
"""Every kind of failure as OpenAI's API names it, and the APIs modelled on it."""

NAME: Final = Header(name="Idempotency-Key", value=HeaderValue.IDEMPOTENCY_KEY)
"""Every dialect tells a caller how it named its request (O-6)."""

REFERENCES: Final = (
    Reference(
        pattern=r"(?P<checkpoint>tinker://.+)",
        example="tinker://RUN/sampler_weights/NAME",
        note="A checkpoint, which knows its base model.",
    ),
    Reference(
        pattern=r"(?P<base>[^;]+?)(:peft:\d{1,9})?;(?P<checkpoint>.+)",
        example="BASE;tinker://RUN/sampler_weights/NAME",
        note="A checkpoint of a base model.",
    ),
    Reference(
        pattern=r"(?P<base>[^;]+):peft:\d{1,9}",
        example="org/Name:peft:8192",
        note="The base model; the length is not needed here.",
    ),
)
"""Base models and checkpoints (TC-1)."""
