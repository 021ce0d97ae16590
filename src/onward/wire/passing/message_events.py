"""One event of Anthropic's Messages, or a whole message, as far as a gateway looks into it."""

import json
from typing import Any, Final, cast

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent
from onward.wire.passing.reader import StreamReader
from onward.wire.passing.refusal import refusal
from onward.wire.passing.rejection import content_rejected, rejects
from onward.wire.passing.said import said_by
from onward.wire.passing.too_long import context_exceeded, says_too_long
from onward.wire.passing.usage import is_count

_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
}
"""The status that goes with a type of error. Of any other, such as ``overloaded_error``, another
deployment may do better."""
_INPUT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TEXTS: Final = ("text", "thinking", "partial_json", "data", "name")


class MessageEvent(msgspec.Struct, gc=False):
    """The fields that are read: of an event, or (with the `type` ``message``) of a whole answer."""

    type: Any = None
    index: Any = 0
    message: Any = None
    content_block: Any = None
    delta: Any = None
    usage: Any = None
    error: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None


_decode: Final = msgspec.json.Decoder(MessageEvent).decode


def read_message_event(data: bytes) -> MessageEvent:
    """The JSON object of an event or of an answer. Raises `NoEvent` where there is none with a `type`."""
    try:
        event = _decode(data)
    except msgspec.MsgspecError:
        event = _read_loosely(data)
    if type(event.type) is not str:
        raise NoEvent
    return event


def _read_loosely(data: bytes) -> MessageEvent:
    """What is not quite JSON: half of a surrogate pair, NaN."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise NoEvent from None
    fields = fields_of(value)
    return MessageEvent(**{name: fields[name] for name in MessageEvent.__struct_fields__ if name in fields})


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an object; of anything else none."""
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def items_of(value: Any) -> list[Any]:
    """The items of an array; of anything else none."""
    return cast("list[Any]", value) if type(value) is list else []


def text_at(fields: dict[str, Any], name: str) -> str:
    """The string of a field; "" where there is none."""
    value = fields.get(name)
    return value if type(value) is str else ""


def new_message_text(event: MessageEvent) -> str:
    """All that an event adds to the answer: text, thinking, names and arguments of calls."""
    part = fields_of(event.delta if event.content_block is None else event.content_block)
    return "".join([text_at(part, name) for name in _TEXTS])


def block_text(block: Any) -> str:
    """The same of a block of a whole answer."""
    part = fields_of(block)
    given = part.get("input")
    said = "".join([text_at(part, name) for name in _TEXTS])
    return said if given is None else said + json.dumps(given)


def message_error(error: Any) -> Failure:
    """The failure that an error in a stream is, or in an answer that claims to be good."""
    said = said_by(error)
    if rejects(said):
        return content_rejected()
    if says_too_long(said):
        return context_exceeded()
    status = _STATUSES.get(text_at(fields_of(error), "type"))
    if status is not None:
        return refusal(status, {}, 0)
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider failed while it answered. Send the request again.",
    )


class MessageUsage:
    """What a message reports of its use, gathered from its first event and its last ones.

    A later count replaces an earlier one; what no count can be (negative, a fraction, absurdly large) is
    not heard.
    """

    __slots__ = ("_counts", "_final")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._final = False

    def hear(self, usage: Any, *, final: bool) -> None:
        """The `usage` of an event; `final`: of one that counts the output."""
        fields = fields_of(usage)
        for name in _INPUT:
            if is_count(count := fields.get(name)):
                self._counts[name] = count
        if final and is_count(count := fields.get("output_tokens")):
            self._counts["output_tokens"] = count
            self._final = True

    def outdate(self) -> None:
        """More output has come than was counted."""
        self._final = False

    @property
    def prompt(self) -> Usage | None:
        """The prompt alone; None: nothing that can be believed."""
        if "input_tokens" not in self._counts:
            return None
        new, written, cached = (self._counts.get(name, 0) for name in _INPUT)
        prompt = new + written + cached
        return Usage(prompt_tokens=prompt, cached_tokens=cached) if is_count(prompt) else None

    def usage(self, *, some: bool) -> Usage | None:
        """All of it; None: nothing that can be believed. `some`: whether there was output, of which there
        are tokens then.
        """
        usage = self.prompt
        if usage is None or not self._final or (some and not self._counts["output_tokens"]):
            return None
        usage.completion_tokens = self._counts["output_tokens"]
        return usage


class MessageReader(StreamReader):
    """A reader of Messages, whatever it makes of them, as far as it counts them."""

    __slots__ = ()
    _reported: MessageUsage

    @property
    def usage(self) -> Usage | None:
        return self._reported.usage(some=self.output_events > 0)

    @property
    def prompt_usage(self) -> Usage | None:
        """What was reported of the prompt, which providers do first; None: nothing to be believed."""
        return self._reported.prompt

    def count_output(self, event: MessageEvent) -> str:
        """Count what an event adds to the answer: its text."""
        text = new_message_text(event)
        if text:
            self.count(text)
            self._reported.outdate()
        return text
