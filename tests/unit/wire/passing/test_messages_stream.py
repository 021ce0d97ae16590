"""A stream of Anthropic's Messages that passes on."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.wire.passing.messages_stream import MessagesWatch
from onward.wire.passing.messages_whole import read_whole_message, with_message_usage
from tests.unit.wire.passing.messages import PING, STOP, TEXT, closes, ends, event, opens, says, start, text

USED = {"input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4, "output_tokens": 1}
HELLO = [start(USED), PING, opens(**TEXT), text("Hel"), PING, text("lo"), closes(), ends(), STOP]


def passed(pieces: list[bytes], model: str = "mine") -> tuple[bytes, MessagesWatch]:
    watch = MessagesWatch(model)
    out = b"".join([watch.feed(piece) for piece in pieces])
    out += watch.close()
    return out + (b"" if watch.failure else watch.end(Usage())), watch


def test_nothing_changes_but_the_model() -> None:
    out, watch = passed(HELLO)
    assert out == b"".join(HELLO).replace(b'"theirs"', b'"mine"')
    assert (watch.usage, watch.finish) == (Usage(9, 7, 4), {0: "end_turn"})
    assert passed(HELLO, "theirs")[0] == b"".join(HELLO)


def test_nothing_goes_out_before_the_first_piece() -> None:
    watch = MessagesWatch("theirs")
    assert watch.feed(b"".join(HELLO[:3])) == b""
    assert not watch.started
    assert watch.prompt_usage == Usage(9, 0, 4)
    assert watch.feed(HELLO[3]) == b"".join(HELLO[:4])
    assert watch.started


def test_the_end_waits() -> None:
    watch = MessagesWatch("theirs")
    assert watch.feed(b"".join(HELLO)) == b"".join(HELLO[:-1])
    assert watch.done
    assert watch.feed(b"more") == b""
    assert watch.end(Usage()) == STOP


@pytest.mark.parametrize(
    "first",
    [
        opens(type="tool_use", id="t", name="f", input={}),
        opens(type="redacted_thinking", data="x="),
        says(type="thinking_delta", thinking="m"),
        ends("refusal"),
    ],
)
def test_what_commits_to_a_provider(first: bytes) -> None:
    watch = MessagesWatch("theirs")
    assert watch.feed(start() + first) == start() + first


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("overloaded_error", FailureKind.UPSTREAM_UNAVAILABLE),
        ("api_error", FailureKind.UPSTREAM_UNAVAILABLE),
        ("rate_limit_error", FailureKind.UPSTREAM_RATE_LIMITED),
        ("invalid_request_error", FailureKind.INVALID_REQUEST),
        ("not_found_error", FailureKind.UNKNOWN_MODEL),
        ("timeout_error", FailureKind.UPSTREAM_TIMEOUT),
        (["?"], FailureKind.UPSTREAM_UNAVAILABLE),
    ],
)
def test_an_error_ends_it(kind: Any, failure: FailureKind) -> None:
    error = event({"type": "error", "error": {"type": kind, "message": "key sk-1"}})
    out, watch = passed([*HELLO[:4], error, *HELLO[4:]])
    assert out == b"".join(HELLO[:4]).replace(b'"theirs"', b'"mine"')
    assert watch.failure is not None
    assert (watch.failure.kind, "sk-1" in watch.failure.message) == (failure, False)
    assert "sk-1" in watch.failure_text


@pytest.mark.parametrize("cut", range(1, len(HELLO)))
def test_a_stream_without_its_end_was_cut(cut: int) -> None:
    out, watch = passed(HELLO[:cut])
    assert b"message_stop" not in out
    assert watch.failure is not None
    assert "broke its answer off" in watch.failure.message


@pytest.mark.parametrize(
    "bytes_", [b"<html></html>\n\n", b"data: [DONE]\n\n", b"data: {}\n\n", b'data: {"choices":[]}\n\n', b"{}"]
)
def test_what_is_no_such_stream(bytes_: bytes) -> None:
    _, watch = passed([bytes_])
    assert watch.failure is not None


@pytest.mark.parametrize(
    "usage",
    [{}, {"output_tokens": -1}, {"output_tokens": "7"}, {"output_tokens": 2**40}, {"output_tokens": 0}],
)
def test_usage_that_cannot_be_is_estimated(usage: Any) -> None:
    watch = MessagesWatch("m")
    made = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    for piece in [*HELLO[:-2], made, STOP]:
        watch.feed(piece)
    assert watch.usage is None
    assert watch.completion_tokens == 2


def test_a_later_count_of_the_prompt_holds() -> None:
    _, watch = passed([*HELLO[:-2], ends(usage={"input_tokens": 30, "output_tokens": 9}), STOP])
    assert watch.usage == Usage(36, 9, 4)


ODD = st.sampled_from(
    [PING, b": comment\n\n", text("a"), text("é😀\n"), text(""), opens(**TEXT), closes(), b"\n", b"id: 7\n\n"]
)


@given(
    st.lists(ODD, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 400), max_size=8),
    st.booleans(),
)
def test_no_cut_shows(middle: list[bytes], line_end: str, cuts: list[int], ended: bool) -> None:
    whole = b"".join([start(USED), *middle, ends(), *([STOP] if ended else [])])
    whole = whole.replace(b"\n", line_end.encode())
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(places)]
    once, one = passed([whole])
    cut, other = passed(pieces)
    assert cut == once
    assert (one.usage, one.completion_tokens, one.finish) == (
        other.usage,
        other.completion_tokens,
        other.finish,
    )
    assert (one.failure is None) == (other.failure is None) == ended
    if ended:
        assert len(once) >= len(whole) - len('"theirs"') - len("data")


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "theirs", "stop_reason": "end_turn"}


def body(**more: Any) -> bytes:
    content = [{"type": "text", "text": 'say "model":"theirs"'}]
    return json.dumps(MESSAGE | {"content": content, "usage": USED} | more).encode()


def test_a_whole_message() -> None:
    found = read_whole_message(body(), "mine")
    assert found.body == body().replace(b'"model": "theirs"', b'"model": "mine"', 1)
    assert (found.usage, found.finish) == (Usage(9, 1, 4), ["end_turn"])
    assert read_whole_message(body(), "theirs").body == body()


def test_a_whole_message_without_usage_is_estimated() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b" * 400}}
    found = read_whole_message(body(usage=None, content=[call]), "mine")
    assert found.usage is None
    assert 90 < found.completion_tokens < 120


@pytest.mark.parametrize(
    "wrong",
    [b"", b"[]", b"{}", b'{"type":"message"}', b'{"choices":[{"text":"a"}]}', b'{"type":"error","error":{}}'],
)
def test_what_is_no_message(wrong: bytes) -> None:
    with pytest.raises(Failure) as failed:
        read_whole_message(wrong, "mine")
    assert failed.value.kind is FailureKind.UPSTREAM_UNAVAILABLE


@pytest.mark.covers("P-12")
@pytest.mark.parametrize("only_known", [False, True])
def test_what_clients_rely_on_is_added(only_known: bool) -> None:
    """Anthropic's SDKs take an event by its name, and fail where a message has no usage."""
    events = [
        {"type": "message_start", "message": {"type": "message", "model": "theirs", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None},
        {"type": "message_stop"},
    ]
    watch = MessagesWatch("mine", only_known=only_known, prompt_tokens=9)
    out = b"".join(watch.feed(b"data: %b\n\n" % json.dumps(one).encode()) for one in events) + watch.close()
    blocks = (out + watch.end(Usage(9, 1))).decode().strip().split("\n\n")
    names = [block.split("\n")[0].removeprefix("event: ") for block in blocks]
    shown = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert names == [one["type"] for one in events]
    assert shown[0]["message"]["usage"] == {"input_tokens": 9, "output_tokens": 0}
    assert (shown[0]["message"]["model"], shown[4]["usage"]) == ("mine", {"output_tokens": 1})
    assert watch.usage is None


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b'{"type":"message"}', b'{"type":"message","usage":{"input_tokens":4,"output_tokens":2}}'),
        (
            b'{"usage":null,"a":"\xc3\xa9"} ',
            b'{"usage":{"input_tokens":4,"output_tokens":2},"a":"\xc3\xa9"} ',
        ),
        (b"{ }", b'{"usage":{"input_tokens":4,"output_tokens":2}}'),
        (b'{"usage":{"output_tokens":0}}', b'{"usage":{"output_tokens":0}}'),
    ],
)
def test_a_whole_message_has_usage(sent: bytes, told: bytes) -> None:
    assert with_message_usage(sent, Usage(5, 2, 1)) == told
