"""gpt-oss: the harmony format."""

import time
from collections.abc import Sequence
from typing import Final

from onward.core.failure import invalid
from onward.rendering.codecs import harmony
from onward.rendering.codecs.call import dumps
from onward.rendering.families import typescript
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.family import REASONING, Efforts, Family
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import END, Edge, Grammar, Says, State
from onward.rendering.prompt import PromptBuilder

_HEADER: Final = "<|start|>assistant"
_IDENTITY: Final = "You are ChatGPT, a large language model trained by OpenAI."
_CHANNELS: Final = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
_TOOL_CHANNEL: Final = "\nCalls to these tools must go to the commentary channel: 'functions'."


def _render(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = list(conversation.turns)
    _system(conversation, prompt)
    instructions = turns.pop(0).text if turns and turns[0].role == "system" else ""
    _developer(instructions, conversation, prompt)
    for place, turn in enumerate(turns):
        if turn.role == "assistant":
            last = place == len(turns) - 1 and not conversation.generate
            _assistant(turns, place, prompt, last=last)
        elif turn.role == "tool":
            name = _called_name(turns, place)
            prompt.frame("<|start|>").text(f"functions.{name}")
            prompt.frame(" to=assistant<|channel|>commentary<|message|>")
            prompt.text(dumps(turn.text)).frame("<|end|>")
        elif turn.role == "user":
            prompt.frame("<|start|>user<|message|>").text(turn.text).frame("<|end|>")
        else:
            # The official template drops a system message that is not the first.
            prompt.frame("<|start|>developer<|message|># Instructions\n\n").text(turn.text)
            prompt.frame("\n\n<|end|>")
    if conversation.generate:
        prompt.frame(_HEADER).reply()


def _system(conversation: Conversation, prompt: PromptBuilder) -> None:
    identity = conversation.options.get("model_identity")
    date = time.strftime("%Y-%m-%d", time.localtime(conversation.clock.unix()))
    prompt.frame("<|start|>system<|message|>").text(identity if isinstance(identity, str) else _IDENTITY)
    prompt.frame(f"\nKnowledge cutoff: 2024-06\nCurrent date: {date}\n\n")
    prompt.frame(f"Reasoning: {conversation.effort}\n\n{_CHANNELS}")
    if conversation.tools:
        prompt.frame(_TOOL_CHANNEL)
    prompt.frame("<|end|>")


def _developer(instructions: str, conversation: Conversation, prompt: PromptBuilder) -> None:
    if not instructions and not conversation.tools:
        return
    prompt.frame("<|start|>developer<|message|>")
    if instructions:
        prompt.frame("# Instructions\n\n").text(instructions).frame("\n\n")
    if conversation.tools:
        prompt.frame("# Tools\n\n").text(typescript.namespace("functions", conversation.tools))
    prompt.frame("<|end|>")


def _assistant(turns: Sequence[Turn], place: int, prompt: PromptBuilder, *, last: bool) -> None:
    turn = turns[place]
    prompt.frame(_HEADER).reply()
    if not turn.calls:
        if last and turn.reasoning is not None:
            _analysis(turn.reasoning, prompt)
        prompt.frame("<|channel|>final<|message|>").text(turn.text).frame("<|return|>" if last else "<|end|>")
        return
    # Reasoning is part of a prompt only until the final message of the same answer.
    answered = any(later.role == "assistant" and not later.calls for later in turns[place + 1 :])
    thought = turn.reasoning or turn.text
    if thought and not answered:
        _analysis(thought, prompt)
    if turn.reasoning and turn.content:
        # The official template refuses both at once.
        prompt.frame("<|channel|>commentary<|message|>").text(turn.content).frame("<|end|>").frame(_HEADER)
    for number, call in enumerate(turn.calls):
        # The official template writes the first call alone.
        if number:
            prompt.frame(_HEADER)
        prompt.frame(" to=").text(f"functions.{call.name}").frame("<|channel|>commentary json<|message|>")
        prompt.text(call.json).frame("<|call|>")


def _analysis(text: str, prompt: PromptBuilder) -> None:
    prompt.frame("<|channel|>analysis<|message|>").text(text).frame("<|end|>").frame(_HEADER)


def _called_name(turns: Sequence[Turn], place: int) -> str:
    """The function whose result a tool message is: by its call's ID, else the last one called."""
    turn = turns[place]
    last: str | None = None
    for earlier in reversed(turns[:place]):
        for call in reversed(earlier.calls):
            if turn.call_id is not None and call.id == turn.call_id:
                return call.name
            last = last or call.name
    name = turn.name or last
    if name is None:
        raise invalid(
            "messages",
            "A tool message answers no call: the assistant message with its call must stand before it.",
        )
    return name


def _grammar() -> Grammar:
    next_message = {"<|end|>": Edge(to="between")}
    header = frozenset({"<|channel|>", "<|constrain|>"})
    closed = Edge(to="between", close=True)
    states = {
        "first": State(says=Says.LABEL, keeps=header, edges={"<|message|>": Edge(to=harmony.first_route)}),
        "header": State(says=Says.LABEL, keeps=header, edges={"<|message|>": Edge(to=harmony.next_route)}),
        "reasoning": State(says=Says.REASONING, edges=next_message, ends=True),
        "content": State(says=Says.CONTENT, edges=next_message, ends=True),
        "call": State(
            says=Says.CALL,
            edges={
                "<|call|>": closed,
                "<|end|>": closed,
                "<|return|>": closed,
                END: Edge(to="between", close=True, whole=True),
            },
        ),
        "between": State(says=Says.SPACE, edges={"<|start|>": Edge(to="header")}, ends=True),
    }
    return Grammar(start="first", states=states, codec=harmony.call)


FAMILIES: Final = (
    Family(
        name="gpt-oss",
        repos=(rf"[^/]+/(openai_)?gpt-oss-(safeguard-)?\d+b{COPIES}",),
        kind=REASONING,
        marks=("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
        template=("<|start|>", "Valid channels: analysis, commentary, final", "<|channel|>", "<|return|>"),
        render=_render,
        grammar=_grammar(),
        header=_HEADER,
        stops=("<|return|>", "<|call|>"),
        goes_on=("<|end|>",),
        efforts=Efforts(values={"low": "low", "medium": "medium", "high": "high"}, default="medium"),
        tools=True,
    ),
)
