"""The reader of messages: histories as OpenAI documents them and as agents really send them.

Taken though no page asks for it: an assistant message without a `content` key; arguments of an
earlier call that are an object or no JSON at all; `reasoning` beside `reasoning_content`; an
`image_url` that is a bare string; the old `function` role and `function_call`.
"""

from typing import Any, cast

import msgspec

from onward.core.failure import invalid
from onward.core.request import ContentPart, Message, TextPart, Thought, ToolCall
from onward.dialects.images import read_image
from onward.dialects.tools import function_type, name_at, object_at, text_at
from onward.dialects.values import Messages, mistyped, unlisted

_MOST_CALLS = 256


def read_messages(kind: Messages, value: Any, path: str) -> list[Message]:
    """A conversation of at least one message."""
    if type(value) is not list:
        raise mistyped(path, "an array of messages", value)
    items = cast("list[Any]", value)
    if not items:
        raise invalid(path, f"'{path}' is empty: send at least one message.")
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} messages; at most {kind.most} are taken.")
    return [_message(kind, item, f"{path}[{position}]") for position, item in enumerate(items)]


def _message(kind: Messages, value: Any, path: str) -> Message:
    message = object_at(value, path)
    role = message.get("role")
    if type(role) is not str or role not in kind.roles:
        raise unlisted(f"{path}.role", f"one of {_listed(kind.roles)}", role)
    content = _content(kind, message.get("content"), f"{path}.content")
    name = message.get("name")
    if name is not None:
        text_at(name, f"{path}.name")
    if role == "assistant":
        return _assistant(kind, message, path, content, name)
    if content is None and not _may_be_null(kind, message, role):
        raise invalid(f"{path}.content", f"'{path}.content' is required on a message of role '{role}'.")
    call_id = message.get("tool_call_id")
    if call_id is not None:
        text_at(call_id, f"{path}.tool_call_id")
    if role == "function":
        if name is None:
            raise invalid(f"{path}.name", f"'{path}.name' is required on a message of role 'function'.")
        return Message(role="tool", content=content, name=name)
    if role == "tool" and call_id is None:
        raise invalid(
            f"{path}.tool_call_id",
            f"'{path}.tool_call_id' is required on a tool message: the 'id' of the call it answers.",
        )
    return Message(role=role, content=content, name=name, tool_call_id=call_id if role == "tool" else None)


def _assistant(
    kind: Messages,
    message: dict[str, Any],
    path: str,
    content: str | list[ContentPart] | None,
    name: str | None,
) -> Message:
    reasoning = message.get("reasoning_content")
    where = f"{path}.reasoning_content"
    if reasoning is None:
        reasoning, where = message.get("reasoning"), f"{path}.reasoning"
    if reasoning is not None:
        text_at(reasoning, where)
    thoughts = (
        _thoughts(message.get("thinking_blocks"), f"{path}.thinking_blocks") if kind.thinking_blocks else []
    )
    if thoughts and reasoning is None:
        reasoning = "".join([thought.text for thought in thoughts])
    calls = _tool_calls(message.get("tool_calls"), f"{path}.tool_calls")
    if message.get("function_call") is not None:
        calls = [*calls, _function(message["function_call"], f"{path}.function_call", "")]
    refusal = message.get("refusal")
    if refusal is not None:
        text_at(refusal, f"{path}.refusal")
        content = refusal if content is None else content
    if content is None and not calls and reasoning is None and not _may_be_null(kind, message, "assistant"):
        raise invalid(
            f"{path}.content", f"'{path}.content' is required on an assistant message without 'tool_calls'."
        )
    return Message(
        role="assistant",
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        name=name,
        thoughts=thoughts,
    )


def _thoughts(value: Any, path: str) -> list[Thought]:
    """Signed and sealed reasoning, as an earlier answer told it."""
    if value is None:
        return []
    if type(value) is not list:
        raise mistyped(path, "an array of blocks", value)
    return [
        _thought(object_at(item, f"{path}[{position}]"), f"{path}[{position}]")
        for position, item in enumerate(cast("list[Any]", value))
    ]


def _thought(block: dict[str, Any], path: str) -> Thought:
    after, where = block.get("after"), f"{path}.after"
    place = {} if after is None else object_at(after, where)
    before, calls = (_count(place.get(name), f"{where}.{name}") for name in ("content", "tool_calls"))
    match block.get("type"):
        case "thinking":
            signature = block.get("signature")
            return Thought(
                text_at(block.get("thinking"), f"{path}.thinking"),
                "" if signature is None else text_at(signature, f"{path}.signature"),
                text_before=before,
                calls_before=calls,
            )
        case "redacted_thinking":
            sealed = text_at(block.get("data"), f"{path}.data")
            return Thought(sealed=sealed, text_before=before, calls_before=calls)
        case other:
            raise unlisted(f"{path}.type", "'thinking' or 'redacted_thinking'", other)


def _count(value: Any, path: str) -> int:
    """How much stands in front of a thought."""
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise mistyped(path, "a whole number of at least 0", value)
    return value


def _may_be_null(kind: Messages, message: dict[str, Any], role: str) -> bool:
    return role in kind.nullable and "content" in message


def _content(kind: Messages, value: Any, path: str) -> str | list[ContentPart] | None:
    if value is None or type(value) is str:
        return value
    if type(value) is not list:
        raise mistyped(path, "a string or an array of parts", value)
    parts = cast("list[Any]", value)
    if len(parts) > kind.most_parts:
        raise invalid(path, f"'{path}' holds {len(parts)} parts; at most {kind.most_parts} are taken.")
    return [_part(kind, part, f"{path}[{position}]") for position, part in enumerate(parts)]


def _part(kind: Messages, value: Any, path: str) -> ContentPart:
    part = object_at(value, path)
    name = part.get("type")
    if name in ("text", "refusal"):
        return TextPart(text_at(part.get(name), f"{path}.{name}"))
    if name == "image_url":
        return read_image(kind.images, part.get("image_url"), f"{path}.image_url")
    raise unlisted(f"{path}.type", "'text' or 'image_url'", name)


def _tool_calls(value: Any, path: str) -> list[ToolCall]:
    if value is None:
        return []
    if type(value) is not list:
        raise mistyped(path, "an array of tool calls", value)
    items = cast("list[Any]", value)
    if len(items) > _MOST_CALLS:
        raise invalid(path, f"'{path}' holds {len(items)} calls; at most {_MOST_CALLS} are taken.")
    return [_tool_call(item, f"{path}[{position}]") for position, item in enumerate(items)]


def _tool_call(value: Any, path: str) -> ToolCall:
    call = object_at(value, path)
    function_type(call.get("type"), f"{path}.type")
    return _function(call.get("function"), f"{path}.function", text_at(call.get("id"), f"{path}.id"))


def _function(value: Any, path: str, call_id: str) -> ToolCall:
    function = object_at(value, path)
    arguments = function.get("arguments")
    if arguments is None:
        arguments = ""
    elif type(arguments) is dict:
        arguments = msgspec.json.encode(arguments).decode()
    else:
        text_at(arguments, f"{path}.arguments")
    return ToolCall(call_id, name_at(function.get("name"), f"{path}.name"), arguments)


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)
