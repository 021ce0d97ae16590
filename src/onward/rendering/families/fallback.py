r"""Replies of a model that is of no known family: read by what its chat template writes.

Two things are common enough to be read in any model whose template has them: a thought between
``<think>`` and ``</think>``, and calls between ``<tool_call>`` and ``</tool_call>``. What a call
is, the template's own example of one says: a JSON object with a name and arguments,
``<function=f>`` with ``<parameter=k>`` in it, or ``f`` with ``<arg_key>`` and ``<arg_value>``.
Everything else is text.
"""

import re
from collections.abc import Sequence
from typing import Final

from onward.rendering.codecs.arg_key import MARKS, arg_key
from onward.rendering.codecs.bare import PYTHON_WORDS
from onward.rendering.codecs.call import Codec
from onward.rendering.codecs.function_xml import function_xml
from onward.rendering.codecs.json_call import json_call
from onward.rendering.families.chatml import think_and_call
from onward.rendering.parsing.grammar import SPACES, Grammar

_THOUGHT: Final = re.compile(r"<think>\s*(</think>\s*)?\Z")


def reply_grammar(template: str) -> tuple[Grammar, bool]:
    """The grammar for a template, and whether it has tool calls."""
    codec, keeps = _calls(template) if "<tool_call>" in template else (None, ())
    grammar = think_and_call(
        codec=codec,
        thinks="<think>" in template,
        calls=codec is not None,
        before_call=SPACES,
        after_thought=SPACES,
        keeps=frozenset(keeps),
    )
    return grammar, codec is not None


def _calls(template: str) -> tuple[Codec | None, Sequence[str]]:
    """What reads the calls, and the marks in them."""
    if "<function=" in template and "<parameter=" in template:
        return function_xml(PYTHON_WORDS), ()
    if "<arg_key>" in template and "<arg_value>" in template:
        return arg_key, MARKS
    if '"name"' in template and '"arguments"' in template:
        return json_call(), ()
    return None, ()


def begun_thought(prompt: str) -> str:
    """The thought that a rendered prompt has begun, or begun and ended, for the reply."""
    found = _THOUGHT.search(prompt, max(0, len(prompt) - 200))
    return found.group() if found else ""
