"""DeepSeek V4 (Flash, Pro), its revision of July, and V4.1.

The authority is the encoder in Python that the models come with. A tool's result is a part of the
user's message that follows it; results stand in the order of their calls. Thoughts in front of
the user's last message are left out, unless there are tools.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from onward.rendering.codecs.call import dumps
from onward.rendering.codecs.dsml import DSML
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.deepseek_v31 import BOS, EOS, HEADER, MARKS, USER
from onward.rendering.families.dsml import Tags, grammar, write_calls
from onward.rendering.families.family import HYBRID, Efforts, Family
from onward.rendering.families.repos import COPIES
from onward.rendering.prompt import PromptBuilder

_SYSTEM: Final = "<｜System｜>"
_V4: Final = Tags("tool_calls")
_V41: Final = Tags("calls", f"{DSML} ")
_ABSOLUTE: Final = (
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the "
    "root cause, rigorously stress-testing your logic against all potential paths, edge cases, and "
    "adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting every "
    "intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption "
    "is left unchecked.\n\n"
)
_BEYOND: Final = (
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively "
    "decompose the problem into its most fundamental components, trace every causal chain to its root, and "
    "resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are "
    "certain that no assumption remains unchecked and no error remains undiscovered.\n\n"
)


class _Thinking(msgspec.Struct, frozen=True):
    """An effort: the text in front of everything else."""

    words: str = ""


class _Part(msgspec.Struct):
    """A message as this format has it: of several that make one, the texts."""

    role: str
    texts: list[tuple[str, str | None]]
    """Each with the ID of the call whose result it is."""
    turn: Turn


def _render(conversation: Conversation, prompt: PromptBuilder, *, tags: Tags, system: str) -> None:
    """`system`: the token in front of a system message, if there is one."""
    effort: Any = conversation.effort
    thinks = effort is not False
    parts = _merged(conversation.turns)
    asked = max((place for place, part in enumerate(parts) if part.role == "user"), default=-1)
    kept = bool(conversation.tools)
    prompt.frame(BOS)
    _opening(conversation, parts, prompt, tags=tags, system=system)
    for place, part in enumerate(parts):
        if part.role == "user":
            prompt.frame(USER)
            for number, (text, call_id) in enumerate(part.texts):
                prompt.frame("\n\n" if number else "")
                _text(text, prompt, is_result=call_id is not None)
        elif part.role == "assistant":
            if place == 0 or parts[place - 1].role != "user":
                prompt.reply()
            if thinks and (kept or place > asked):
                prompt.text(part.turn.reasoning or "").frame("</think>")
            prompt.text(part.turn.text)
            write_calls(part.turn.calls, tags, prompt)
            prompt.frame(EOS)
        elif place:
            prompt.frame(system).text(part.turn.text)
        last = place == len(parts) - 1
        if part.role == "user" and (conversation.generate if last else parts[place + 1].role == "assistant"):
            prompt.frame(HEADER).reply()
            prompt.frame("<think>" if thinks and (kept or place >= asked) else "</think>")
        elif last and conversation.generate:
            prompt.reply()


def _opening(
    conversation: Conversation, parts: Sequence[_Part], prompt: PromptBuilder, *, tags: Tags, system: str
) -> None:
    """The effort, the first system message if it comes first, and the tools."""
    effort: Any = conversation.effort
    words = effort.words if isinstance(effort, _Thinking) else ""
    if isinstance(effort, int | float) and not isinstance(effort, bool):
        words = _graded(effort).words
    first = parts[0].turn.text if parts and parts[0].role == "system" else None
    if first is not None or conversation.tools or words:
        prompt.frame(system + words).text(first or "")
    if conversation.tools:
        prompt.frame(_before_tools(tags))
        prompt.text("\n".join([dumps(tool.get("function")) for tool in conversation.tools]))
        prompt.frame(_AFTER_TOOLS)


def _text(text: str, prompt: PromptBuilder, *, is_result: bool) -> None:
    if is_result:
        prompt.frame("<tool_result>").text(text).frame("</tool_result>")
    else:
        prompt.text(text)


def _merged(turns: Sequence[Turn]) -> list[_Part]:
    """Users' messages and results that follow each other as one, results in the order of the calls."""
    parts: list[_Part] = []
    order: dict[str, int] = {}
    for turn in turns:
        if turn.role not in ("user", "tool"):
            parts.append(_Part(turn.role, [], turn))
            continue
        text = (turn.text, (turn.call_id or "") if turn.role == "tool" else None)
        if parts and parts[-1].role == "user":
            parts[-1].texts.append(text)
        else:
            parts.append(_Part("user", [text], turn))
    for part in parts:
        if part.turn.calls:
            order = {call.id: place for place, call in enumerate(part.turn.calls)}
        results = [text for text in part.texts if text[1] is not None]
        results.sort(key=lambda text: order.get(text[1] or "", 0))
        ordered = iter(results)
        part.texts = [text if text[1] is None else next(ordered) for text in part.texts]
    return parts


