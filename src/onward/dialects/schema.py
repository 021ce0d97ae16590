"""What a dialect is: data that the interpreter reads. No code of a dialect runs.

A dialect says how a request is read (fields, rules across fields), how a failure is shown, and
what a response looks like. Another dialect is another module of data; where the data cannot say
something, a column is added here for all of them. No code asks for a dialect's name.
"""

from enum import StrEnum
from typing import Any

import msgspec

from onward.core.failure import FailureKind
from onward.dialects.values import Value


class Action(StrEnum):
    """What happens to a field that the caller sent."""

    ACCEPT = "accept"
    IGNORE = "ignore"
    """Listed for the documentation: read by nobody, like every field that is not listed."""
    REJECT = "reject"
    """400, which says why. null is not sent."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a request body. null is absent, for every field."""

    name: str
    note: str
    """For the documentation; of a rejected field: the message, which says what to do instead."""
    value: Value | None = None
    """None only for fields that are not read."""
    action: Action = Action.ACCEPT
    target: str | None = None
    """Its name in the neutral request; None: the same."""
    aliases: tuple[str, ...] = ()
    """Other names of it, read if no name before it was sent."""
    default: Any = None
    required: bool = False
    lenient: bool = False
    """Whether a value that is not taken counts as absent (a number too high: as the highest), instead of
    being refused."""
    guessed: bool = False
    """Of a lenient whole number: whether one that is written as text, or as a fraction, counts as what
    a provider may take it for."""
    source: str = ""
    """The statement of the specification, or the server, that it comes from."""


class Is(StrEnum):
    """What a condition asks of a field's value."""

    GIVEN = "given"
    ABSENT = "absent"
    TRUE = "true"
    FALSE = "false"
    """False or absent."""
    EQUAL = "equal"
    BELOW = "below"
    ABOVE = "above"


class Condition(msgspec.Struct, frozen=True):
    """A test of one field of the neutral request, against a value or against another field."""

    field: str
    test: Is
    value: Any = None
    other: str | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A combination that is refused: all its conditions hold."""

    param: str
    refuse_if: tuple[Condition, ...]
    message: str


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on prompts times choices: the count of `items` times the largest of `times`."""

    param: str
    items: str
    times: tuple[str, ...]
    most: int


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """`choice` needs tools unless it leaves them alone, and a function it names is one of them."""

    choice: str = "tool_choice"
    tools: str = "tools"


class UsageWhen(StrEnum):
    """When a stream ends with a usage event."""

    ASKED = "asked"
    ALWAYS = "always"


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """How events are framed. Usage is an event of its own, without choices, before `done`."""

    usage: UsageWhen = UsageWhen.ASKED
    null_usage: bool = True
    """Whether other events say ``"usage": null`` where usage was asked for."""
    done: bytes = b"data: [DONE]\n\n"
    keep_alive: bytes = b": keep-alive\n\n"
    keep_alive_s: int = 15
    """Seconds of silence before `keep_alive` is sent."""
    first_content: str | None = ""
    """`content` of a chat's first delta, which holds the role."""
    delta_keys: tuple[str, ...] = ()
    """Keys that every chat delta has, null when it brings nothing new of them."""
    error_keys: tuple[str, ...] = ("message", "type", "param", "code")


class FailureShape(msgspec.Struct, frozen=True, kw_only=True):
    """Failures as Anthropic's API writes them: ``{"type": "error", "error": {"type", "message"},
    "request_id"}``, in a stream as the event ``error``. Their statuses are the dialect's.
    """

    types: dict[int, str]
    """The type of an error by its status."""
    other_4xx: str
    other_5xx: str
    header: str
    """A header of every answer that holds the request's ID, beside `x-request-id`."""

    def type_of(self, status: int) -> str:
        """The type of an error with this status."""
        return self.types.get(status) or (self.other_4xx if status < 500 else self.other_5xx)


