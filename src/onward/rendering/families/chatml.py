"""What the families share that write ``<|im_start|>role``: their replies."""

from onward.rendering.codecs.call import Codec
from onward.rendering.codecs.json_call import json_call
from onward.rendering.parsing.grammar import (
    NEWLINE,
    NEWLINES,
    Edge,
    Grammar,
    Says,
    State,
    Trim,
)

HEADER = "<|im_start|>assistant\n"
STOPS = ("<|im_end|>", "<|endoftext|>")


def think_and_call(
    *,
    codec: Codec | None = None,
    thinks: bool = True,
    calls: bool = True,
    before_call: Trim = NEWLINE,
    after_thought: Trim = NEWLINES,
    keeps: frozenset[str] = frozenset(),
) -> Grammar:
    r"""Replies of the form ``<think>\n…\n</think>\n\n…\n<tool_call>\n…\n</tool_call>``.

    Every part may be missing, or come again. A prompt may have begun with ``<think>``, or with a
    whole thought. Text may stand behind a call (TH-7). A reply may end in a thought: models do.
    `keeps`: marks that are part of a call.
    """
    think = {"<think>": Edge(to="reasoning", lead=NEWLINES)} if thinks else {}
    call = {"<tool_call>": Edge(to="call", trail=before_call)} if calls else {}
    done = {"</think>": Edge(to="answer", trail=NEWLINES, lead=after_thought)} if thinks else {}
    states = {
        "start": State(says=Says.SPACE, edges=think | call, otherwise="answer", ends=True),
        "reasoning": State(says=Says.REASONING, edges=done, ends=True),
        "answer": State(says=Says.CONTENT, edges=think | call, ends=True),
        "call": State(says=Says.CALL, edges={"</tool_call>": Edge(to="called", close=True)}, keeps=keeps),
        "called": State(says=Says.SPACE, edges=think | call, otherwise="answer", ends=True),
    }
    return Grammar(start="start", states=states, codec=codec or json_call())
