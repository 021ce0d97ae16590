"""Stop strings: the first one is found, and no more is held than must be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.rendering.stops import StopMatcher

SHORT = st.text("ab\n", min_size=1, max_size=5)


def naive(text: str, stops: list[str]) -> int | None:
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return min(places, default=None)


@given(st.lists(SHORT, min_size=1, max_size=6), st.lists(st.text("ab\nc", max_size=6), max_size=8))
def test_it_finds_what_searching_the_whole_text_finds(stops: list[str], pieces: list[str]):
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        at = matcher.push(piece)
        before, text = len(text), text + piece
        expected = naive(text, stops)
        assert (None if at is None else before + at) == expected
        if at is not None:
            return
        held = max(
            (size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0
        )
        assert matcher.held == held


@pytest.mark.parametrize("stops", [["ab", "b"], ["b", "ab"]])
def test_of_stops_complete_at_once_the_one_that_begins_first_counts(stops: list[str]):
    assert StopMatcher(stops).push("xab") == 1


def test_a_stop_over_two_pieces_has_a_negative_place():
    matcher = StopMatcher(["hello"])
    assert matcher.push("he") is None
    assert matcher.held == 2
    assert matcher.push("llo") == -2


def test_an_empty_stop_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


def test_of_many_long_stops_only_what_begins_one_is_held():
    stops = ["a" * 500 + chr(0x100 + place) for place in range(200)]
    matcher = StopMatcher(stops)
    assert matcher.push("a" * 100_000) is None
    assert matcher.held == 500
    assert matcher.push("\u0142") == -500


def test_random_texts_over_one_letter():
    source = random.Random(5)
    for _ in range(300):
        stops = ["a" * source.randint(1, 6) + source.choice(["", "b"]) for _ in range(3)]
        text = "".join(source.choice("aab") for _ in range(12))
        matcher = StopMatcher(stops)
        for place, letter in enumerate(text):
            at = matcher.push(letter)
            if at is not None:
                assert place + at == naive(text[: place + 1], stops)
                break
        else:
            assert naive(text, stops) is None