class Surface(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A route of a dialect and what its body may hold."""

    name: str
    method: str
    path: str
    """Below the mount; ``{model}`` may hold slashes."""
    about: str
    at_root: bool = False
    """Whether it also stands at the root of the server, beside the mount."""
    fields: tuple[Field, ...] = ()
    rules: tuple[Rule | Product | NamedTool, ...] = ()
    constants: dict[str, Any] = {}
    """Values of the neutral request that no caller sets."""
    failures: FailureShape | None = None
    """How its failures are written; None: as the dialect writes them."""
    stream: Stream | None = None
    """How its events are framed; None: as the dialect frames them."""
    notes: tuple[str, ...] = ()
    """Choices worth telling the reader of ``docs/dialects.md``."""


class ErrorRow(msgspec.Struct, frozen=True):
    """What a caller sees of one kind of failure."""

    status: int
    type: str
    code: str | None
    message: str | None = None
    """Shown in place of the failure's own message, where that says too much."""
    passes_status: bool = False
    """Whether the status that a model's only provider answered is shown instead (K-7)."""

    def looks_like(self, other: "ErrorRow") -> bool:
        """Whether no caller can tell failures of both apart, as long as no provider answered."""
        return msgspec.structs.replace(other, passes_status=self.passes_status) == self


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of what is answered."""

    message_keys: tuple[str, ...] = ("role", "content", "refusal", "reasoning_content")
    """Keys that every chat message has, in this order, null when there is nothing."""
    logprobs_keys: tuple[str, ...] = ("content", "refusal")
    """Keys of a chat's `logprobs`: `content` holds the tokens, any other is null."""
    error_keys: tuple[str, ...] = ("message", "type", "param", "code")
    media_usage: bool = False
    """Whether `usage` says how many images a request had (P-10)."""
    completion_id: str = "cmpl-"
    chat_id: str = "chatcmpl-"


class Passing(msgspec.Struct, frozen=True, kw_only=True):
    """How requests go on to providers, and what their failures lead to."""

    cap_unset: bool = True
    """Whether a request that sets no limit is sent on with the one its price was held for."""
    lowers_limit: bool = False
    """Whether a limit that the balance does not carry is lowered to what it does (K-10)."""
    final: frozenset[FailureKind] = frozenset()
    """Failures after which no other deployment is tried: another one would say the same."""
    no_route: FailureKind = FailureKind.SURFACE_UNSUPPORTED
    """What is said where none of a model's providers has the route (K-3)."""
    joint_failure: FailureKind | None = None
    """What is shown when several deployments failed; None: the last one's failure."""
    translates: bool = False
    """Whether a provider that has not the route is asked in the words of one that it has: `chat` as
    `messages`, and the other way."""
    choices_alone: bool = False
    """Whether only the choices of a provider's answers and events pass, so that nothing names the provider
    (P-5) and the rest is as this API has it (P-13): our own `id`, `object`, `created` and `model`, and
    `usage` as we count it. Else all passes, as it came."""
    largest_image: int | None = None
    """Bytes of an image that goes on to a provider, of a model that declares images; None: that is for the
    provider to judge."""


class Auth(StrEnum):
    """Where a caller's key is looked for."""

    BEARER = "Authorization: Bearer"
    X_API_KEY = "x-api-key"


class HeaderValue(StrEnum):
    """What a response header of a dialect holds."""

    REQUEST_ID = "request id"
    PROVIDER_CLASS = "provider class"
    CONFIG_VERSION = "config version"
    IDEMPOTENCY_KEY = "idempotency key"

    __hash__ = str.__hash__  # of an enum it runs in Python, several times a request


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A header that responses carry."""

    name: str
    value: HeaderValue
    on_failures: bool = True


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A form of model reference: a pattern over the whole of it.

    Its named groups `base`, `checkpoint`, `account` and `deployment` are the parts that count. A form with
    both `base` and `deployment` is a model if there is one of that name, else a deployment.
    """

    pattern: str
    example: str
    note: str


class Dialect(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An API that we speak."""

    name: str
    title: str
    about: str
    surfaces: dict[str, Surface]
    errors: dict[FailureKind, ErrorRow]
    response: Response = Response()
    stream: Stream = Stream()
    passed: dict[str, Surface] = {}
    """By the name of a surface: what is read and checked of a body that goes on to a provider. All
    else of it passes untouched. A surface that is not here has served models only."""
    passing: Passing = Passing()
    headers: tuple[Header, ...] = ()
    auth: tuple[Auth, ...] = (Auth.BEARER,)
    references: tuple[Reference, ...] = ()
    """Tried in order; a reference that none matches is a plain model ID."""
    untyped_body_lacks: str | None = None
    """The field that a body without a JSON content type is said to lack, as it is not read (K-2); None:
    the missing header is named."""
    retry_after: int = 1
    """Seconds in `Retry-After` on 429 and 503 where the failure names none."""
    notes: tuple[str, ...] = ()
    """Choices worth telling the reader of ``docs/dialects.md``."""
