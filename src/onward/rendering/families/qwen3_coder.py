"""Qwen3-Coder and Qwen3-Coder-Next."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from onward.rendering.codecs.bare import PYTHON_WORDS
from onward.rendering.codecs.function_xml import function_xml
from onward.rendering.families.chatml import HEADER, STOPS, think_and_call
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.family import Family, Render
from onward.rendering.families.qwen35 import BEFORE_CALL, HOW_TO_CALL, write_call, written
from onward.rendering.families.repos import COPIES
from onward.rendering.prompt import PromptBuilder

_SYSTEM: Final = "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."


def _renderer(*, json_values: bool) -> Render:
    """How the two differ: in the first, ``True`` and white space around results; in Next, ``true``."""

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = conversation.turns
        has_system = bool(turns) and turns[0].role == "system"
        if has_system or conversation.tools:
            prompt.frame("<|im_start|>system\n").text(turns[0].text if has_system else _SYSTEM)
            if conversation.tools:
                _declare(conversation.tools, prompt, json_values=json_values)
            prompt.frame("<|im_end|>\n")
        rest = turns[has_system:]
        for place, turn in enumerate(rest):
            if turn.role == "tool":
                _result(rest, place, prompt, spaced=not json_values)
            elif turn.calls:
                _caller(turn, prompt, json_values=json_values)
            else:
                prompt.frame(f"<|im_start|>{turn.role}\n")
                if turn.role == "assistant":
                    prompt.reply()
                prompt.text(turn.text).frame("<|im_end|>\n")
        if conversation.generate:
            prompt.frame(HEADER).reply()

    return render


def _declare(tools: Sequence[dict[str, Any]], prompt: PromptBuilder, *, json_values: bool) -> None:
    prompt.frame("\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>")
    for tool in tools:
        function = _object(tool.get("function", tool))
        prompt.text(f"\n<function>\n<name>{function.get('name', '')}</name>")
        if "description" in function:
            prompt.text(f"\n<description>{str(function['description']).strip()}</description>")
        prompt.text("\n<parameters>")
        parameters = _object(function.get("parameters"))
        for name, schema in _object(parameters.get("properties")).items():
            _parameter(name, _object(schema), prompt, json_values=json_values)
        _others(parameters, ("type", "properties"), prompt, json_values=json_values)
        prompt.text("\n</parameters>")
        described = ("type", "name", "description", "parameters")
        _others(function, described, prompt, json_values=json_values)
        prompt.text("\n</function>")
    prompt.frame("\n</tools>" + HOW_TO_CALL)


def _parameter(name: str, schema: Mapping[str, Any], prompt: PromptBuilder, *, json_values: bool) -> None:
    prompt.text(f"\n<parameter>\n<name>{name}</name>")
    if "type" in schema:
        prompt.text(f"\n<type>{schema['type']}</type>")
    if "description" in schema:
        prompt.text(f"\n<description>{str(schema['description']).strip()}</description>")
    _others(schema, ("name", "type", "description"), prompt, json_values=json_values)
    prompt.text("\n</parameter>")


def _others(
    fields: Mapping[str, Any], written_already: tuple[str, ...], prompt: PromptBuilder, *, json_values: bool
) -> None:
    for name, value in fields.items():
        if name not in written_already:
            prompt.text(f"\n<{name}>{written(value, json_values=json_values)}</{name}>")


def _caller(turn: Turn, prompt: PromptBuilder, *, json_values: bool) -> None:
    """An assistant message with calls."""
    prompt.frame(HEADER).reply()
    content = turn.text.strip()
    if content:
        prompt.text(content).frame("\n\n")
    for number, call in enumerate(turn.calls):
        if number:
            prompt.frame("\n")
        write_call(call, prompt, json_values=json_values)
    prompt.frame("<|im_end|>\n")


def _result(turns: Sequence[Turn], place: int, prompt: PromptBuilder, *, spaced: bool) -> None:
    """A tool's result; results that follow each other are one user message."""
    before, behind = ("", "\n") if spaced else ("\n", "")
    if place and turns[place - 1].role != "tool":
        prompt.frame("<|im_start|>user" + behind)
    prompt.frame(f"{before}<tool_response>\n").text(turns[place].text).frame("\n</tool_response>" + behind)
    if place == len(turns) - 1 or turns[place + 1].role != "tool":
        prompt.frame("<|im_end|>\n")


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


_OURS: Final = (_SYSTEM, "render_extra_keys", "<function=example_function_name>")
_SPACED: Final = r"'<|im_start|>user\n'"


def _family(name: str, repo: str, *, template: Sequence[str], lacks: Sequence[str], later: bool) -> Family:
    return Family(
        name=name,
        repos=(rf"(Qwen|unsloth)/{repo}{COPIES}",),
        marks=("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
        template=(*_OURS, *template),
        template_lacks=("<think>", *lacks),
        render=_renderer(json_values=later),
        grammar=think_and_call(
            codec=function_xml(None if later else PYTHON_WORDS), thinks=False, before_call=BEFORE_CALL
        ),
        header=HEADER,
        stops=STOPS,
        tools=True,
    )


FAMILIES: Final = (
    _family(
        "qwen3-coder",
        r"Qwen3-Coder-\d+B-A\d+B-Instruct(-1M)?",
        template=(_SPACED,),
        lacks=(),
        later=False,
    ),
    _family("qwen3-coder-next", "Qwen3-Coder-Next", template=(), lacks=(_SPACED,), later=True),
)
