"""Incremental UTF-8 equals decoding the whole, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.rendering.utf8 import Utf8Decoder

BROKEN = st.lists(
    st.sampled_from(
        [b"a", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\x98", b"\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xff", b"\xc0\xaf", b"\xf4\x90", b"\xef\xbf\xbd", b"\xef\xbf"]
    )
).map(b"".join)  # fmt: skip


@given(BROKEN | st.binary(), st.data())
def test_any_cut_equals_the_whole(data: bytes, draw: st.DataObject):
    decoder = Utf8Decoder()
    text = ""
    rest = data
    while rest:
        size = draw.draw(st.integers(1, len(rest)))
        text += decoder.push(rest[:size])
        rest = rest[size:]
    assert text + decoder.flush() == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("first", "then", "continues"),
    [
        (b"\xf0\x9f", b"\x98\x80", True),
        (b"\xf0\x9f", b"\x98", True),
        (b"\xf0\x9f", b"a", False),
        (b"\xf0\x9f", b"\xf0", False),
        (b"\xe2\x82", b"\xac!", True),
        (b"\xef\xbf", b"\xbd", True),
        (b"\xef\xbf", b"\xc0", False),
        (b"a", b"b", False),
        (b"\xf0", b"", True),
    ],
)
def test_it_is_known_whether_bytes_go_on_with_a_character(first: bytes, then: bytes, continues: bool):
    decoder = Utf8Decoder()
    decoder.push(first)
    assert decoder.continues(then) is continues


def test_nothing_is_given_for_a_character_that_may_still_end():
    decoder = Utf8Decoder()
    assert [decoder.push(bytes([byte])) for byte in "😀".encode()] == ["", "", "", "😀"]