def _before_tools(tags: Tags) -> str:
    prefix = tags.prefix
    return (
        "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "
        f'invoke tools by writing a "{tags.opening}" block like the following:\n\n{tags.opening}\n'
        f'<{prefix}invoke name="$TOOL_NAME">\n'
        f'<{prefix}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{prefix}parameter>'
        f'\n...\n</{prefix}invoke>\n<{prefix}invoke name="$TOOL_NAME2">\n...\n</{prefix}invoke>\n'
        f"{tags.closing}\n\n"
        'String parameters should be specified as is and set `string="true"`. For all other types (numbers, '
        'booleans, arrays, objects), pass the value in JSON format and set `string="false"`.\n\n'
        "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
        "<think>...</think> BEFORE any tool calls or final response.\n\n"
        "Otherwise, output directly after </think> with tool calls or final response.\n\n"
        "### Available Tool Schemas\n\n"
    )


_AFTER_TOOLS: Final = (
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
)


def _graded(effort: float) -> _Thinking:
    return _Thinking(
        f"Reasoning Effort: {effort:g} "
        "(range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    )


def _efforts(**words: str) -> Efforts:
    """On or off, and levels with their texts."""
    plain = _Thinking()
    values: dict[str | bool, Any] = {True: plain, False: False, "none": False}
    values |= {level: _Thinking(text) for level, text in words.items()}
    return Efforts(values=values, default=plain, switch="thinking")


_GRADED: Final = Efforts(
    values={
        True: _graded(75),
        False: False,
        "none": False,
        "low": _graded(50),
        "high": _graded(75),
        "max": _graded(100),
    },
    default=_graded(75),
    numbers=(1, 100),
    switch="thinking",
)

FAMILIES: Final = (
    Family(
        name="deepseek-v4",
        repos=(rf"[^/]+/DeepSeek-V4(-Flash|-Pro)?{COPIES}",),
        kind=HYBRID,
        marks=MARKS,
        template=(USER, DSML, "tool_calls", "<tool_result>"),
        template_lacks=("Beyond maximum",),
        render=partial(_render, tags=_V4, system=""),
        grammar=grammar(_V4),
        header=HEADER,
        stops=(EOS,),
        efforts=_efforts(high="", max=_ABSOLUTE),
        tools=True,
    ),
    Family(
        name="deepseek-v4-0731",
        repos=(rf"[^/]+/DeepSeek-V4(-Flash|-Pro)?-0731{COPIES}",),
        kind=HYBRID,
        marks=MARKS,
        template=(USER, DSML, "tool_calls", "<tool_result>", "Beyond maximum"),
        render=partial(_render, tags=_V4, system=""),
        grammar=grammar(_V4),
        header=HEADER,
        stops=(EOS,),
        efforts=_efforts(low="", high=_ABSOLUTE, max=_BEYOND),
        tools=True,
    ),
    Family(
        name="deepseek-v4.1",
        repos=(rf"[^/]+/DeepSeek-V4\.1(-Flash|-Pro)?{COPIES}",),
        kind=HYBRID,
        marks=(*MARKS, _SYSTEM),
        template=(USER, _SYSTEM, DSML, "Reasoning Effort: "),
        render=partial(_render, tags=_V41, system=_SYSTEM),
        grammar=grammar(_V41),
        header=HEADER,
        stops=(EOS,),
        efforts=_GRADED,
        tools=True,
    ),
)
