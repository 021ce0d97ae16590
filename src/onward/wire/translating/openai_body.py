"""A neutral chat request as a body of OpenAI's chat completions."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from onward.core.request import ChatRequest, ContentPart, ImagePart, Message, TextPart, Thinking, ToolCall
from onward.wire.thinking_blocks import thinking_blocks

_BUDGETS: Final = ((4096, "low"), (16_384, "medium"))
"""The effort that is about as much reasoning as a budget below this many tokens."""


def chat_fields(request: ChatRequest, *, reasons: bool) -> dict[str, Any]:
    """The fields of a body, save the model, the limit and those of the stream.

    `reasons`: whether the model has a choice of how much it reasons, so that it is told.
    """
    sampling = request.sampling
    fields: dict[str, Any] = {"messages": [_message(message) for message in _images_apart(request.messages)]}
    if request.tools:
        fields["tools"] = request.tools
        if request.tool_choice is not None:
            fields["tool_choice"] = request.tool_choice
        if not request.parallel_tool_calls:
            fields["parallel_tool_calls"] = False
    optional = {
        "temperature": (sampling.temperature, 1.0),
        "top_p": (sampling.top_p, 1.0),
        "top_k": (sampling.top_k, 0),
        "stop": (request.stop, []),
        "user": (request.user, None),
        "reasoning_effort": (_effort(request.thinking) if reasons else None, None),
    }
    fields |= {name: value for name, (value, usual) in optional.items() if value != usual}
    if request.continue_final_message:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields


def _images_apart(messages: list[Message]) -> Iterator[Message]:
    """The messages; images of results, which a tool's message has no place for, at the start of what the user
    says next.
    """
    images: list[ContentPart] = []
    for message in messages:
        content = message.content
        parts = content if isinstance(content, list) else []
        if message.role == "tool":
            texts = [one for one in parts if not isinstance(one, ImagePart)]
            images += [one for one in parts if isinstance(one, ImagePart)]
            yield message if len(texts) == len(parts) else replace(message, content=texts or "")
            continue
        if images and message.role == "user":
            said = [TextPart(content)] if isinstance(content, str) else parts
            yield replace(message, content=[*images, *said])
        else:
            if images:
                yield Message(role="user", content=images)
            yield message
        images = []
    if images:
        yield Message(role="user", content=images)


def _message(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.reasoning is not None:
        made["reasoning_content"] = message.reasoning
    if any(thought.signature or thought.sealed is not None for thought in message.thoughts):
        made["thinking_blocks"] = thinking_blocks(message.thoughts)
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    return made


def _content(content: str | list[ContentPart] | None) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: ContentPart) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    image = {"url": part.url} if part.detail is None else {"url": part.url, "detail": part.detail}
    return {"type": "image_url", "image_url": image}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _effort(thinking: Thinking | None) -> str | None:
    if thinking is None:
        return None
    if thinking.on is False:
        return "none"
    if thinking.effort is not None or thinking.budget is None:
        return thinking.effort
    return next((effort for most, effort in _BUDGETS if thinking.budget < most), "high")
