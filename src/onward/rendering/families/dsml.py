"""What DeepSeek V3.2, V4 and V4.1 share: their calls, and their replies."""

from collections.abc import Sequence
from typing import Final

import msgspec

from onward.rendering.codecs.call import Json, dumps
from onward.rendering.codecs.dsml import DSML, dsml_calls
from onward.rendering.families.conversation import Called, Turn
from onward.rendering.families.deepseek_v31 import FOREIGN
from onward.rendering.parsing.grammar import Edge, Grammar, Says, State, Trim
from onward.rendering.prompt import PromptBuilder


class Tags(msgspec.Struct, frozen=True):
    """How a version spells its tags."""

    block: str
    """The name of the block around the calls."""
    prefix: str = DSML
    """What stands in front of every name."""

    @property
    def opening(self) -> str:
        return f"<{self.prefix}{self.block}>"

    @property
    def closing(self) -> str:
        return f"</{self.prefix}{self.block}>"


def write_calls(calls: Sequence[Called], tags: Tags, prompt: PromptBuilder) -> None:
    """The calls of an earlier message. Arguments that are no object are one text parameter."""
    if not calls:
        return
    prefix = tags.prefix
    prompt.frame(f"\n\n{tags.opening}\n")
    for number, call in enumerate(calls):
        if number:
            prompt.frame("\n")
        prompt.frame(f'<{prefix}invoke name="').text(call.name).frame('">\n')
        values: Json = {"arguments": call.arguments} if call.value is None else call.value
        for place, (name, value) in enumerate(values.items()):
            if place:
                prompt.frame("\n")
            is_text = isinstance(value, str)
            prompt.frame(f'<{prefix}parameter name="').text(name)
            prompt.frame(f'" string="{"true" if is_text else "false"}">')
            prompt.text(value if is_text else dumps(value)).frame(f"</{prefix}parameter>")
        prompt.frame(f"\n</{prefix}invoke>")
    prompt.frame(f"\n{tags.closing}")


def last_question(turns: Sequence[Turn], *roles: str) -> int:
    """The place of the last message of these roles; -1 if there is none."""
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].role in roles:
            return place
    return -1


_BEFORE_CALLS: Final = Trim("\n", 2)


def grammar(tags: Tags) -> Grammar:
    """Text is given word for word, but for the empty line in front of calls.

    A thought must be closed before calls: a block inside it is a part of the thought.
    """
    think = {"<think>": Edge(to="reasoning"), "</think>": Edge(to="answer")}
    block = {tags.opening: Edge(to="call", trail=_BEFORE_CALLS)}
    states = {
        "start": State(says=Says.SPACE, edges=think | block, otherwise="answer", ends=True),
        "reasoning": State(says=Says.REASONING, edges={"</think>": Edge(to="answer")}),
        "answer": State(says=Says.CONTENT, edges=block, ends=True),
        "call": State(says=Says.CALL, edges={tags.closing: Edge(to="after", close=True)}),
        "after": State(says=Says.SPACE, edges=block, otherwise="answer", ends=True),
    }
    return Grammar(
        start="start",
        states=states,
        codec=dsml_calls(tags.prefix),
        plain=frozenset({DSML}),
        foreign=FOREIGN | {"<｜System｜>", "<｜latest_reminder｜>"},
    )
