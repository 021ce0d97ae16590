"""Kimi K2, K2-Thinking, K2.5, K2.6, K2.7-Code.

Tools are declared as compact JSON with the keys of every object sorted, as Kimi's own code
prepares them. (Of K2.5 and later that code can also make a TypeScript text out of them; a caller who
has it sends it as the option `tools_ts_str` of `chat_template_kwargs`.)

A call's ID is ``functions.NAME:NUMBER`` and goes back as it came; the template writes any other as
it is, too.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from onward.core.request import ImagePart
from onward.rendering.codecs.named_json import kimi_call
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, INSTRUCT, REASONING, Family, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import Edge, Grammar, Says, State
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ImageMarks

_HEADER: Final = "<|im_assistant|>assistant<|im_middle|>"
_SECTION: Final = "<|tool_calls_section_begin|>"
_SECTION_END: Final = "<|tool_calls_section_end|>"
_CALL: Final = "<|tool_call_begin|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_IMAGE: Final = ImageMarks(before="<|media_begin|>image<|media_content|>", after="<|media_end|>")
_OPENERS: Final = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}
_SYSTEM: Final = (
    "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>"
)


def _render_instruct(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    _tools(conversation, prompt)
    if turns and turns[0].role != "system":
        # The template of this one ends the line here.
        prompt.frame(_SYSTEM + "\n")
    for turn in turns:
        _turn(turn, prompt, thought=None)
    if conversation.generate:
        prompt.frame(_HEADER).reply()


def _render_reasoning(conversation: Conversation, prompt: PromptBuilder, *, modern: bool) -> None:
    """`modern`: K2.7, which keeps all thoughts, begins one, and has no system prompt of its own."""
    turns = conversation.turns
    _tools(conversation, prompt)
    if not modern and (not turns or turns[0].role != "system"):
        prompt.frame(_SYSTEM)
    past = -1 if modern else _last_answer(turns)
    for place, turn in enumerate(turns):
        _turn(turn, prompt, thought=(turn.reasoning or "") if place > past else "")
    if conversation.generate:
        prompt.frame(_HEADER).reply()
        if modern:
            prompt.frame("<think>")


def _render_hybrid(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    keeps = conversation.flag("preserve_thinking", default=False)
    _tools(conversation, prompt)
    past = -1 if keeps else _last_answer(turns)
    for place, turn in enumerate(turns):
        kept = place > past and (conversation.effort or keeps)
        _turn(turn, prompt, thought=(turn.reasoning or "") if kept else "")
    if conversation.generate:
        prompt.frame(_HEADER).reply().frame("<think>" if conversation.effort else "<think></think>")


def _tools(conversation: Conversation, prompt: PromptBuilder) -> None:
    if not conversation.tools:
        return
    declared = conversation.options.get("tools_ts_str")
    if not isinstance(declared, str) or not declared:
        tools = _sorted(list(conversation.tools))
        declared = json.dumps(tools, ensure_ascii=False, separators=(",", ":"))
    prompt.frame("<|im_system|>tool_declare<|im_middle|>").text(declared).frame("<|im_end|>")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        return {key: _sorted(pairs[key]) for key in sorted(pairs)}
    if isinstance(value, list):
        return [_sorted(one) for one in cast("list[Any]", value)]
    return value


def _last_answer(turns: Sequence[Turn]) -> int:
    """The place of the last assistant message without calls; thoughts up to it are left out."""
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].role == "assistant" and not turns[place].calls:
            return place
    return -1


def _turn(turn: Turn, prompt: PromptBuilder, *, thought: str | None) -> None:
    """`thought`: of an assistant message; None: the format has none."""
    prompt.frame(_OPENERS.get(turn.role, "<|im_system|>")).text(turn.name or turn.role).frame("<|im_middle|>")
    if turn.role == "assistant":
        prompt.reply()
        if thought is not None:
            prompt.frame("<think>").text(thought).frame("</think>")
        prompt.text(turn.text)
        _calls(turn.calls, prompt)
    elif turn.role == "tool":
        prompt.frame("## Return of ").text(turn.call_id or "").frame("\n").text(turn.text)
    else:
        _content(turn, prompt)
    prompt.frame("<|im_end|>")


def _content(turn: Turn, prompt: PromptBuilder) -> None:
    for part in turn.parts:
        if isinstance(part, ImagePart):
            prompt.frame(_IMAGE.before).image(part).frame(_IMAGE.after)
        else:
            prompt.text(part.text)


def _calls(calls: Sequence[Called], prompt: PromptBuilder) -> None:
    if not calls:
        return
    prompt.frame(_SECTION)
    for call in calls:
        arguments = call.arguments if call.arguments.strip() else "{}"
        prompt.frame(_CALL).text(call.id).frame(_ARGUMENTS).text(arguments).frame(_CALL_END)
    prompt.frame(_SECTION_END)


def _grammar(*, thinks: bool) -> Grammar:
    """Text is given word for word. A section of calls ends a thought that was not closed.

    A section that the model ends without its mark is complete all the same.
    """
    section = {_SECTION: Edge(to="section")}
    call = {_CALL: Edge(to="call")}
    states = {
        "answer": State(says=Says.CONTENT, edges=section, ends=True),
        "section": State(says=Says.SPACE, edges=call),
        "call": State(
            says=Says.CALL, edges={_CALL_END: Edge(to="called", close=True)}, keeps=frozenset({_ARGUMENTS})
        ),
        "called": State(says=Says.SPACE, edges=call | {_SECTION_END: Edge(to="after")}, ends=True),
        "after": State(says=Says.SPACE, edges=section, otherwise="answer", ends=True),
    }
    if thinks:
        think = {"<think>": Edge(to="reasoning"), "</think>": Edge(to="answer")}
        states["start"] = State(says=Says.SPACE, edges=think | section, otherwise="answer", ends=True)
        states["reasoning"] = State(says=Says.REASONING, edges={"</think>": Edge(to="answer")} | section)
    return Grammar(start="start" if thinks else "answer", states=states, codec=kimi_call(_ARGUMENTS))


_MARKS: Final = (
    *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
    *(_SECTION, _CALL, _ARGUMENTS, _CALL_END, _SECTION_END),
)
_THINK_MARKS: Final = (*_MARKS, "<think>", "</think>")
_STOPS: Final = ("<|im_end|>", "[EOS]")
_OURS: Final = ("<|im_middle|>", "<|tool_call_argument_begin|>", "## Return of ")

FAMILIES: Final = (
    Family(
        name="kimi-k2",
        repos=(rf"[^/]+/Kimi-K2-Instruct(-0905)?{COPIES}",),
        kind=INSTRUCT,
        marks=_MARKS,
        template=_OURS,
        template_lacks=("<think>",),
        render=_render_instruct,
        grammar=_grammar(thinks=False),
        header=_HEADER,
        stops=_STOPS,
        tools=True,
    ),
    Family(
        name="kimi-k2-thinking",
        repos=(rf"[^/]+/Kimi-K2-Thinking{COPIES}",),
        kind=REASONING,
        marks=_THINK_MARKS,
        template=(*_OURS, "<think></think>", "suffix_msgs"),
        template_lacks=("tools_ts_str",),
        render=partial(_render_reasoning, modern=False),
        grammar=_grammar(thinks=True),
        header=_HEADER,
        stops=_STOPS,
        tools=True,
    ),
    Family(
        name="kimi-k2.5",
        repos=(rf"[^/]+/Kimi-K2\.[56]{COPIES}",),
        kind=HYBRID,
        marks=_THINK_MARKS,
        template=(*_OURS, "<think></think>", "tools_ts_str", "suffix_msgs"),
        render=_render_hybrid,
        grammar=_grammar(thinks=True),
        header=_HEADER,
        stops=_STOPS,
        efforts=on_or_off(switch="thinking"),
        tools=True,
        images=_IMAGE,
    ),
    Family(
        name="kimi-k2.7",
        repos=(rf"[^/]+/Kimi-K2\.7(-Code)?{COPIES}",),
        kind=REASONING,
        marks=_THINK_MARKS,
        template=(*_OURS, "<think>", "tools_ts_str"),
        template_lacks=("suffix_msgs",),
        render=partial(_render_reasoning, modern=True),
        grammar=_grammar(thinks=True),
        header=_HEADER,
        stops=_STOPS,
        tools=True,
        images=_IMAGE,
    ),
)
