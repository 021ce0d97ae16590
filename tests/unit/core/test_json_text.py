"""JSON in pieces, read as what it means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.content_filter import ContentFilter, HeldText
from onward.core.json_text import JsonText


@given(st.text(), st.booleans(), st.lists(st.integers(0, 200), max_size=6))
def test_any_cut_means_the_same(text: str, ascii_alone: bool, places: list[int]) -> None:
    spelled = json.dumps(text, ensure_ascii=ascii_alone)
    cuts = sorted(min(place, len(spelled)) for place in places)
    reader = JsonText()
    read = "".join(reader.push(spelled[a:b]) for a, b in zip([0, *cuts], [*cuts, len(spelled)], strict=True))
    assert read == f'"{text}"'


@pytest.mark.parametrize(
    ("spelled", "means"),
    [
        ('{"a": [1, "b"]}', '{"a": [1, "b"]}'),
        (r'"\ud83d"', '"\ufffd"'),
        (r'"\ud83dx\ude00"', '"\ufffdx\ufffd"'),
        (r'"\\u0041"', r'"\u0041"'),
        (r'"\/"', '"/"'),
        (r'"\uzzzz"', r'"\uzzzz"'),
        ("\\", ""),
    ],
)
def test_what_escapes_mean(spelled: str, means: str) -> None:
    assert JsonText().push(spelled) == means


@pytest.mark.parametrize("said", ["secret1x", r"s\u0065cret1x", r"secret\u0031x"])
def test_a_match_that_is_spelled_otherwise_is_one(said: str) -> None:
    patterns = ContentFilter.of([], ["secret[0-9]+x"]).output
    for text in (json.dumps({"a": 1})[:-1] + f', "b": "{said}"', f'"{said}"'):
        held = HeldText(patterns, json=True)
        for sign in text:
            held.push(sign)
        held.finish()
        assert held.found is not None


def test_what_is_clear_is_counted_as_it_is_read() -> None:
    held = HeldText(ContentFilter.of([], ["secret"]).output, json=True)
    for piece in (r'{"a": "z\u00', r'fcri\u0063h"}'):
        held.push(piece)
    held.finish()
    assert (held.found, held.clear, held.length) == (None, 15, 15)
