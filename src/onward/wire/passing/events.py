"""One event of a provider's stream, or its whole answer, as far as a gateway looks into it."""

import json
import re
from typing import Any, Final, NamedTuple, cast

import msgspec

from onward.wire.passing.members import members, spliced

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BLANK_LINES: Final = b"\r\n"
_MARK: Final = b"\xef\xbb\xbf"
_FIELDS: Final = frozenset({b"event", b"id", b"retry"})
_TEXT: Final = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|arguments)"\s*:\s*"((?:[^"\\]++|\\.)*+)"', re.DOTALL
)
_DELTA_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_HEAD: Final = frozenset({"id", "object", "created"})


class Choice(msgspec.Struct, gc=False):
    """A choice, or a piece of one, in either shape: of completions or of chat."""

    index: Any = 0
    text: Any = None
    delta: Any = None
    message: Any = None
    finish_reason: Any = None


class Payload(msgspec.Struct, gc=False):
    """The fields that are read. Providers are many: no type is relied on."""

    model: Any = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    message: Any = None


class Lines(NamedTuple):
    """An event by its lines."""

    data: bytes | None
    """The data lines, joined; None: there is none."""
    name: bytes
    """What ``event:`` says."""
    others: list[bytes]
    """Lines that are no data, as they came."""


class NoEvent(Exception):  # noqa: N818 - a finding, which the reader of the stream turns into a failure
    """Bytes that no OpenAI-shaped API sends."""


_decode: Final = msgspec.json.Decoder(Payload).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


def read_lines(event: bytes) -> Lines:
    """Take an event apart. Raises `NoEvent` at a line that no stream of events has."""
    data: list[bytes] = []
    others: list[bytes] = []
    name = b""
    for line in _LINE_END.split(event.removeprefix(_MARK)):
        if not line:
            continue
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
            continue
        if field not in _FIELDS and not line.startswith(b":"):
            raise NoEvent
        if field == b"event":
            name = value.strip()
        others.append(line)
    return Lines(b"\n".join(data) if data else None, name, others)


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data. Its blank lines stay; several data lines become one."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.count(b"\n") == 2:
        return b"data: %b\n\n" % data
    line_end = b"\r\n" if b"\r\n" in event else b"\n" if b"\n" in event else b"\r"
    end = event[len(event.rstrip(_BLANK_LINES)) :]
    lines = [*read_lines(event).others, b"data: " + data.replace(b"\n", b" ")]
    return line_end.join(lines) + end


def read_payload(data: bytes) -> Payload:
    """The JSON object of an event or an answer. Raises `NoEvent` where there is none."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return _read_loosely(data)


def _read_loosely(data: bytes) -> Payload:
    """What is not quite JSON (half of a surrogate pair, NaN), or has fields of strange types."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise NoEvent from None
    if type(value) is not dict:
        raise NoEvent
    fields = cast("dict[str, Any]", value)
    listed = fields.get("choices")
    choices: list[Choice] = []
    if type(listed) is list:
        for item in cast("list[Any]", listed):
            known = cast("dict[str, Any]", item) if type(item) is dict else {}
            choices.append(
                Choice(**{name: known[name] for name in Choice.__struct_fields__ if name in known})
            )
    return Payload(
        fields.get("model"),
        choices,
        fields.get("usage"),
        fields.get("error"),
        fields.get("object"),
        fields.get("message"),
    )


def is_error(payload: Payload, name: bytes = b"") -> bool:
    """Whether an event, by its JSON and its name, tells of an error: in any of the usual ways."""
    if payload.error or name == b"error":
        return True
    return not payload.choices and (payload.object == "error" or type(payload.message) is str)


def new_text(choice: Choice) -> str:
    """All that a piece adds to its choice: text, reasoning, the names and arguments of calls."""
    said = choice.delta if choice.message is None else choice.message
    if type(said) is not dict:
        return choice.text if type(choice.text) is str else ""
    fields = cast("dict[str, Any]", said)
    get = fields.get
    text = get("content")
    if len(fields) == 1 and type(text) is str:
        return text
    new = "".join([piece for name in _DELTA_TEXTS if type(piece := get(name)) is str])
    if type(text) is list:
        new += "".join(content_of(text))
    calls = get("tool_calls")
    listed = [*(cast("list[Any]", calls) if type(calls) is list else ()), {"function": get("function_call")}]
    for call in listed:
        function = cast("dict[str, Any]", call).get("function") if type(call) is dict else None
        if type(function) is dict:
            pieces = cast("dict[str, Any]", function)
            new += "".join([piece for piece in pieces.values() if type(piece) is str])
            new += arguments_of(pieces) if type(pieces.get("arguments")) is dict else ""
    return new


class Content(NamedTuple):
    """What `content` says."""

    text: str
    reasoning: str


def content_of(content: Any) -> Content:
    """The text and the reasoning of `content`: a string, or the parts that some providers write."""
    if type(content) is str:
        return Content(content, "")
    text, reasoning = "", ""
    for part in cast("list[Any]", content) if type(content) is list else ():
        fields = cast("dict[str, Any]", part) if type(part) is dict else {}
        said = fields.get("text")
        text += said if type(said) is str else ""
        reasoning += content_of(fields.get("thinking")).text
    return Content(text, reasoning)


def arguments_of(function: dict[str, Any]) -> str:
    """The arguments of a call, or a piece of them: a string, or the object that some providers write."""
    given = function.get("arguments")
    if type(given) is dict:
        return json.dumps(given, ensure_ascii=False)
    return given if type(given) is str else ""


class Changed(NamedTuple):
    """JSON with another `model`."""

    data: bytes
    field: bytes
    """The name and value of `model` as the provider spells them; b"": there is none."""


def changed(data: bytes, model: bytes | None, *, null_usage: bool) -> Changed:
    """The JSON of an event with `model` as given (encoded; None: as it is), and without its usage."""
    edits: list[tuple[int, int, bytes]] = []
    field = b""
    for member in members(data):
        if member.name == "model" and model is not None:
            edits.append((member.value, member.end, model))
            field = b'"model"' + data[member.after_key : member.end]
        elif member.name == "usage" and null_usage:
            edits.append((member.value, member.end, b"null"))
    return Changed(spliced(data, edits) if edits else data, field)


def usage_json(data: bytes) -> bytes:
    """The `usage` of an event, as the provider spells it."""
    return [data[member.value : member.end] for member in members(data) if member.name == "usage"][-1]


def head_of(data: bytes, model: bytes) -> bytes:
    """What an event has before its choices, with this model (encoded), as members without their braces."""
    found = members(data)
    kept = [b'"%b":%b' % (one.name.encode(), data[one.value : one.end]) for one in found if one.name in _HEAD]
    return b",".join([*kept, b'"model":' + model])


def usage_event(head: bytes, usage: bytes) -> bytes:
    """An event of a usage (encoded), like the others of its stream."""
    return b'data: {%b,"choices":[],"usage":%b}\n\n' % (head, usage.replace(b"\n", b" "))


def text_place(event: bytes, text: str) -> tuple[int, int] | None:
    """Where the only text of an event stands between its quotes; None where it is not in one piece."""
    found = [match for match in _TEXT.finditer(event) if match[1]]
    if len(found) != 1:
        return None
    try:
        if _decode_text(b'"%b"' % found[0][1]) != text:
            return None
    except msgspec.MsgspecError:
        return None
    return found[0].span(1)
