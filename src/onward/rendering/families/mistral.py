"""Mistral's models with the tekken tokenizer: Nemo, Small 3 to 4, Ministral 3."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from onward.rendering.codecs import mistral
from onward.rendering.codecs.call import CodecError, dumps, loads
from onward.rendering.families import mistral_prompts
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import (
    HYBRID,
    INSTRUCT,
    NO_EFFORTS,
    REASONING,
    Efforts,
    Family,
    Render,
)
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import END, Edge, Grammar, Says, State
from onward.rendering.prompt import PromptBuilder

_CALL, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the versions of the format."""

    system: Callable[[str], str] | str | None = None
    """The system message if the caller sent none; of today's date, if it names it."""
    inline_system: bool = False
    """The system message is the beginning of the last user message."""
    tools: str = "first"
    """Which user message the tools stand in front of, or `system`: behind the system message."""
    listed: bool = False
    """Calls are a list of objects, results objects or with an ID."""
    identified: bool = False
    """Calls and results have an ID in marks of their own."""
    text_with_calls: bool = True
    thinks: bool = False
    settings: bool = False
    """The reasoning effort stands behind the tools."""
    merges: bool = True
    """Messages of the same role are one."""


class _Message(msgspec.Struct, kw_only=True):
    """One or several turns of the same role."""

    role: str
    parts: list[tuple[str, str]]
    """`text` and `think`, in order."""
    calls: list[Called]
    call_id: str | None


def _renderer(form: _Format) -> Render:
    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        _render(form, conversation, prompt)

    return render


def _render(form: _Format, conversation: Conversation, prompt: PromptBuilder) -> None:
    prompt.frame("<s>")
    turns = list(conversation.turns)
    inline = ""
    if form.inline_system:
        inline = "\n\n".join([turn.text for turn in turns if turn.role == "system"])
        turns = [turn for turn in turns if turn.role != "system"]
    elif form.system is not None and not (turns and turns[0].role == "system"):
        prompt.frame("[SYSTEM_PROMPT]" + _default(form.system, conversation) + "[/SYSTEM_PROMPT]")
    messages = _messages(form, turns)
    asked = [place for place, message in enumerate(messages) if message.role == "user"]
    with_tools = {"first": asked[:1], "last": asked[-1:]}.get(form.tools, [])
    if form.tools == "system":
        if messages and messages[0].role == "system":
            _system(messages.pop(0), prompt)
        _tools(form, conversation, prompt)
    if inline and not asked:
        prompt.frame("[INST]").text(inline).frame("[/INST]")
    for place, message in enumerate(messages):
        if place in with_tools:
            _tools(form, conversation, prompt)
        if message.role == "user":
            before = inline + "\n\n" if inline and place == asked[-1] else ""
            prompt.frame("[INST]").text(before + _text(message)).frame("[/INST]")
        elif message.role == "assistant":
            _assistant(form, message, prompt)
        elif message.role == "tool":
            _result(form, message, prompt)
        else:
            _system(message, prompt)
    if conversation.generate:
        prompt.reply()


def _default(system: Callable[[str], str] | str, conversation: Conversation) -> str:
    if isinstance(system, str):
        return system
    return system(time.strftime("%Y-%m-%d", time.localtime(conversation.clock.unix())))


def _messages(form: _Format, turns: Sequence[Turn]) -> list[_Message]:
    """The turns, those of the same role joined where the format does that."""
    messages: list[_Message] = []
    for turn in turns:
        last = messages[-1] if messages else None
        joins = form.merges and turn.role in ("user", "assistant")
        if last is None or not joins or last.role != turn.role:
            last = _Message(role=turn.role, parts=[], calls=[], call_id=turn.call_id)
            messages.append(last)
        if form.thinks and turn.reasoning:
            last.parts.append(("think", turn.reasoning))
        if turn.content or (turn.content is not None and not (form.thinks and turn.reasoning)):
            if last.parts and last.parts[-1][0] == "text":
                last.parts[-1] = ("text", f"{last.parts[-1][1]}\n\n{turn.content}")
            else:
                last.parts.append(("text", turn.content))
        last.calls.extend(turn.calls)
    return messages


def _text(message: _Message) -> str:
    return "".join([text for kind, text in message.parts if kind == "text"])


def _system(message: _Message, prompt: PromptBuilder) -> None:
    prompt.frame("[SYSTEM_PROMPT]").text(_text(message)).frame("[/SYSTEM_PROMPT]")


def _tools(form: _Format, conversation: Conversation, prompt: PromptBuilder) -> None:
    if conversation.tools:
        prompt.frame("[AVAILABLE_TOOLS]").text(dumps(list(conversation.tools))).frame("[/AVAILABLE_TOOLS]")
    if form.settings:
        prompt.frame("[MODEL_SETTINGS]").text(f'{{"reasoning_effort": "{conversation.effort}"}}')
        prompt.frame("[/MODEL_SETTINGS]")


def _assistant(form: _Format, message: _Message, prompt: PromptBuilder) -> None:
    prompt.reply()
    if form.text_with_calls or not message.calls:
        for kind, text in message.parts:
            if kind == "think":
                prompt.frame("[THINK]").text(text).frame("[/THINK]")
            else:
                prompt.text(text)
    if form.listed and message.calls:
        listed = [_object(call) for call in message.calls]
        prompt.frame(_CALL).text(dumps(listed))
    else:
        for call in message.calls:
            prompt.frame(_CALL).text(call.name)
            if form.identified and (identity := _identity(call.id)):
                prompt.frame(_ID).text(identity)
            prompt.frame(_ARGS).text(call.json)
    prompt.frame("</s>")


