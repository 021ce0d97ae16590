"""MiniMax-M2 to MiniMax-M2.7."""

import re
from collections.abc import Sequence
from typing import Final

from onward.rendering.codecs.call import dumps
from onward.rendering.codecs.invoke_xml import invoke_xml
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import REASONING, Family, Render
from onward.rendering.families.qwen35 import written
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import NEWLINE, Edge, Grammar, Says, State, Trim
from onward.rendering.prompt import PromptBuilder

_HEADER: Final = "]~b]ai\n"
_BEFORE_TOOLS: Final = (
    "\n\n# Tools\nYou may call one or more tools to assist with the user query.\n"
    "Here are the tools available in JSONSchema format:\n\n<tools>\n"
)
_AFTER_TOOLS: Final = (
    "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:\n\n"
    '<minimax:tool_call>\n<invoke name="tool-name-1">\n'
    '<parameter name="param-key-1">param-value-1</parameter>\n'
    '<parameter name="param-key-2">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>'
)


def _renderer(identity: str) -> Render:
    """`identity`: the system message where a conversation has none."""

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = conversation.turns
        prompt.frame("]~!b[]~b]system\n")
        system = turns[0].text if turns and turns[0].role == "system" else ""
        if not system:
            option = conversation.options.get("model_identity")
            system = option if isinstance(option, str) else identity
        prompt.text(system)
        if conversation.tools:
            prompt.frame(_BEFORE_TOOLS)
            for tool in conversation.tools:
                prompt.frame("<tool>").text(dumps(tool.get("function"))).frame("</tool>\n")
            prompt.frame(_AFTER_TOOLS)
        prompt.frame("[e~[\n")
        asked = max((place for place, turn in enumerate(turns) if turn.role == "user"), default=-1)
        for place, turn in enumerate(turns):
            if turn.role == "assistant":
                _assistant(turn, prompt, recent=place > asked)
            elif turn.role == "tool":
                _result(turns, place, prompt)
            elif turn.role == "user" or place:
                prompt.frame(f"]~b]{turn.role}\n").text(turn.text).frame("[e~[\n")
        if conversation.generate:
            prompt.frame(_HEADER).reply().frame("<think>\n")

    return render


def _assistant(turn: Turn, prompt: PromptBuilder, *, recent: bool) -> None:
    content, reasoning = turn.text, turn.reasoning
    if reasoning is None:
        reasoning, content = _split(content)
    prompt.frame(_HEADER).reply()
    if reasoning and recent:
        prompt.frame("<think>\n").text(reasoning).frame("\n</think>\n\n")
    prompt.text(content)
    if turn.calls:
        prompt.frame("\n<minimax:tool_call>\n")
        for call in turn.calls:
            _call(call, prompt)
        prompt.frame("</minimax:tool_call>")
    prompt.frame("[e~[\n")


def _call(call: Called, prompt: PromptBuilder) -> None:
    prompt.text(f'<invoke name="{call.name}">\n')
    if call.value is None:
        prompt.text(call.arguments + "\n")
    for name, value in (call.value or {}).items():
        prompt.text(f'<parameter name="{name}">{written(value, json_values=True)}</parameter>\n')
    prompt.text("</invoke>\n")


def _result(turns: Sequence[Turn], place: int, prompt: PromptBuilder) -> None:
    """A tool's result; results that follow each other are one message."""
    if not place or turns[place - 1].role != "tool":
        prompt.frame("]~b]tool")
    prompt.frame("\n<response>").text(turns[place].text).frame("</response>")
    if place == len(turns) - 1 or turns[place + 1].role != "tool":
        prompt.frame("[e~[\n")


def _split(content: str) -> tuple[str, str]:
    """Reasoning that a caller sent back inside the content, and the rest."""
    if "</think>" not in content:
        return "", content
    before, _, _ = content.partition("</think>")
    reasoning = before.strip("\n").rpartition("<think>")[2].strip("\n")
    return reasoning, content.rpartition("</think>")[2].strip("\n")


def _grammar() -> Grammar:
    call = {"<minimax:tool_call>": Edge(to="call", trail=NEWLINE)}
    done = {"</think>": Edge(to="answer", trail=NEWLINE, lead=Trim("\n", 2))}
    think = {"<think>": Edge(to="reasoning", lead=NEWLINE)}
    states = {
        "start": State(says=Says.SPACE, edges=think | call, otherwise="answer", ends=True),
        "reasoning": State(says=Says.REASONING, edges=done, ends=True),
        "answer": State(says=Says.CONTENT, edges=call, ends=True),
        "call": State(says=Says.CALL, edges={"</minimax:tool_call>": Edge(to="called", close=True)}),
        "called": State(says=Says.SPACE, edges=call, otherwise="answer", ends=True),
    }
    return Grammar(start="start", states=states, codec=invoke_xml)


def _family(version: str, identity: str) -> Family:
    return Family(
        name=f"minimax-m{version}",
        repos=(rf"(MiniMaxAI|unsloth)/MiniMax-M{re.escape(version)}{COPIES}",),
        kind=REASONING,
        marks=("]~!b[", "]~b]", "[e~[", "<think>", "</think>"),
        template=("]~!b[", "<minimax:tool_call>", identity),
        render=_renderer(identity),
        grammar=_grammar(),
        header=_HEADER,
        stops=("[e~[",),
        tools=True,
    )


_NAMED: Final = "You are a helpful assistant. Your name is MiniMax-M{0} and is built by MiniMax."

FAMILIES: Final = (
    _family("2", "You are MiniMax-M2, a helpful AI assistant built by MiniMax. Knowledge cutoff: 2025-06."),
    *(_family(version, _NAMED.format(version)) for version in ("2.1", "2.5", "2.7")),
)
