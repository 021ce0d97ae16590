"""Bytes to a JSON object: strict, bounded, and never in the library's words."""

import pytest

from onward.core.failure import Failure, FailureKind
from onward.wire.body import DEEPEST, MOST_CONTAINERS, check_body_headers, decode_body

JSON = "application/json"


def refusal(raw: bytes) -> str:
    with pytest.raises(Failure) as caught:
        decode_body(raw)
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    return caught.value.message


def header_refusal(content_type: str | None, content_encoding: str | None = None) -> str:
    with pytest.raises(Failure) as caught:
        check_body_headers(content_type, content_encoding)
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    return caught.value.message


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"model":', "ends too early"),
        (b"[]", "not an array"),
        (b"null", "not null"),
        (b'"x"', "not a string"),
        (b"123", "not an integer"),
        (b"1.5", "not a number"),
        (b"true", "not a boolean"),
        (b"{} x", "at byte"),
        (b'{"a":1,}', "at byte"),
        (b"{'a':1}", "at byte"),
        (b'{"a":"b\nc"}', "at byte"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "Infinity"),
        (b'{"a":1e400}', "too large"),
        (b'{"a":1' + b"0" * 5000 + b"}", "too large"),
        (b'{"a":"\xff"}', "not valid UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not valid UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "byte order mark"),
        ('{"a":1}'.encode("utf-16-le"), "UTF-8"),
        ("{}".encode("utf-32"), "byte order mark"),
        (rb'{"a":"\ud800"}', "surrogate"),
        (rb'{"a":"\ud800x"}', "surrogate"),
        (rb'{"a":"\udc00"}', "surrogate"),
        (rb'{"\ud83d":1}', "surrogate"),
        (rb'{"a":"NaN\ud800"}', "surrogate"),
    ],
)
@pytest.mark.fault("D07")
def test_what_is_no_json_object_is_refused(raw: bytes, says: str) -> None:
    message = refusal(raw)
    assert says in message
    assert "JSON is malformed" not in message
    assert "msgspec" not in message


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert decode_body(rb'{"a":"\ud83d\ude00"}') == {"a": "😀"}


def test_the_last_of_duplicate_keys_counts() -> None:
    assert decode_body(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize("open_close", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded(open_close: tuple[bytes, bytes]) -> None:
    def nested(levels: int) -> bytes:
        inside = levels - 1
        opening, closing = open_close
        # strings full of brackets do not count, nor do neighbours
        return b'{"s":"[[{{\\"","t":[[],[]],"a":' + opening * inside + b"1" + closing * inside + b"}"

    assert decode_body(nested(DEEPEST))["t"] == [[], []]
    assert "too deep" in refusal(nested(DEEPEST + 1))
    assert "too deep" in refusal(nested(20_000))
    assert "too deep" in refusal(open_close[0] * 20_000)


def test_brackets_in_text_are_text() -> None:
    text = '[{"' * 200_000
    assert decode_body(b'{"a":"' + text.replace('"', '\\"').encode() + b'"}') == {"a": text}


def test_a_body_of_nothing_but_brackets_is_refused() -> None:
    assert "arrays and objects" in refusal(b'{"a":[' + b"[]," * MOST_CONTAINERS + b"[]]}")


@pytest.mark.parametrize(
    "content_type",
    [JSON, "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', "application/json ;x=y"],
)
def test_json_content_types_are_taken(content_type: str) -> None:
    check_body_headers(content_type, None)


@pytest.mark.parametrize(
    ("content_type", "named"),
    [
        (None, "missing"),
        ("", "missing"),
        ("text/plain", "'text/plain'"),
        ("application/jsonx", "'application/jsonx'"),
        ("application/json; charset=latin-1", "'latin-1'"),
        ("x" * 5000, "'xxx"),
    ],
)
def test_another_content_type_is_refused_and_named(content_type: str | None, named: str) -> None:
    message = header_refusal(content_type)
    assert "Content-Type: application/json" in message
    assert named in message
    assert len(message) < 200


@pytest.mark.parametrize("encoding", [None, "", "identity", "Identity"])
def test_bodies_as_they_are_are_taken(encoding: str | None) -> None:
    check_body_headers(JSON, encoding)


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x" * 5000])
def test_encoded_bodies_are_refused(encoding: str) -> None:
    message = header_refusal(JSON, encoding)
    assert message.startswith(f"Content-Encoding '{encoding[:30]}")
    assert message.endswith("is not taken: send the body uncompressed.")
    assert len(message) < 200
