"""Qwen3: hybrid, 2507 instruct, 2507 thinking."""

from collections.abc import Sequence
from typing import Final

from onward.rendering.codecs.call import dumps
from onward.rendering.families.chatml import HEADER, STOPS, think_and_call
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, INSTRUCT, REASONING, Family, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.prompt import PromptBuilder

_BEFORE_TOOLS: Final = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_AFTER_TOOLS: Final = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
    "<args-json-object>}\n</tool_call><|im_end|>\n"
)


def _render_hybrid(conversation: Conversation, prompt: PromptBuilder) -> None:
    _messages(conversation, prompt, thinks=True)
    if conversation.generate:
        prompt.frame(HEADER).reply()
        if not conversation.effort:
            prompt.frame("<think>\n\n</think>\n\n")


def _render_instruct(conversation: Conversation, prompt: PromptBuilder) -> None:
    _messages(conversation, prompt, thinks=False)
    if conversation.generate:
        prompt.frame(HEADER).reply()


def _render_thinking(conversation: Conversation, prompt: PromptBuilder) -> None:
    _messages(conversation, prompt, thinks=True)
    if conversation.generate:
        prompt.frame(HEADER).reply().frame("<think>\n")


def _messages(conversation: Conversation, prompt: PromptBuilder, *, thinks: bool) -> None:
    turns = conversation.turns
    _opening(conversation, prompt)
    asked = _last_question(turns)
    for place, turn in enumerate(turns):
        if turn.role == "user" or (turn.role == "system" and place):
            prompt.frame(f"<|im_start|>{turn.role}\n").text(turn.text).frame("<|im_end|>\n")
        elif turn.role == "assistant":
            last = place == len(turns) - 1
            _assistant(turn, prompt, thinks=thinks, recent=place > asked, last=last)
        elif turn.role == "tool":
            _result(turns, place, prompt)


def _opening(conversation: Conversation, prompt: PromptBuilder) -> None:
    """The first system message, and the tools in it."""
    turns = conversation.turns
    system = turns[0].text if turns and turns[0].role == "system" else None
    if conversation.tools:
        prompt.frame("<|im_start|>system\n")
        if system is not None:
            prompt.text(system).frame("\n\n")
        prompt.frame(_BEFORE_TOOLS)
        for tool in conversation.tools:
            prompt.text("\n" + dumps(tool))
        prompt.frame(_AFTER_TOOLS)
    elif system is not None:
        prompt.frame("<|im_start|>system\n").text(system).frame("<|im_end|>\n")


def _last_question(turns: Sequence[Turn]) -> int:
    """The place of the last user message that is no wrapped tool result."""
    for place in range(len(turns) - 1, -1, -1):
        text = turns[place].text
        wrapped = text.startswith("<tool_response>") and text.endswith("</tool_response>")
        if turns[place].role == "user" and not wrapped:
            return place
    return len(turns) - 1


def _assistant(turn: Turn, prompt: PromptBuilder, *, thinks: bool, recent: bool, last: bool) -> None:
    content = turn.text
    prompt.frame(HEADER).reply()
    if thinks:
        reasoning = turn.reasoning
        if reasoning is None:
            reasoning, content = split_thought(content)
        if recent and (last or reasoning):
            prompt.frame("<think>\n").text(reasoning.strip("\n")).frame("\n</think>\n\n")
            content = content.lstrip("\n")
    prompt.text(content)
    for number, call in enumerate(turn.calls):
        if number or content:
            prompt.frame("\n")
        _call(call, prompt)
    prompt.frame("<|im_end|>\n")


def _call(call: Called, prompt: PromptBuilder) -> None:
    prompt.frame("<tool_call>\n").text(f'{{"name": "{call.name}", "arguments": {call.json}}}')
    prompt.frame("\n</tool_call>")


def _result(turns: Sequence[Turn], place: int, prompt: PromptBuilder) -> None:
    """A tool's result; results that follow each other are one user message."""
    if place == 0 or turns[place - 1].role != "tool":
        prompt.frame("<|im_start|>user")
    prompt.frame("\n<tool_response>\n").text(turns[place].text).frame("\n</tool_response>")
    if place == len(turns) - 1 or turns[place + 1].role != "tool":
        prompt.frame("<|im_end|>\n")


def split_thought(content: str) -> tuple[str, str]:
    """Reasoning that a caller sent back inside the content, and the rest."""
    if "</think>" not in content:
        return "", content
    before, _, _ = content.partition("</think>")
    reasoning = before.rstrip("\n").rpartition("<think>")[2].lstrip("\n")
    return reasoning, content.rpartition("</think>")[2].lstrip("\n")


_MARKS: Final = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
_OURS: Final = ("<|im_start|>", "# Tools", "<function-name>", "<args-json-object>", "<tool_response>")

_SIZES: Final = r"[^/]+/(Qwen_)?Qwen3-\d+(\.\d+)?B(-A\d+(\.\d+)?B)?"

FAMILIES: Final = (
    Family(
        name="qwen3-instruct",
        repos=(rf"{_SIZES}-Instruct-2507{COPIES}",),
        kind=INSTRUCT,
        marks=_MARKS,
        template=_OURS,
        template_lacks=("<think>", "<function=", "python_tools"),
        render=_render_instruct,
        grammar=think_and_call(thinks=False),
        header=HEADER,
        stops=STOPS,
        tools=True,
    ),
    Family(
        name="qwen3-thinking",
        repos=(rf"{_SIZES}-Thinking-2507{COPIES}",),
        kind=REASONING,
        marks=_MARKS,
        template=(*_OURS, r"assistant\n<think>\n' }}", "last_query_index"),
        template_lacks=("enable_thinking", "<function="),
        render=_render_thinking,
        grammar=think_and_call(),
        header=HEADER,
        stops=STOPS,
        tools=True,
    ),
    Family(
        name="qwen3",
        repos=(rf"{_SIZES}{COPIES}",),
        kind=HYBRID,
        marks=_MARKS,
        template=(*_OURS, "enable_thinking", "last_query_index"),
        template_lacks=("<function=",),
        render=_render_hybrid,
        grammar=think_and_call(),
        header=HEADER,
        stops=STOPS,
        efforts=on_or_off(),
        tools=True,
    ),
)
