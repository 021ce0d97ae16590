"""Replies, for every family: any cut is the same, nothing raises, nothing is lost or doubled (TH-11).

The same with the real vocabularies and a million tokens is `bench/parse/soak.py`.
"""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import ChoiceDelta, fold
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from tests.laws.accounting import accounts, check_reply, deltas, symbols
from tests.laws.families import marks_of, renderers
from tests.laws.soup import PIECES, Soup
from tests.unit.rendering.families.oracle import TOOLS

NAMES = sorted(registry.BY_NAME)
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


def check_calls(choice: ChoiceDelta) -> None:
    """Every call has a number, an ID of its own, a name and an object."""
    assert [call.index for call in choice.tool_calls] == list(range(len(choice.tool_calls)))
    for call in choice.tool_calls:
        assert call.id
        assert call.name
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.covers("TH-11")
@LEVELS
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_equals_the_whole_and_every_letter_is_accounted_for(
    name: str, level: int, data: st.DataObject
):
    renderer = renderers(name)[level]
    ids = data.draw(tokens_of(renderer))
    stops = data.draw(
        st.lists(st.sampled_from(["lo", "<", "é", "}\n", *marks_of(renderer.family)]), max_size=2)
    )
    prefill = data.draw(tokens_of(renderer)) if data.draw(st.booleans()) else []
    cuts = data.draw(st.lists(st.integers(0, 4), max_size=30))
    check_calls(check_reply(renderer, ids, cuts, stops=stops, prefill=prefill, tools=TOOLS))


@pytest.mark.covers("TH-11")
@LEVELS
@pytest.mark.parametrize("name", NAMES)
def test_sound_replies_with_a_few_places_changed(name: str, level: int):
    renderer = renderers(name)[level]
    rng = random.Random(name)
    read = 0
    tokens = (1500, 6000)[level]  # a mark that is spelled takes many
    for ids, options in Soup(renderer, seed=level).replies(tokens):
        whole = check_reply(renderer, ids, [rng.choice((0, 1, 1, 2, 5)) for _ in ids], **options)
        check_calls(whole)
        read += whole.plain is None
    assert read, "no reply was of the format: nothing is tried behind the first mark"


@pytest.mark.parametrize("name", ["deepseek-v4.1", "gemma-4", "gpt-oss", "inkling", "kimi-k2.5", "qwen3.5"])
def test_the_accounts_notice_a_letter_that_is_lost_or_doubled(name: str):
    """Almost always: one that is all of a text between two marks may be a label."""
    renderer = renderers(name)[0]
    rng = random.Random(name)
    tried = noticed = 0
    for ids, options in Soup(renderer, seed=2).replies(6000):
        whole = fold(deltas(renderer, ids, (), **options, separate_reasoning=False))[0]
        _, cut = symbols(renderer, ids, options.get("stops", ()))
        assert accounts(renderer, cut, whole)
        places = [place for place, letter in enumerate(whole.text) if letter.strip()]
        if not places:
            continue
        at = rng.choice(places)
        for text in (whole.text[:at] + whole.text[at + 1 :], whole.text[: at + 1] + whole.text[at:]):
            tried += 1
            noticed += not accounts(renderer, cut, msgspec.structs.replace(whole, text=text))
    assert tried > 50
    assert noticed > 0.95 * tried
