"""`prentis`: a platform's API: gates by capability, a full list of errors, deployments with a standby
(P-1 to P-13). A model behaves alike whoever runs it: the same fields are read, refused and answered.
"""

from typing import Final

import msgspec

from onward.core.failure import FailureKind as Kind
from onward.dialects.fields import (
    LARGEST_IMAGE,
    MODEL,
    MOST_MESSAGES,
    MOST_TOKENS,
    SAMPLING,
    SEED,
    STREAM_OPTIONS_ALONE,
    sourced,
    stop,
    stream,
)
from onward.dialects.messages import MESSAGES
from onward.dialects.openai import OPENAI
from onward.dialects.passed import PASSED_MESSAGES
from onward.dialects.schema import (
    Action,
    Auth,
    Dialect,
    ErrorRow,
    Field,
    Header,
    HeaderValue,
    Passing,
    Reference,
    Response,
    Stream,
    Surface,
    UsageWhen,
)
from onward.dialects.values import AnyObject, Integer, ListOf, Number, Prompts, Stops, Text

_REQUEST, _SERVER, _BUSY = "invalid_request_error", "server_error", "service_unavailable"
_MODEL: Final = msgspec.structs.replace(
    MODEL,
    note="The model that answers: a slug out of `/models`, a full name, or a deployment's (see below).",
    source="P-5",
)
_LIMIT: Final = Field(
    name="max_tokens",
    value=Integer(low=1, high=MOST_TOKENS),
    note="The most tokens to generate; absent: the model's own default, or what the context has room for.",
    source="P-4",
)
_TOP_P: Final = Field(
    name="top_p",
    value=Number(low=0, high=1),
    default=1.0,
    note="Sample from the likeliest tokens whose probabilities add up to this; 0: the likeliest alone.",
    source="P-4",
)
_STOP: Final = msgspec.structs.replace(
    stop(Stops(most=4, token_ids=0, longest=65_536)),
    note="Text that ends generation; not part of the output.",
    source="P-4",
)
_USER: Final = Field(
    name="user", value=Text(), note="A label for the log line; the ledger does not keep it.", source="P-11"
)
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")
_BOUNDED: Final = (
    *sourced("P-4", *(field for field in SAMPLING if field.name == "temperature")),
    _TOP_P,
    _STOP,
    *sourced("P-4", SEED, *(field for field in SAMPLING if field.name in _PENALTIES)),
    *sourced("P-6", *stream(note="Options of a stream. Usage comes in any case.")),
    _USER,
)
"""What both surfaces read alike, and of a body that goes on to a provider too."""


def _refused(name: str, note: str) -> Field:
    return Field(name=name, action=Action.REJECT, note=note, source="P-3")


_COMPLETIONS: Final = Surface(
    name="completions",
    method="POST",
    path="/completions",
    about="Continue a prompt as it is, with a model that declares text completion.",
    fields=(
        _MODEL,
        Field(
            name="prompt",
            value=Prompts(most=1, token_ids=False, empty=False),
            target="prompts",
            required=True,
            note="The text to continue.",
            source="P-2",
        ),
        _LIMIT,
        *_BOUNDED,
        _refused("n", "One completion is returned: leave it out, or send the request again."),
        _refused("best_of", "One completion is sampled: leave it out."),
        _refused("logprobs", "Log probabilities are not given here: leave it out."),
        _refused("echo", "The prompt is not repeated: leave it out, and join prompt and text yourself."),
        _refused("suffix", "Only what follows a prompt is generated: leave it out."),
    ),
    constants={"model_max_tokens": True},
)
_OPENAI_CHAT: Final = OPENAI.surfaces["chat"]
_OWN: Final = {field.name: field for field in (_MODEL, *_BOUNDED)}
_CHAT: Final = msgspec.structs.replace(
    _OPENAI_CHAT,
    fields=tuple(_OWN.get(field.name, field) for field in _OPENAI_CHAT.fields),
    rules=tuple(rule for rule in _OPENAI_CHAT.rules if rule is not STREAM_OPTIONS_ALONE),
    constants={"model_max_tokens": True},
)
_PASSED_CHAT: Final = msgspec.structs.replace(
    _CHAT,
    about="Read of a body that goes on to a provider.",
    fields=(
        _MODEL,
        Field(
            name="messages",
            value=ListOf(item=AnyObject(), least=1, most=MOST_MESSAGES),
            required=True,
            note="The conversation so far.",
            source="P-12",
        ),
        msgspec.structs.replace(_LIMIT, name="max_completion_tokens"),
        _LIMIT,
        *_BOUNDED,
        *sourced("P-12", *(field for field in SAMPLING if field.name == "n")),
    ),
    rules=(),
)
_ERROR_KEYS: Final = ("message", "type", "code", "param")
_SURFACES: Final = (
    _COMPLETIONS,
    _CHAT,
    MESSAGES,
    *(OPENAI.surfaces[name] for name in ("models", "model")),
)

