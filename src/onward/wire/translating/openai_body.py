"""A neutral chat request as a body of OpenAI's chat completions."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from onward.core.request import ChatRequest, ContentPart, ImagePart, Message, TextPart, Thinking, ToolCall
from onward.core.stretches import stretches, text_size
from onward.wire.thinking_blocks import thinking_blocks

_BUDGETS: Final = ((4096, "low"), (16_384, "medium"))
"""The effort that is about as much reasoning as a budget below this many tokens."""


def chat_fields(request: ChatRequest, *, reasons: bool) -> dict[str, Any]:
    """The fields of a body, save the model, the limit and those of the stream.

    `reasons`: whether the model has a choice of how much it reasons, so that it is told.
    """
    sampling = request.sampling
    messages = _images_apart(_in_order(request))
    fields: dict[str, Any] = {"messages": [_message(message) for message in messages]}
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


def _in_order(request: ChatRequest) -> Iterator[Message]:
    """The messages; an assistant's with reasoning behind its text is several, as whoever signed or sealed it
    wants it back in its order. Behind a call nothing is cut, as its result has to follow, nor behind the
    text that the reply goes on with.
    """
    begun = request.messages[-1] if request.continue_final_message else None
    for message in request.messages:
        if not _is_signed(message):
            yield message
            continue
        said = text_size(message.content)
        fixed = [
            replace(one, text_before=0, calls_before=0)  # it stands with the one before it then
            if one.calls_before or (message is begun and one.text_before >= said)
            else one
            for one in message.thoughts
        ]
        for stretch in stretches(message.content, len(message.tool_calls), fixed):
            calls = message.tool_calls[stretch.calls]
            yield replace(
                message,
                content=stretch.content or (None if calls else ""),
                reasoning=stretch.reasoning,
                thoughts=stretch.thoughts,
                tool_calls=calls,
            )


def _is_signed(message: Message) -> bool:
    return any(thought.signature or thought.sealed is not None for thought in message.thoughts)


def _images_apart(messages: Iterable[Message]) -> Iterator[Message]:
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
    if _is_signed(message):
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
