"""Replies, for every family: any cut is the same, nothing raises, nothing is lost or doubled.

The replies are made of the family's own marks, of pieces of its syntax, and of anything else.
"""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import ChoiceDelta, FinishReason, fold, settled
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.parsing.grammar import Says
from onward.rendering.renderer import ReplyOptions
from tests.laws.families import marks_of, renderers
from tests.unit.rendering.families.oracle import TOOLS

PIECES = [
    " ",
    "\n",
    "\n\n",
    "a",
    "hello",
    "é😀",
    "<",
    "</",
    "{",
    "}",
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "f", "parameters": {}}',
    "get_weather",
    "functions.f:0",
    "thought",
    "analysis",
    "commentary to=functions.f ",
    "final",
    "city",
    "[]",
    '[{"name": "f", "arguments": {}}]',
    "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
    '<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n',
    "call:f{a:1}",
]
NAMES = sorted(registry.BY_NAME)
LABELLED = {
    name
    for name in NAMES
    if any(state.says is Says.LABEL for state in registry.BY_NAME[name].grammar.states.values())
}
"""Families whose replies have text that is neither content nor reasoning: names, channels, roles."""


LEVELS = pytest.mark.parametrize("level", [pytest.param(0, id="tokens"), pytest.param(1, id="text")])
"""Marks that are tokens, marks that are spelled."""


def tokens_of(renderer: NativeRenderer):
    """Replies as lists of token IDs."""
    tokenizer = renderer.tokenizer
    words = [*marks_of(renderer.family), *PIECES]
    encoded = [tokenizer.encode(word, control=True) for word in words]
    anything = st.integers(-2, tokenizer.vocab_size + 1).map(lambda token: [token])
    piece = st.sampled_from(encoded) | st.sampled_from(encoded) | anything
    return st.lists(piece, max_size=14).map(lambda pieces: [token for one in pieces for token in one])


def reply(renderer: NativeRenderer, ids: list[int], cuts: list[int], **options) -> list[ChoiceDelta]:
    parser = renderer.reply(ReplyOptions(tools=TOOLS, want_ids=True, want_entries=True, **options))
    deltas, at = [], 0
    for size in cuts:
        for token in ids[at : at + size]:
            parser.push(ScoredToken(token, -0.5, ((token, -0.5),)))
        at += size
        deltas.append(parser.take())
    for token in ids[at:]:
        parser.push(ScoredToken(token, -0.5, ((token, -0.5),)))
    deltas.append(parser.finish(EngineFinish.LENGTH))
    return deltas


def plain(choice: ChoiceDelta):
    """A choice without the IDs of its calls, which are new each time."""
    calls = [(call.index, call.name, call.arguments) for call in choice.tool_calls]
    said = (choice.text, choice.reasoning, calls, choice.finish, choice.plain)
    return (*said, choice.token_ids, choice.entries)


def without_marks(text: str, marks: list[str]) -> str:
    """What is left of a text without marks and white space."""
    return re.sub(
        "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) + r"|\s", "", text
    )


@LEVELS
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_equals_the_whole(name: str, level: int, data: st.DataObject):
    renderer = renderers(name)[level]
    ids = data.draw(tokens_of(renderer))
    stops = data.draw(
        st.lists(st.sampled_from(["lo", "<", "é", "}\n", *marks_of(renderer.family)]), max_size=2)
    )
    options = {
        "stops": stops,
        "separate_reasoning": data.draw(st.booleans()),
        "prefill": data.draw(tokens_of(renderer)) if data.draw(st.booleans()) else [],
    }
    cuts = data.draw(st.lists(st.integers(0, 4), max_size=30))
    deltas = reply(renderer, ids, cuts, **options)
    whole = fold(reply(renderer, ids, [], **options))[0]
    assert plain(fold(deltas)[0]) == plain(whole)
    assert all(delta.finish is None and delta.plain is None for delta in deltas[:-1])
    assert len(whole.token_ids) == len(whole.entries) <= len(ids)


@LEVELS
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_or_doubled(name: str, level: int, data: st.DataObject):
    renderer = renderers(name)[level]
    tokenizer = renderer.tokenizer
    ids = data.draw(tokens_of(renderer))
    choice = fold(reply(renderer, ids, [], separate_reasoning=False))[0]
    ended = next((at for at, token in enumerate(ids) if token in renderer._stops), len(ids))
    raw = b"".join(tokenizer.token_bytes(token) for token in ids[:ended]).decode("utf-8", "replace")
    if choice.plain is not None:
        assert choice.plain.text == raw
        assert settled(choice).text == raw
        assert choice.plain.finish is (FinishReason.STOP if ended < len(ids) else FinishReason.LENGTH)
    marks = [*marks_of(renderer.family), *tokenizer.marks.ids]
    said, given_ = without_marks(choice.text, marks), without_marks(raw, marks)
    if not choice.tool_calls and name not in LABELLED:
        assert said == given_
    else:
        rest = iter(given_)
        assert all(letter in rest for letter in said)
    for place, call in enumerate(choice.tool_calls):
        assert call.index == place
        assert isinstance(json.loads(call.arguments), dict)
        assert call.name
    assert (choice.finish is FinishReason.TOOL_CALLS) == bool(choice.tool_calls)


@LEVELS
@pytest.mark.parametrize("name", NAMES)
def test_random_tokens_never_raise(name: str, level: int):
    """A long reply of anything: no state of any family fails, and time stays linear."""
    renderer = renderers(name)[level]
    tokenizer = renderer.tokenizer
    rng = random.Random(name)
    marks = [token for mark in marks_of(renderer.family) for token in tokenizer.encode(mark, control=True)]
    for size in (3, 30, 300):
        for _ in range(12):
            ids = [
                rng.choice(marks) if rng.random() < 0.6 else rng.randrange(tokenizer.vocab_size)
                for _ in range(size)
            ]
            ids = [token for token in ids if token not in renderer._stops]
            choice = fold(reply(renderer, ids, []))[0]
            raw = b"".join(tokenizer.token_bytes(token) for token in ids).decode("utf-8", "replace")
            assert settled(choice).text == raw or choice.plain is None