PRENTIS: Final = Dialect(
    name="prentis",
    title="Prentis",
    about="The API of a platform: models say what they can do, errors have a code each, a standby answers "
    "where the first choice cannot.",
    surfaces={surface.name: surface for surface in _SURFACES},
    errors={
        Kind.INVALID_KEY: ErrorRow(401, "authentication_error", "INVALID_API_KEY"),
        Kind.TENANT_SUSPENDED: ErrorRow(403, "permission_error", "TENANT_SUSPENDED"),
        Kind.MODEL_NOT_ALLOWED: ErrorRow(403, "permission_error", "MODEL_NOT_ALLOWED"),
        Kind.AGREEMENT_REQUIRED: ErrorRow(403, "permission_error", "AGREEMENT_REQUIRED"),
        Kind.UNKNOWN_MODEL: ErrorRow(404, "not_found_error", "MODEL_NOT_FOUND"),
        Kind.UNKNOWN_ROUTE: ErrorRow(404, _REQUEST, "INVALID_REQUEST"),
        Kind.METHOD_NOT_ALLOWED: ErrorRow(405, _REQUEST, "INVALID_REQUEST"),
        Kind.INVALID_REQUEST: ErrorRow(400, _REQUEST, "INVALID_REQUEST"),
        Kind.CONTEXT_LENGTH_EXCEEDED: ErrorRow(400, _REQUEST, "CONTEXT_LENGTH_EXCEEDED"),
        Kind.BODY_TOO_LARGE: ErrorRow(413, _REQUEST, "MEDIA_TOO_LARGE"),
        Kind.MEDIA_TOO_LARGE: ErrorRow(413, _REQUEST, "MEDIA_TOO_LARGE"),
        Kind.MEDIA_FETCH_FAILED: ErrorRow(400, _REQUEST, "MEDIA_FETCH_FAILED"),
        Kind.MEDIA_UNSUPPORTED: ErrorRow(400, _REQUEST, "MEDIA_UNSUPPORTED"),
        Kind.HEADERS_TOO_LARGE: ErrorRow(431, _REQUEST, "INVALID_REQUEST"),
        Kind.REQUEST_TIMEOUT: ErrorRow(408, _REQUEST, "INVALID_REQUEST"),
        Kind.SURFACE_UNSUPPORTED: ErrorRow(400, _REQUEST, "MODEL_CAPABILITY_UNSUPPORTED"),
        Kind.INSUFFICIENT_BALANCE: ErrorRow(402, "billing_error", "INSUFFICIENT_BALANCE"),
        Kind.PAYMENT_REQUIRED: ErrorRow(402, "billing_error", "PAYMENT_REQUIRED"),
        Kind.BUDGET_EXCEEDED: ErrorRow(429, "billing_error", "TENANT_BUDGET_EXCEEDED"),
        Kind.RATE_LIMITED: ErrorRow(429, "rate_limit_error", "TENANT_RATE_LIMITED"),
        Kind.ENGINE_FULL: ErrorRow(503, _BUSY, "UPSTREAM_UNAVAILABLE"),
        Kind.ENGINE_STARTING: ErrorRow(503, _BUSY, "DEPLOYMENT_SCALING_UP"),
        Kind.ENGINE_FAILED: ErrorRow(503, _BUSY, "UPSTREAM_UNAVAILABLE"),
        Kind.UPSTREAM_RATE_LIMITED: ErrorRow(429, "rate_limit_error", "UPSTREAM_RATE_LIMITED"),
        Kind.UPSTREAM_UNAVAILABLE: ErrorRow(503, _BUSY, "UPSTREAM_UNAVAILABLE"),
        Kind.UPSTREAM_TIMEOUT: ErrorRow(504, _SERVER, "UPSTREAM_TIMEOUT"),
        Kind.PARTIAL_RESPONSE_TIMEOUT: ErrorRow(504, _SERVER, "PARTIAL_RESPONSE_TIMEOUT"),
        Kind.UPSTREAM_CONTENT_REJECTED: ErrorRow(400, _REQUEST, "UPSTREAM_CONTENT_REJECTED"),
        Kind.UPSTREAM_CONTEXT_EXCEEDED: ErrorRow(400, _REQUEST, "CONTEXT_LENGTH_EXCEEDED"),
        Kind.DEADLINE_EXCEEDED: ErrorRow(504, _SERVER, "REQUEST_DEADLINE_EXCEEDED"),
        Kind.CANCELLED: ErrorRow(499, _REQUEST, "REQUEST_CANCELLED"),
        Kind.CONTENT_BLOCKED_INPUT: ErrorRow(400, _REQUEST, "CONTENT_BLOCKED_INPUT"),
        Kind.CONTENT_BLOCKED_OUTPUT: ErrorRow(400, _REQUEST, "CONTENT_BLOCKED_OUTPUT"),
        Kind.IDEMPOTENCY_CONFLICT: ErrorRow(409, _REQUEST, "IDEMPOTENCY_CONFLICT"),
        Kind.TOOL_CHOICE_BROKEN: ErrorRow(422, _REQUEST, "INVALID_REQUEST"),
        Kind.STORE_DOWN: ErrorRow(503, _BUSY, "STORAGE_UNAVAILABLE"),
        Kind.INTERNAL: ErrorRow(500, _SERVER, "INTERNAL"),
    },
    response=Response(media_usage=True, error_keys=_ERROR_KEYS),
    stream=Stream(usage=UsageWhen.ALWAYS, null_usage=False, error_keys=_ERROR_KEYS),
    passed={
        "completions": msgspec.structs.replace(
            _COMPLETIONS, about="Read of a body that goes on to a provider."
        ),
        "chat": _PASSED_CHAT,
        "messages": PASSED_MESSAGES,
    },
    passing=Passing(
        final=frozenset({Kind.INVALID_REQUEST}),
        translates=True,
        choices_alone=True,
        largest_image=LARGEST_IMAGE,
    ),
    headers=(
        Header(name="x-request-id", value=HeaderValue.REQUEST_ID),
        Header(name="x-provider-class", value=HeaderValue.PROVIDER_CLASS, on_failures=False),
        Header(name="x-config-version", value=HeaderValue.CONFIG_VERSION, on_failures=False),
        Header(name="Idempotency-Key", value=HeaderValue.IDEMPOTENCY_KEY),
    ),
    auth=(Auth.BEARER, Auth.X_API_KEY),
    references=(
        Reference(
            pattern=r"accounts/(?P<account>[^/]+)/models/(?P<base>.+)",
            example="accounts/ACCOUNT/models/MODEL",
            note="A model, of the account that the key belongs to.",
        ),
        Reference(
            pattern=r"accounts/(?P<account>[^/]+)/deployments/(?P<deployment>.+)",
            example="accounts/ACCOUNT/deployments/DEPLOYMENT",
            note="A deployment by its name in the config: it alone runs the request.",
        ),
        Reference(
            pattern=r"(?P<base>(?P<deployment>.+))",
            example="NAME",
            note="A model; where there is none of that name, a deployment.",
        ),
    ),
    notes=(
        "An account is the tenant of the key. Another account's models are as unknown as those of nobody.",
        "`usage` is told as we count it, whoever runs the model; with images it has `media.input_images`.",
        (
            "Of a provider's answer only `id`, `object`, `created`, `model` and `choices` pass on. Of a chat "
            "that goes on to a provider, messages and tools are the provider's to check."
        ),
        "A chat is `openai`'s, with the bounds of completions; options of a stream need no `stream`.",
        "`x-provider-class` is `fallback` where another deployment than the first answered.",
        "A `seed` has 64 bits; `max_tokens` beyond the context is refused as in `openai`.",
        "An engine that is full, or fails, is an upstream that is not available.",
        "Statuses that the API's page does not list (405, 408, 409, 422, 431, 499) have one of its codes.",
    ),
)
