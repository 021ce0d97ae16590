"""A conversation as a family's renderer reads it: every message in one shape."""

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from onward.core.clock import Clock
from onward.core.failure import invalid
from onward.core.request import ChatRequest, ContentPart, ImagePart, Message, TextPart, ToolCall
from onward.core.stretches import stretches, text_of
from onward.rendering.codecs.call import dumps
from onward.rendering.conversation import no_images


class Called(msgspec.Struct, frozen=True):
    """A call in an earlier assistant message."""

    id: str
    name: str
    arguments: str
    """As the caller sent it: it may be no JSON."""
    value: dict[str, Any] | None
    """The object that the arguments are; empty if they are blank, None if they are malformed."""

    @property
    def json(self) -> str:
        """The arguments as templates write an object (`tojson`); malformed ones as they are."""
        return self.arguments if self.value is None else dumps(self.value)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    role: str
    """system, user, assistant or tool; developer only for a family that has it."""
    content: str | None
    """The text, of several parts joined; None if the caller sent null or nothing."""
    parts: Sequence[ContentPart] = ()
    """Text and images in order, for families that take images."""
    reasoning: str | None = None
    calls: Sequence[Called] = ()
    call_id: str | None = None
    name: str | None = None
    steps: Sequence["Turn"] = ()
    """An assistant's turn as it was made, where its reasoning does not stand in front of all else: for
    families that can write it so."""

    @property
    def text(self) -> str:
        """The text; "" if there is none."""
        return self.content or ""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt is made of."""

    turns: Sequence[Turn]
    tools: Sequence[dict[str, Any]]
    effort: Any
    """What the family's `efforts` make of the request's reasoning effort."""
    options: dict[str, Any]
    """`chat_template_kwargs` of the request: what the official template can be told."""
    generate: bool
    """Whether the prompt ends with the beginning of a reply."""
    clock: Clock

    def flag(self, name: str, *, default: bool) -> bool:
        """An option that is true or false."""
        value = self.options.get(name)
        return value if isinstance(value, bool) else default


def conversation_of(
    request: ChatRequest, *, developer: bool, images: bool, effort: Any, clock: Clock, end: str
) -> Conversation:
    """The conversation of a request. Raises `Failure` for an image where the family takes none.

    `end` is put behind the text of the last message if it is to be continued.
    """
    turns = [
        _turn(place, message, developer=developer, images=images)
        for place, message in enumerate(request.messages)
    ]
    if request.continue_final_message:
        last = turns[-1]
        if last.role != "assistant" or not last.content:
            raise invalid(
                "continue_final_message",
                "'continue_final_message' needs an assistant message with content at the end of 'messages'.",
            )
        turns[-1] = msgspec.structs.replace(last, content=last.content + end, calls=(), steps=())
    return Conversation(
        turns=turns,
        tools=request.tools,
        effort=effort,
        options=request.template_kwargs,
        generate=request.add_generation_prompt and not request.continue_final_message,
        clock=clock,
    )


def _turn(place: int, message: Message, *, developer: bool, images: bool) -> Turn:
    role = message.role
    if role == "developer" and not developer:
        role = "system"
    content = message.content
    parts: list[ContentPart] = []
    if isinstance(content, list):
        parts = content
        for number, part in enumerate(parts):
            if isinstance(part, ImagePart):
                param = part.path or f"messages[{place}].content[{number}]"
                if not images:
                    raise no_images(param)
                if role != "user":
                    raise invalid(param, f"'{param}' is an image: only messages of the user may hold one.")
        content = "".join([part.text for part in parts if isinstance(part, TextPart)])
    elif content is not None:
        parts = [TextPart(content)]
    return Turn(
        role=role,
        content=content,
        parts=parts,
        reasoning=message.reasoning,
        calls=[called(call) for call in message.tool_calls],
        call_id=message.tool_call_id,
        name=message.name,
        steps=_steps(message),
    )


def _steps(message: Message) -> list[Turn]:
    if not any(thought.text_before or thought.calls_before for thought in message.thoughts):
        return []
    return [
        Turn(
            role=message.role,
            content=text_of(step.content),
            reasoning=step.reasoning,
            calls=[called(call) for call in message.tool_calls[step.calls]],
        )
        for step in stretches(message.content, len(message.tool_calls), message.thoughts)
    ]


def called(call: ToolCall) -> Called:
    """A call of the history, its arguments read as far as they can be."""
    value: dict[str, Any] | None = None
    if not call.arguments.strip():
        value = {}
    else:
        try:
            read = json.loads(call.arguments)
        except (ValueError, RecursionError):
            read = None
        if isinstance(read, dict):
            value = cast("dict[str, Any]", read)
    return Called(call.id, call.name, call.arguments, value)
