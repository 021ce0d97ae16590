"""Qwen3.5, Qwen3.6 and Qwen3.8."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onward.rendering.codecs.bare import PYTHON_WORDS
from onward.rendering.codecs.call import dumps
from onward.rendering.codecs.function_xml import function_xml
from onward.rendering.families.chatml import HEADER, STOPS, think_and_call
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, Efforts, Family, Render, on_or_off
from onward.rendering.families.images import QWEN, write_content
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


_INSTRUCTIONS: Final[Mapping[Any, str]] = {
    "xhigh": "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in "
    "the final answer.",
    "low": "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion without unnecessary elaboration.",
}


def _renderer(minor: int) -> Render:
    """The renderer of Qwen3.`minor`.

    6: arguments are written as JSON, and earlier thoughts may be kept. 8: they are, unless the caller
    says otherwise; the reasoning effort is a sentence; thoughts inside the content stay there.
    """

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = conversation.turns
        instruction = _INSTRUCTIONS.get(conversation.effort, "") if minor >= 8 else ""
        _opening(conversation, prompt, instruction=instruction, keeps_empty=minor < 8)
        keeps = minor >= 6 and conversation.flag("preserve_thinking", default=minor >= 8)
        asked = _last_question(turns)
        for place, turn in enumerate(turns):
            if turn.role == "user" or (turn.role == "system" and place):
                prompt.frame(f"<|im_start|>{turn.role}\n")
                write_content(turn, prompt, QWEN)
                prompt.frame("<|im_end|>\n")
            elif turn.role == "assistant":
                _assistant(turn, prompt, thinks=keeps or place > asked, minor=minor)
            elif turn.role == "tool":
                _result(turns, place, prompt)
        if conversation.generate:
            prompt.frame(HEADER).reply()
            prompt.frame("<think>\n" if conversation.effort else "<think>\n\n</think>\n\n")

    return render


def _opening(
    conversation: Conversation, prompt: PromptBuilder, *, instruction: str, keeps_empty: bool
) -> None:
    """The first system message, behind the tools."""
    turns = conversation.turns
    system = turns[0].text.strip() if turns and turns[0].role == "system" else None
    if conversation.tools:
        prompt.frame("<|im_start|>system\n")
        if instruction:
            prompt.frame(instruction + "\n\n")
        prompt.frame("# Tools\n\nYou have access to the following functions:\n\n<tools>")
        for tool in conversation.tools:
            prompt.text("\n" + dumps(tool))
        prompt.frame("\n</tools>" + HOW_TO_CALL)
        if system:
            prompt.text("\n\n" + system)
        prompt.frame("<|im_end|>\n")
        return
    parts = [part for part in (instruction, system) if part]
    if parts or (keeps_empty and system is not None):
        prompt.frame("<|im_start|>system\n").text("\n\n".join(parts)).frame("<|im_end|>\n")


def _last_question(turns: Sequence[Turn]) -> int:
    """The place of the last user message that is no wrapped tool result."""
    for place in range(len(turns) - 1, -1, -1):
        text = turns[place].text.strip()
        wrapped = text.startswith("<tool_response>") and text.endswith("</tool_response>")
        if turns[place].role == "user" and not wrapped:
            return place
    return len(turns) - 1


def _assistant(turn: Turn, prompt: PromptBuilder, *, thinks: bool, minor: int) -> None:
    content = turn.text.strip()
    reasoning = turn.reasoning
    if reasoning is None:
        reasoning, content = split_thought(content) if minor < 8 else ("", content)
    prompt.frame(HEADER).reply()
    if thinks:
        prompt.frame("<think>\n").text(reasoning.strip()).frame("\n</think>\n\n")
    prompt.text(content)
    for number, call in enumerate(turn.calls):
        if number:
            prompt.frame("\n")
        elif content.strip():
            prompt.frame("\n\n")
        write_call(call, prompt, json_values=minor >= 6)
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
    name: str, repo: str, minor: int, *template: str, lacks: tuple[str, ...], efforts: Efforts
) -> Family:
    return Family(
        name=name,
        repos=(rf"(Qwen|unsloth)/{repo}{COPIES}",),
        kind=HYBRID,
        marks=("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
        template=(*_OURS, *template),
        template_lacks=lacks,
        render=_renderer(minor),
        grammar=think_and_call(
            codec=function_xml(None if minor >= 6 else PYTHON_WORDS), before_call=BEFORE_CALL
        ),
        header=HEADER,
        stops=STOPS,
        efforts=efforts,
        tools=True,
        images=QWEN,
    )


_EFFORTS_38: Final = Efforts(
    values={True: "xhigh", False: False, "none": False, "low": "low", "medium": "medium", "xhigh": "xhigh"},
    default="xhigh",
    switch="enable_thinking",
)

FAMILIES: Final = (
    # The smallest do not reason unless they are told to.
    _family(
        "qwen3.5-small",
        r"Qwen3\.5-(0\.8|2)B",
        5,
        "enable_thinking is true",
        lacks=("preserve_thinking",),
        efforts=on_or_off(default=False),
    ),
    _family(
        "qwen3.5",
        rf"Qwen3\.5-{_SIZE}",
        5,
        "enable_thinking is false",
        lacks=("preserve_thinking", "reasoning_effort"),
        efforts=on_or_off(),
    ),
    _family(
        "qwen3.6",
        rf"Qwen3\.6-{_SIZE}",
        6,
        "enable_thinking is false",
        "preserve_thinking",
        lacks=("reasoning_effort",),
        efforts=on_or_off(),
    ),
    _family(
        "qwen3.8",
        rf"Qwen3\.8-({_SIZE}|Flash-Next)",
        8,
        "preserve_thinking",
        "reasoning_effort",
        "Reasoning effort is set to xhigh.",
        lacks=(),
        efforts=_EFFORTS_38,
    ),
)