def _object(call: Called) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": call.name,
        "arguments": call.arguments if call.value is None else call.value,
    }
    if identity := _identity(call.id):
        written["id"] = identity
    return written


def _result(form: _Format, message: _Message, prompt: PromptBuilder) -> None:
    text = _text(message)
    identity = _identity(message.call_id or "")
    prompt.frame("[TOOL_RESULTS]")
    if form.inline_system:
        prompt.text(dumps({"content": _json_or_text(text), "call_id": identity}))
    elif form.listed or form.identified:
        prompt.text(identity).frame("[TOOL_CONTENT]").text(text)
    else:
        prompt.text(text)
    prompt.frame("[/TOOL_RESULTS]")


def _json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except CodecError:
        return text


def _identity(identity: str) -> str:
    """An ID as these models know it: nine letters and digits. Others are made so, each its own way."""
    letters = re.sub(r"[^a-zA-Z0-9]", "", identity)
    return letters if len(letters) == 9 or not letters else letters[-9:].rjust(9, "0")


def _grammar(*, named: bool, thinks: bool) -> Grammar:
    """`named`: calls may be a name and arguments, besides a list."""
    keeps = frozenset({_ARGS, _ID}) if named else frozenset[str]()
    edges = {_CALL: Edge(to="call")}
    if thinks:
        edges["[THINK]"] = Edge(to="reasoning")
    states = {
        "content": State(says=Says.CONTENT, edges=edges, ends=True),
        "call": State(
            says=Says.CALL,
            keeps=keeps,
            edges={_CALL: Edge(to="call", close=True), END: Edge(to="done", close=True)},
        ),
        "done": State(says=Says.SPACE, ends=True),
    }
    if thinks:
        states["reasoning"] = State(
            says=Says.REASONING, keeps=frozenset({_CALL, *keeps}), edges={"[/THINK]": Edge(to="content")}
        )
    return Grammar(start="content", states=states, codec=mistral.call)


def _family(
    name: str,
    repos: Sequence[str],
    template: Sequence[str],
    form: _Format,
    *,
    kind: str = INSTRUCT,
    efforts: Efforts = NO_EFFORTS,
) -> Family:
    named = not form.listed
    marks = ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", _CALL, "[TOOL_RESULTS]"]
    if not form.inline_system:
        marks.append("[SYSTEM_PROMPT]")
    if named:
        marks.append(_ARGS)
    if form.thinks:
        marks += ["[THINK]", "[/THINK]"]
    return Family(
        name=name,
        repos=tuple(f"[^/]+/{repo}{COPIES}" for repo in repos),
        kind=kind,
        marks=tuple(marks),
        template=tuple(template),
        render=_renderer(form),
        grammar=_grammar(named=named, thinks=form.thinks),
        header="[/INST]",
        stops=("</s>",),
        efforts=efforts,
        tools=True,
    )


def _ministral(size: str) -> Family:
    called = f"Ministral-3-{size}-Instruct-2512"
    return _family(
        f"ministral-3-{size.lower()}-instruct",
        [rf"(mistralai_)?{called}"],
        [f"You are {called}", "[AVAILABLE_TOOLS]", "[ARGS]"],
        _Format(system=mistral_prompts.le_chat(called, "2023-10-01")),
    )


FAMILIES: Final = (
    _family(
        "mistral-nemo",
        [r"(mistralai_)?Mistral-Nemo-Instruct-2407"],
        ["[TOOL_CALLS][", '[TOOL_RESULTS]{"content": ', "[INST]", "Tool call IDs should be alphanumeric"],
        _Format(inline_system=True, tools="last", listed=True, text_with_calls=False),
    ),
    _family(
        "mistral-small-3.2",
        [r"(mistralai_)?Mistral-Small-3\.2-24B-Instruct-2506"],
        ["You are Mistral Small 3,", "[CALL_ID]", "[TOOL_CONTENT]"],
        _Format(system=mistral_prompts.small_32, tools="last", identified=True),
    ),
    _family(
        "mistral-small-3.1",
        [r"(mistralai_)?Mistral-Small-(3\.1-)?24B-Instruct-(2501|2503)"],
        ["You are Mistral Small 3,", "[SYSTEM_PROMPT]"],
        _Format(system=mistral_prompts.small_31, tools="last", listed=True),
    ),
    _family(
        "mistral-small-4",
        [r"(mistralai_)?Mistral-Small-4-119B-2603"],
        ["[MODEL_SETTINGS]", "reasoning_effort", "Mistral-Small-4"],
        _Format(
            system=mistral_prompts.le_chat("Mistral-Small-4-119B-2603", "Friday, November 1, 2024"),
            thinks=True,
            settings=True,
        ),
        kind=HYBRID,
        efforts=Efforts(values={"none": "none", "high": "high", True: "high", False: "none"}, default="none"),
    ),
    _family(
        "ministral-3-reasoning",
        [r"(mistralai_)?Ministral-3-\d+B-Reasoning-2512"],
        ["# HOW YOU SHOULD THINK AND ANSWER", "[AVAILABLE_TOOLS]", "[ARGS]", "[THINK]"],
        _Format(system=mistral_prompts.REASONING, tools="system", thinks=True, merges=False),
        kind=REASONING,
    ),
    _ministral("14B"),
    _ministral("8B"),
    _ministral("3B"),
)
