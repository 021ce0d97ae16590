"""A provider's whole message on its way to the caller: read for usage, its model renamed."""

from typing import Final

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent
from onward.wire.passing.members import members, only, spliced, with_model
from onward.wire.passing.message_events import (
    MessageEvent,
    MessageUsage,
    block_text,
    items_of,
    message_error,
    read_message_event,
)
from onward.wire.passing.usage import likely_tokens, outside_ascii
from onward.wire.passing.whole import WholeAnswer

_KNOWN: Final = frozenset(
    {
        "id",
        "type",
        "role",
        "model",
        "content",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "container",
        "usage",
    }
)
_KNOWN_OF_EVENTS: Final = frozenset({"type", "index", "message", "content_block", "delta", "usage"})
_encode: Final = msgspec.json.Encoder().encode


def read_whole_message(body: bytes, model: str, *, only_known: bool = False) -> WholeAnswer:
    """The message in the bytes of a body. As `read_whole`: all stays but the value of `model`, and it
    raises `Failure` for what is no message. `only_known`: as of `renamed`.
    """
    message = whole_message(body)
    text = "".join([block_text(block) for block in items_of(message.content)]).encode("utf-8", "replace")
    reported = MessageUsage()
    reported.hear(message.usage, final=True)
    usage = reported.usage(some=bool(text))
    likely = likely_tokens(len(text), outside_ascii(text))
    reason = message.stop_reason
    return WholeAnswer(
        renamed(body, model, only_known=only_known) if only_known or message.model != model else body,
        usage,
        likely if usage is None else usage.completion_tokens,
        [reason] if type(reason) is str else [],
    )


def whole_message(body: bytes) -> MessageEvent:
    """The message that a body is. Raises `Failure` for an error in it, and for anything else."""
    try:
        message = read_message_event(body)
    except NoEvent:
        raise _no_answer() from None
    if message.type == "error":
        raise message_error(message.error)
    if message.type != "message" or type(message.content) is not list:
        raise _no_answer()
    return message


def renamed(message: bytes, model: str, *, only_known: bool) -> bytes:
    """A message under the caller's name for the model. `only_known`: without what Anthropic's API does not
    have, so that nothing in it names the provider (P-5).
    """
    new = _encode(model)
    if only_known:
        return only(message, _KNOWN, new)
    return with_model(message, new)


def plain_event(data: bytes, name: str, model: str) -> bytes:
    """An event of what Anthropic's API has alone, its message under the caller's name for the model."""
    kept: dict[str, bytes] = {}
    for member in members(data):
        if member.name in _KNOWN_OF_EVENTS:
            value = data[member.value : member.end]
            known = member.name == "message" and value.startswith(b"{")
            kept[member.name] = renamed(value, model, only_known=True) if known else value
    made = b",".join([b'"%b":%b' % (known.encode(), value) for known, value in kept.items()])
    return b"event: %b\ndata: {%b}\n\n" % (name.encode(), made.replace(b"\n", b" "))


def completed(raw: bytes, usage: bytes) -> bytes:
    """An object with this usage, which clients of this API rely on."""
    found = members(raw)
    edits = [(one.value, one.end, usage) for one in found if one.name == "usage"]
    if edits:
        return spliced(raw, edits)
    end = raw.rindex(b"}")
    return b'%b%b"usage":%b%b' % (raw[:end].rstrip(), b"," if found else b"", usage, raw[end:])


def with_message_usage(body: bytes, usage: Usage) -> bytes:
    """A message that has no usage, with what it is charged for; of any other all stays."""
    if any(one.name == "usage" and body[one.value : one.value + 1] == b"{" for one in members(body)):
        return body
    counts = (usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens)
    return completed(body, b'{"input_tokens":%d,"output_tokens":%d}' % counts)


def _no_answer() -> Failure:
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider answered with something that is no answer. Send the request again.",
    )
