"""Answers of which only the choices pass on: whole, streamed, and as fast as any other stream."""

import json
from unittest.mock import patch

import pytest

from onward.core.usage import Usage
from onward.wire.passing import stream as streams
from onward.wire.passing.choices import known_answer
from onward.wire.passing.stream import StreamWatch
from onward.wire.passing.whole import read_whole, with_usage

HEAD = b'"id":"o-1","object":"text_completion","created":7,"model":"mine"'


@pytest.mark.covers("P-5", "P-13")
@pytest.mark.parametrize(
    ("raw", "choices"),
    [
        (b'{"id":1,"model":"x"}', b"[]"),
        (b'{ "id" : 1 , "x" : {"choices": [2]} , "choices" : [3] }', b"[3]"),
        (b'{"choic\\u0065s":[1],"id":2,"choices":[\n]}', b"[ ]"),
        (b'{"x":"\\"choices\\":1}"}', b"[]"),
        (b"{}", b"[]"),
    ],
)
def test_choices_alone(raw: bytes, choices: bytes) -> None:
    assert known_answer(raw, HEAD) == b'{%b,"choices":%b}' % (HEAD, choices)


@pytest.mark.covers("P-5", "P-10")
def test_a_whole_answer() -> None:
    said = {"provider": "A", "id": "1", "choices": [{"text": "a b"}], "usage": {"cost": 1}, "model": "theirs"}
    found = read_whole(json.dumps(said).encode(), "mine", HEAD)
    told = json.loads(with_usage(found.body, Usage(3, 4, 1)))
    assert list(told) == ["id", "object", "created", "model", "choices", "usage"]
    assert (told["id"], told["model"], told["usage"]["total_tokens"]) == ("o-1", "mine", 7)


@pytest.mark.covers("P-5", "P-6")
def test_events_that_change_before_and_behind_their_text_still_pass_in_runs() -> None:
    """After the first one of its kind none is decoded."""
    text = '{"provider":"A","id":"1","model":"theirs","choices":[{"index":0,"text":"%s"}],"usage":null}'
    event = f"data: {text}\n\n"
    watch = StreamWatch("mine", show_usage=True, head=HEAD)
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
