r"""Replies of a model that is of no known family: read by what its chat template writes.

Two things are common enough to be read in any model whose template has them: a thought between
``<think>`` and ``</think>``, and calls between ``<tool_call>`` and ``</tool_call>`` that are JSON
objects with a name and arguments. Everything else is text.
"""

import re
from typing import Final

from onward.rendering.families.chatml import think_and_call
from onward.rendering.parsing.grammar import SPACES, Grammar

_THOUGHT: Final = re.compile(r"<think>\s*(</think>\s*)?\Z")


def reply_grammar(template: str) -> tuple[Grammar, bool]:
    """The grammar for a template, and whether it has tool calls."""
    calls = "<tool_call>" in template and '"name"' in template and '"arguments"' in template
    grammar = think_and_call(
        thinks="<think>" in template, calls=calls, before_call=SPACES, after_thought=SPACES
    )
    return grammar, calls


def begun_thought(prompt: str) -> str:
    """The thought that a rendered prompt has begun, or begun and ended, for the reply."""
    found = _THOUGHT.search(prompt, max(0, len(prompt) - 200))
    return found.group() if found else ""
