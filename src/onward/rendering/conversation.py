"""A conversation as the values that chat templates expect."""

import json
from typing import Any, Final, cast

import msgspec

from onward.core.failure import Failure, media_unsupported
from onward.core.request import ImagePart, Message, TextPart, ToolCall

_REASONING_KEYS: Final = ("reasoning_content", "reasoning", "thinking")
"""The names under which templates look for a message's reasoning."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a template can take, found out by trying it."""

    parts: bool = False
    """It wants content as a list of parts, never as a string."""
    object_arguments: bool = True
    """It wants a call's arguments as an object; else as the JSON text."""
    wrapped_arguments: bool = False
    """It fails at arguments that are no object, so malformed ones are put into an object."""
    null_content: bool = False
    """It takes null for the content of a message that has calls; else an empty string."""
    developer: bool = False
    """It knows the role developer; else such messages are system messages."""


def message_values(messages: list[Message], shape: Shape) -> list[dict[str, Any]]:
    """The messages, in the shape that a template takes. Raises `Failure` for an image."""
    return [_message(place, message, shape) for place, message in enumerate(messages)]


def _message(place: int, message: Message, shape: Shape) -> dict[str, Any]:
    role = message.role
    if role == "developer" and not shape.developer:
        role = "system"
    values: dict[str, Any] = {"role": role, "content": _content(place, message, shape)}
    if message.reasoning is not None:
        values |= dict.fromkeys(_REASONING_KEYS, message.reasoning)
    if message.tool_calls:
        values["tool_calls"] = [_call(call, shape) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        values["name"] = message.name
    return values


def _content(place: int, message: Message, shape: Shape) -> Any:
    content = message.content
    if content is None:
        if message.tool_calls and shape.null_content:
            return None
        return [] if shape.parts else ""
    texts = [content] if isinstance(content, str) else list(_texts(place, content))
    if shape.parts:
        return [{"type": "text", "text": text} for text in texts]
    return "".join(texts)


def no_images(param: str) -> Failure:
    """The failure of an image sent to a model that takes none."""
    return media_unsupported(param, f"'{param}' is an image; this model takes no images: send text alone.")


def _texts(place: int, parts: list[TextPart | ImagePart]) -> list[str]:
    texts: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, ImagePart):
            raise no_images(part.path or f"messages[{place}].content[{number}]")
        texts.append(part.text)
    return texts


def _call(call: ToolCall, shape: Shape) -> dict[str, Any]:
    arguments: Any = call.arguments
    if shape.object_arguments:
        arguments = _parsed(call.arguments)
        if isinstance(arguments, str) and shape.wrapped_arguments:
            arguments = {"arguments": arguments}
    elif not arguments.strip():
        arguments = "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _parsed(arguments: str) -> Any:
    """The object that a call's arguments are; the text itself if they are malformed."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast("dict[str, Any]", value) if isinstance(value, dict) else arguments
