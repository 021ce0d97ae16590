"""Answers of which only some members pass on: whole, streamed, and as fast as any other stream."""

import json
from unittest.mock import patch

import pytest

from onward.core.usage import Usage
from onward.wire.passing import stream as streams
from onward.wire.passing.members import only
from onward.wire.passing.stream import StreamWatch
from onward.wire.passing.whole import read_whole, with_usage

NAMES = frozenset({"id", "model", "choices"})


@pytest.mark.covers("P-5")
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'{"id":1,"model":"x"}', b'{"id":1,"model":"m"}'),
        (b'{"provider":"A","model":null,"id":1}', b'{"model":"m","id":1}'),
        (b'{ "id" : 1 , "x" : {"id": [2]} }', b'{"id":1,"model":"m"}'),
        (b'{"i\\u0064":1,"id":2,"choices":[\n]}', b'{"id":2,"choices":[ ],"model":"m"}'),
        (b'{"x":"\\"id\\":1}"}', b'{"model":"m"}'),
        (b"{}", b'{"model":"m"}'),
    ],
)
def test_members_alone(raw: bytes, shown: bytes) -> None:
    assert only(raw, NAMES, b'"m"') == shown


@pytest.mark.covers("P-5", "P-10")
def test_a_whole_answer() -> None:
    said = {"provider": "A", "id": "1", "choices": [{"text": "a b"}], "usage": {"cost": 1}, "model": "theirs"}
    found = read_whole(json.dumps(said).encode(), "mine", NAMES)
    told = json.loads(with_usage(found.body, Usage(3, 4, 1)))
    assert list(told) == ["id", "choices", "model", "usage"]
    assert (told["model"], told["usage"]["total_tokens"]) == ("mine", 7)


@pytest.mark.covers("P-5", "P-6")
def test_events_that_change_before_and_behind_their_text_still_pass_in_runs() -> None:
    """After the first one of its kind none is decoded."""
    text = '{"provider":"A","id":"1","model":"theirs","choices":[{"index":0,"text":"%s"}],"usage":null}'
    event = f"data: {text}\n\n"
    watch = StreamWatch("mine", show_usage=True, members=NAMES)
    out = watch.feed((event % "a").encode())
    with patch.object(streams, "read_payload", side_effect=AssertionError("decoded")):
        out += watch.feed("".join(event % word for word in ("b", "c\\n", "", '\\"model\\"')).encode())
    assert b"A" not in out
    assert [json.loads(block[6:])["choices"][0]["text"] for block in out.decode().split("\n\n")[:-1]] == [
        "a",
        "b",
        "c\n",
        "",
        '"model"',
    ]
    assert out.count(b'"model":"mine"') == 5
    assert b"usage" not in out
