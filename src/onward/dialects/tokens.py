"""`tokens`: a billing gateway, whose calls go to the model's provider as they are (K-1 to K-12).

A served model answers behind it as behind `openai`, as if it were its own provider.
"""

from typing import Final

import msgspec

from onward.core.failure import FailureKind as Kind
from onward.dialects.fields import STREAM, STREAM_OPTIONS_ALONE
from onward.dialects.openai import OPENAI
from onward.dialects.passed import passed_surfaces
from onward.dialects.schema import (
    Auth,
    Dialect,
    ErrorRow,
    Field,
    Header,
    HeaderValue,
    Passing,
    Stream,
    Surface,
    UsageWhen,
)
from onward.dialects.shared import FAILURES, NAME
from onward.dialects.values import INT32_HIGH, Integer

_MOST_CHOICES: Final = 4
_BOUNDED: Final = {
    "n": Field(
        name="n",
        value=Integer(low=1, high=_MOST_CHOICES),
        default=1,
        note="Choices for each prompt.",
        source="K-4",
    ),
    "stream_options": msgspec.structs.replace(
        next(field for field in STREAM if field.name == "stream_options"),
        note="Options of a stream; ignored without `stream`. Usage comes in any case.",
        source="K-8",
    ),
}


def _served(name: str) -> Surface:
    """A surface of `openai` with the bounds of this API."""
    surface = OPENAI.surfaces[name]
    return msgspec.structs.replace(
        surface,
        fields=tuple(_BOUNDED.get(field.name, field) for field in surface.fields),
        rules=tuple(rule for rule in surface.rules if rule is not STREAM_OPTIONS_ALONE),
    )


_REQUEST, _SERVER = "invalid_request_error", "server_error"
_UNREACHABLE: Final = ErrorRow(502, _SERVER, "upstream_unreachable", passes_status=True)

TOKENS: Final = Dialect(
    name="tokens",
    title="Tokens",
    about="The API of a billing gateway: a body goes to the model's provider byte for byte, its answer comes "
    "back as it is, and what it used is charged.",
    surfaces={
        **{name: _served(name) for name in ("completions", "chat")},
        **{name: OPENAI.surfaces[name] for name in ("models", "model")},
    },
    errors={
        **FAILURES,
        Kind.INVALID_REQUEST: ErrorRow(400, _REQUEST, "invalid_request", passes_status=True),
        Kind.UNKNOWN_MODEL: ErrorRow(404, _REQUEST, "model_not_found", passes_status=True),
        Kind.UNKNOWN_ROUTE: ErrorRow(404, _REQUEST, "invalid_request"),
        Kind.METHOD_NOT_ALLOWED: ErrorRow(405, _REQUEST, "invalid_request"),
        Kind.BUDGET_EXCEEDED: ErrorRow(402, "billing_error", "spend_cap_reached"),
        Kind.UPSTREAM_RATE_LIMITED: ErrorRow(
            429, "rate_limit_error", "rate_limit_exceeded", passes_status=True
        ),
        Kind.UPSTREAM_CONTENT_REJECTED: ErrorRow(400, _REQUEST, "invalid_request", passes_status=True),
        Kind.UPSTREAM_CONTEXT_EXCEEDED: ErrorRow(400, _REQUEST, "invalid_request", passes_status=True),
        Kind.UPSTREAM_UNAVAILABLE: _UNREACHABLE,
        Kind.PARTIAL_RESPONSE_TIMEOUT: _UNREACHABLE,
        Kind.UPSTREAM_TIMEOUT: _UNREACHABLE,
    },
    stream=Stream(usage=UsageWhen.ALWAYS),
    passed=passed_surfaces(most_choices=_MOST_CHOICES, best_of=Integer(low=1, high=INT32_HIGH), lenient=True),
    passing=Passing(
        cap_unset=False,
        lowers_limit=True,
        no_route=Kind.UNKNOWN_MODEL,
        joint_failure=Kind.UPSTREAM_UNAVAILABLE,
    ),
    headers=(Header(name="x-tokens-request-id", value=HeaderValue.REQUEST_ID), NAME),
    auth=(Auth.BEARER,),
    untyped_body_lacks="model",
    notes=(
        "A served model answers as in `openai`, with this API's `n`, failures and headers.",
        (
            "A body that names `model`, `n` or another field that the price depends on twice, or in capital "
            "letters, is refused: a provider might read another value than the one that is charged for."
        ),
        "`best_of` counts in the price held, whatever it is; no limit is ever added to a request.",
        "Of `max_tokens` and `max_completion_tokens` the higher one is held; both are lowered if need be.",
        "A provider's 401, 402, 403 and 407 are our fault: 502. Any other status from 400 up is passed on.",
        "A failure that ends a stream after its first piece is an event with the same code.",
    ),
)
