"""Qwen3.5 and Qwen3.6."""

from collections.abc import Sequence
from typing import Any, Final

from onward.rendering.codecs.bare import PYTHON_WORDS
from onward.rendering.codecs.call import dumps
from onward.rendering.codecs.function_xml import function_xml
from onward.rendering.families.chatml import HEADER, STOPS, think_and_call
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, Family, Render, on_or_off
from onward.rendering.families.qwen3 import split_thought
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import Trim
from onward.rendering.prompt import PromptBuilder

HOW_TO_CALL: Final = (
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but NOT after\n- If there is no function call available, answer the question like normal with "
    "your current knowledge and do not tell the user about function calls\n</IMPORTANT>"
)
BEFORE_CALL: Final = Trim("\n", 2)
"""What the templates write between text and a call."""


def _renderer(*, json_values: bool, preserves: bool) -> Render:
    """How the models differ: how arguments are written, and whether earlier thoughts may be kept."""

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = conversation.turns
        _opening(conversation, prompt)
        keeps = preserves and conversation.flag("preserve_thinking", default=False)
        asked = _last_question(turns)
        for place, turn in enumerate(turns):
            if turn.role == "user" or (turn.role == "system" and place):
                prompt.frame(f"<|im_start|>{turn.role}\n").text(turn.text.strip()).frame("<|im_end|>\n")
            elif turn.role == "assistant":
                _assistant(turn, prompt, thinks=keeps or place > asked, json_values=json_values)
            elif turn.role == "tool":
                _result(turns, place, prompt)
        if conversation.generate:
            prompt.frame(HEADER).reply()
            prompt.frame("<think>\n" if conversation.effort else "<think>\n\n</think>\n\n")

    return render


def _opening(conversation: Conversation, prompt: PromptBuilder) -> None:
    """The first system message, behind the tools."""
    turns = conversation.turns
    system = turns[0].text.strip() if turns and turns[0].role == "system" else None
    if conversation.tools:
        prompt.frame("<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>")
        for tool in conversation.tools:
            prompt.text("\n" + dumps(tool))
        prompt.frame("\n</tools>" + HOW_TO_CALL)
        if system:
            prompt.text("\n\n" + system)
        prompt.frame("<|im_end|>\n")
    elif system is not None:
        prompt.frame("<|im_start|>system\n").text(system).frame("<|im_end|>\n")


def _last_question(turns: Sequence[Turn]) -> int:
    """The place of the last user message that is no wrapped tool result."""
    for place in range(len(turns) - 1, -1, -1):
        text = turns[place].text.strip()
        wrapped = text.startswith("<tool_response>") and text.endswith("</tool_response>")
        if turns[place].role == "user" and not wrapped:
            return place
    return len(turns) - 1


def _assistant(turn: Turn, prompt: PromptBuilder, *, thinks: bool, json_values: bool) -> None:
    content = turn.text.strip()
    reasoning = turn.reasoning
    if reasoning is None:
        reasoning, content = split_thought(content)
    prompt.frame(HEADER).reply()
    if thinks:
        prompt.frame("<think>\n").text(reasoning.strip()).frame("\n</think>\n\n")
    prompt.text(content)
    for number, call in enumerate(turn.calls):
        if number:
            prompt.frame("\n")
        elif content.strip():
            prompt.frame("\n\n")
        write_call(call, prompt, json_values=json_values)
    prompt.frame("<|im_end|>\n")


def write_call(call: Called, prompt: PromptBuilder, *, json_values: bool) -> None:
    """A call of the history. `json_values`: whether ``true`` is not ``True``."""
    prompt.frame("<tool_call>\n<function=").text(call.name).frame(">\n")
    if call.value is None:
        prompt.text(call.arguments + "\n")
    for name, value in (call.value or {}).items():
        prompt.text(f"<parameter={name}>\n{written(value, json_values=json_values)}\n</parameter>\n")
    prompt.frame("</function>\n</tool_call>")


def written(value: Any, *, json_values: bool) -> str:
    """A value in a prompt: text as it is, objects and arrays as JSON, others as JSON or as Python."""
    if isinstance(value, str):
        return value
    return dumps(value) if json_values or isinstance(value, dict | list) else str(value)


def _result(turns: Sequence[Turn], place: int, prompt: PromptBuilder) -> None:
    """A tool's result; results that follow each other are one user message."""
    if place and turns[place - 1].role != "tool":
        prompt.frame("<|im_start|>user")
    prompt.frame("\n<tool_response>\n").text(turns[place].text.strip()).frame("\n</tool_response>")
    if place == len(turns) - 1 or turns[place + 1].role != "tool":
        prompt.frame("<|im_end|>\n")


_OURS: Final = ("<|im_start|>", "<function=example_function_name>", "do_vision_count", "enable_thinking")
_SIZE: Final = r"\d+(\.\d+)?B(-A\d+(\.\d+)?B)?"


def _family(
    name: str, repo: str, *template: str, lacks: tuple[str, ...], thinks: bool = True, later: bool = False
) -> Family:
    """`thinks`: unless it is told otherwise. `later`: with what Qwen3.6 changed."""
    return Family(
        name=name,
        repos=(rf"(Qwen|unsloth)/{repo}{COPIES}",),
        kind=HYBRID,
        marks=("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
        template=(*_OURS, *template),
        template_lacks=lacks,
        render=_renderer(json_values=later, preserves=later),
        grammar=think_and_call(codec=function_xml(None if later else PYTHON_WORDS), before_call=BEFORE_CALL),
        header=HEADER,
        stops=STOPS,
        efforts=on_or_off(default=thinks),
        tools=True,
    )


FAMILIES: Final = (
    # The smallest do not reason unless they are told to.
    _family(
        "qwen3.5-small",
        r"Qwen3\.5-(0\.8|2)B",
        "enable_thinking is true",
        lacks=("preserve_thinking",),
        thinks=False,
    ),
    _family(
        "qwen3.5",
        rf"Qwen3\.5-{_SIZE}",
        "enable_thinking is false",
        lacks=("preserve_thinking", "reasoning_effort"),
    ),
    _family(
        "qwen3.6",
        rf"Qwen3\.6-{_SIZE}",
        "enable_thinking is false",
        "preserve_thinking",
        lacks=("reasoning_effort",),
        later=True,
    ),
)
