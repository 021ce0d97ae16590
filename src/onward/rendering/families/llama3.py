"""Llama 3, 3.1, 3.2 and 3.3 (text)."""

import json
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from onward.rendering.codecs import llama
from onward.rendering.codecs.call import dumps
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.family import Family
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import END, Edge, Grammar, Says, State, content_only
from onward.rendering.prompt import PromptBuilder

_BEGIN: Final = "<|begin_of_text|>"
_HEADER: Final = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_OLD_DATE: Final = "26 Jul 2024"
_FORMAT: Final = (
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)
_IN_SYSTEM: Final = (
    "You have access to the following functions. To call a function, please respond with JSON for a function "
    "call." + _FORMAT
)
_IN_USER: Final = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments "
    "that best answers the given prompt.\n\n" + _FORMAT
)


def _render_30(conversation: Conversation, prompt: PromptBuilder) -> None:
    prompt.frame(_BEGIN)
    for turn in conversation.turns:
        _message(turn.role, turn.text.strip(), prompt)
    if conversation.generate:
        prompt.frame(_HEADER).reply()


def _render_31(conversation: Conversation, prompt: PromptBuilder) -> None:
    _render(conversation, prompt, date=_OLD_DATE, built_in=_built_in(conversation))


def _render_32(conversation: Conversation, prompt: PromptBuilder) -> None:
    date = time.strftime("%d %b %Y", time.localtime(conversation.clock.unix()))
    _render(conversation, prompt, date=date, built_in=None)


def _render(
    conversation: Conversation, prompt: PromptBuilder, *, date: str, built_in: Sequence[str] | None
) -> None:
    turns = list(conversation.turns)
    system = turns.pop(0).text.strip() if turns and turns[0].role == "system" else ""
    tools = conversation.tools
    with_user = bool(tools) and conversation.flag("tools_in_user_message", default=True)
    prompt.frame(f"{_BEGIN}<|start_header_id|>system<|end_header_id|>\n\n")
    if tools or built_in is not None:
        prompt.frame("Environment: ipython\n")
    if built_in is not None:
        named = [name for name in built_in if name != "code_interpreter"]
        prompt.frame("Tools: ").text(", ".join(named)).frame("\n\n")
    given = conversation.options.get("date_string")
    prompt.frame("Cutting Knowledge Date: December 2023\nToday Date: ")
    prompt.text(given if isinstance(given, str) else date).frame("\n\n")
    if tools and not with_user:
        _tools(_IN_SYSTEM, tools, prompt)
    prompt.text(system).frame("<|eot_id|>")
    if with_user:
        prompt.frame("<|start_header_id|>user<|end_header_id|>\n\n")
        _tools(_IN_USER, tools, prompt)
        first = turns.pop(0).text if turns and turns[0].role == "user" else ""
        prompt.text(first.strip()).frame("<|eot_id|>")
    for turn in turns:
        if turn.calls:
            _calls(turn, prompt, built_in)
        elif turn.role == "tool":
            _message("ipython", dumps(turn.text), prompt)
        else:
            _message(turn.role, turn.text.strip(), prompt)
    if conversation.generate:
        prompt.frame(_HEADER).reply()


def _message(role: str, text: str, prompt: PromptBuilder) -> None:
    prompt.frame(f"<|start_header_id|>{role}<|end_header_id|>\n\n")
    if role == "assistant":
        prompt.reply()
    prompt.text(text).frame("<|eot_id|>")


def _tools(before: str, tools: Sequence[dict[str, Any]], prompt: PromptBuilder) -> None:
    prompt.frame(before)
    for tool in tools:
        prompt.text(json.dumps(tool, ensure_ascii=False, indent=4)).frame("\n\n")


def _calls(turn: Turn, prompt: PromptBuilder, built_in: Sequence[str] | None) -> None:
    """The calls of a message; its text is no part of the prompt. The official template takes one call."""
    prompt.frame(_HEADER).reply()
    for number, call in enumerate(turn.calls):
        if number:
            prompt.frame("; ")
        if built_in is not None and call.name in built_in and call.value is not None:
            arguments = ", ".join([f'{key}="{value}"' for key, value in call.value.items()])
            prompt.frame("<|python_tag|>").text(f"{call.name}.call({arguments})")
        else:
            prompt.text(f'{{"name": "{call.name}", "parameters": {call.json}}}')
    prompt.frame("<|eot_id|>" if built_in is None else "<|eom_id|>")


def _built_in(conversation: Conversation) -> Sequence[str] | None:
    value = conversation.options.get("builtin_tools")
    return [str(one) for one in cast("list[object]", value)] if isinstance(value, list) else None


def _grammar() -> Grammar:
    tag = "<|python_tag|>"
    states = {
        "start": State(
            says=Says.SPACE,
            edges={tag: Edge(to=llama.TAGGED)},
            openings={'{"name"': "bare", '{"type":"function"': "bare", '{"parameters"': "bare"},
            otherwise="content",
            ends=True,
        ),
        "content": State(says=Says.CONTENT, edges={tag: Edge(to=llama.TAGGED)}, ends=True),
        "bare": State(says=Says.CALL, edges={END: Edge(to="done", close=True, lenient=True)}),
        llama.TAGGED: State(
            says=Says.CALL,
            edges={tag: Edge(to=llama.TAGGED, close=True), END: Edge(to="done", close=True)},
        ),
        "done": State(says=Says.SPACE, ends=True),
    }
    return Grammar(start="start", states=states, codec=llama.call)


_MARKS: Final = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_STOPS: Final = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
_OURS: Final = ("<|start_header_id|>", "Cutting Knowledge Date: December 2023", "tools_in_user_message")

FAMILIES: Final = (
    Family(
        name="llama3.2",
        repos=(
            rf"[^/]+/(Meta-)?Llama-3\.2-[13]B-Instruct{COPIES}",
            r"meta-llama/Llama-3\.2-[13]B-Instruct-(QLORA|SpinQuant)_INT4_EO8",
        ),
        marks=(*_MARKS, "<|python_tag|>"),
        template=(*_OURS, "strftime_now"),
        template_lacks=("image",),
        render=_render_32,
        grammar=_grammar(),
        header=_HEADER,
        stops=_STOPS,
        tools=True,
    ),
    Family(
        name="llama3.1",
        repos=(rf"[^/]+/(Meta-)?Llama-3\.[13]-\d+B-Instruct{COPIES}",),
        marks=(*_MARKS, "<|python_tag|>"),
        template=(*_OURS, "26 Jul 2024"),
        template_lacks=("image", "strftime_now"),
        render=_render_31,
        grammar=_grammar(),
        header=_HEADER,
        stops=_STOPS,
        tools=True,
    ),
    Family(
        name="llama3",
        repos=(rf"[^/]+/(Meta-)?Llama-3-\d+B-Instruct{COPIES}",),
        marks=_MARKS,
        template=("set loop_messages = messages", "<|start_header_id|>' + message['role']"),
        template_lacks=("tools", "image"),
        render=_render_30,
        grammar=content_only(),
        header=_HEADER,
        stops=_STOPS,
    ),
)
