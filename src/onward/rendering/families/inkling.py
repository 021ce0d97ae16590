"""Inkling and Inkling-Small, of Thinking Machines.

Every part of a message is a message of its own: a mark for who writes it, a mark for what it is,
the text, an end. A prompt begins nothing of the reply: the model writes its own marks, too. The
authority is the renderer that the makers publish.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from onward.core.request import ImagePart, TextPart
from onward.rendering.codecs.call import CodecError, Json
from onward.rendering.codecs.inkling import inkling_call
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, Efforts, Family
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import Edge, Grammar, Route, Says, State
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ImageMarks

_MODEL: Final = "<|message_model|>"
_SYSTEM: Final = "<|message_system|>"
_TEXT: Final = "<|content_text|>"
_THINKING: Final = "<|content_thinking|>"
_CALL: Final = "<|content_invoke_tool_json|>"
_END: Final = "<|end_message|>"
_STOP: Final = "<|content_model_end_sampling|>"
_IMAGE: Final = ImageMarks(before="<|message_user|><|content_image|>", after=_END)


def _render(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    if conversation.tools:
        declared = [_declaration(tool) for tool in conversation.tools]
        prompt.frame(f"{_SYSTEM}<|content_xml|>").text(_json(declared, sort_keys=True)).frame(_END)
    spoken = next((place for place, turn in enumerate(turns) if turn.role != "system"), len(turns))
    names = {call.id: call.name for turn in turns for call in turn.calls}
    for place, turn in enumerate(turns):
        if place == spoken:
            _effort(conversation, prompt)
        if turn.role == "assistant":
            _assistant(turn, prompt)
        elif turn.role == "tool":
            name = turn.name or names.get(turn.call_id or "", "")
            prompt.frame("<|message_tool|>").text(name).frame(_TEXT).text(turn.text).frame(_END)
        else:
            _said(turn, prompt)
    if spoken == len(turns):
        _effort(conversation, prompt)
    if conversation.generate:
        prompt.reply()


def _effort(conversation: Conversation, prompt: PromptBuilder) -> None:
    """The message that says how much to think; of the number there are two digits."""
    effort: float = conversation.effort
    prompt.frame(f"{_SYSTEM}{_TEXT}Thinking effort level: {round(effort * 100) / 100:g}{_END}")


def _declaration(tool: Json) -> Json:
    function: Json = tool.get("function") or {}
    return {
        "type": tool.get("type", "function"),
        "name": function.get("name"),
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }


def _said(turn: Turn, prompt: PromptBuilder) -> None:
    for part in turn.parts or [TextPart("")]:
        if isinstance(part, ImagePart):
            prompt.frame(_IMAGE.before).image(part).frame(_IMAGE.after)
            continue
        prompt.frame(f"<|message_{turn.role}|>{_TEXT}").text(part.text).frame(_END)


def _assistant(turn: Turn, prompt: PromptBuilder) -> None:
    prompt.reply()
    for step in turn.steps or (turn,):
        if step.reasoning:
            prompt.frame(_MODEL + _THINKING).text(step.reasoning).frame(_END)
        if step.text or not (step.calls or step.reasoning):
            prompt.frame(_MODEL + _TEXT).text(step.text).frame(_END)
        for call in step.calls:
            prompt.frame(_MODEL).text(call.name).frame(_CALL).text(_call(call)).frame(_END)
    prompt.frame(_STOP)


def _call(call: Called) -> str:
    """A call as an object; its arguments in the order of their names, malformed ones as they came."""
    if call.value is None:
        return f'{{"name":{_json(call.name)},"args":{call.arguments}}}'
    return _json({"name": call.name, "args": {name: call.value[name] for name in sorted(call.value)}})


def _json(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)


def _grammar() -> Grammar:
    states = {
        "start": State(says=Says.SPACE, edges={_MODEL: Edge(to="label")}, ends=True),
        "after": State(says=Says.SPACE, edges={_MODEL: Edge(to="label")}, ends=True),
        "label": State(
            says=Says.LABEL,
            edges={
                _TEXT: Edge(to=_unlabelled("content")),
                _THINKING: Edge(to=_unlabelled("reasoning")),
                _CALL: Edge(to="call"),
            },
        ),
        "content": State(says=Says.CONTENT, edges={_END: Edge(to="after")}),
        "reasoning": State(says=Says.REASONING, edges={_END: Edge(to="after")}),
        "call": State(says=Says.CALL, edges={_END: Edge(to="after", close=True)}),
    }
    return Grammar(start="start", states=states, codec=inkling_call)


def _unlabelled(state: str) -> Route:
    """The route of text and thoughts, which have no name in front."""

    def route(label: Sequence[str]) -> str:
        if "".join(label).strip():
            raise CodecError("a name in front of text")
        return state

    return route


FAMILIES: Final = (
    Family(
        name="inkling",
        repos=(rf"[^/]+/Inkling(-Small)?{COPIES}",),
        kind=HYBRID,
        marks=(_MODEL, _SYSTEM, "<|message_user|>", "<|message_tool|>", _TEXT, _THINKING, _CALL, _END, _STOP),
        template=(_MODEL, _TEXT, _THINKING, _CALL),
        render=_render,
        grammar=_grammar(),
        header="",
        stops=(_STOP,),
        efforts=Efforts(
            values={
                "none": 0.0,
                "minimal": 0.1,
                "low": 0.2,
                "medium": 0.7,
                "high": 0.9,
                "xhigh": 0.99,
                "max": 0.99,
            },
            default=0.9,
            numbers=(0.0, 0.99),
        ),
        tools=True,
        images=_IMAGE,
    ),
)
