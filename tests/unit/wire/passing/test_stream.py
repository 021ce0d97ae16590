"""A provider's stream: what goes on, what is held back, what is counted."""

import json
from typing import Any

import pytest

from onward.core.failure import FailureKind
from onward.core.usage import Usage
from onward.wire.passing.stream import LONGEST_EVENT, StreamWatch
from tests.unit.wire.passing.events import DONE, USAGE, event, frame, payloads, piece, usage, words

OPENING = event(frame([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]))
MINE, THEIRS = b'"model":"mine"', b'"model":"theirs"'


def watched(*parts: bytes, show_usage: bool = False, **options: Any) -> tuple[StreamWatch, bytes]:
    """A watch that was fed these parts and closed, and what it let out, its end included."""
    watch = StreamWatch("mine", show_usage=show_usage, **options)
    out = b"".join(watch.feed(part) for part in parts) + watch.close()
    if watch.failure is None:
        out += watch.end(watch.usage or watch.estimate(5))
    return watch, out


def renamed(*parts: bytes) -> bytes:
    return b"".join(parts).replace(THEIRS, MINE)


@pytest.mark.covers("K-8")
def test_g05_usage_that_was_not_asked_for_is_kept_and_not_shown() -> None:
    watch, out = watched(OPENING, piece("a"), piece("b"), piece("", "stop"), usage(), DONE)
    assert out == renamed(OPENING, piece("a"), piece("b"), piece("", "stop"), DONE)
    assert watch.usage == Usage(5, 7)
    assert watch.finished
    assert watch.done
    assert watch.output_events == 2


@pytest.mark.covers("K-8")
def test_g05_usage_is_one_event_directly_before_the_end() -> None:
    _, out = watched(OPENING, piece("a"), usage(), piece("", "stop"), DONE, show_usage=True)
    assert out == renamed(OPENING, piece("a"), piece("", "stop"), usage(), DONE)


@pytest.mark.covers("K-9")
@pytest.mark.parametrize("more", [[piece("b")], [piece("b", "stop")], [piece("b") + piece("c")]])
def test_g03_usage_of_less_than_came_is_not_the_usage(more: list[bytes]) -> None:
    early = {**USAGE, "completion_tokens": 1}
    for report in (usage(early), piece("", usage=early)):
        watch = StreamWatch("mine", show_usage=True)
        watch.feed(piece("a") + piece("a"))
        watch.feed(report)
        assert watch.usage == Usage(5, 1)
        for part in more:
            watch.feed(part)
        assert watch.usage is None
        assert watch.completion_tokens >= 3
        watch.feed(piece("", "stop") + DONE)
        told = payloads(watch.end(watch.estimate(5)))[0]
        assert told["usage"]["completion_tokens"] == watch.completion_tokens


def test_why_each_choice_finished() -> None:
    watch, _ = watched(piece("a", "stop"), piece("b", "length", index=1), DONE, choices=2)
    assert watch.finish == {0: "stop", 1: "length"}


@pytest.mark.covers("K-8")
def test_the_last_of_several_usage_events_counts() -> None:
    other = {**USAGE, "completion_tokens": 9}
    watch, out = watched(piece("a", "stop"), usage(), usage(other), DONE, show_usage=True)
    assert out == renamed(piece("a", "stop"), usage(other), DONE)
    assert watch.usage == Usage(5, 9)


@pytest.mark.covers("K-8", "K-9")
def test_usage_that_never_came_is_estimated() -> None:
    _, out = watched(OPENING, piece("a"), piece("b", "stop"), DONE, show_usage=True)
    *_, made, done = payloads(out)
    assert done == "[DONE]"
    assert made == {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 17,
        "model": "mine",
        "choices": [],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


@pytest.mark.covers("K-8")
@pytest.mark.parametrize("show", [True, False])
def test_usage_on_the_last_choice_moves_to_its_own_event(show: bool) -> None:
    more = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 3}}
    watch, out = watched(piece("a"), piece("", "stop", usage=more), DONE, show_usage=show)
    shown = payloads(out)
    assert shown[1]["usage"] is None
    assert shown[1]["choices"][0]["finish_reason"] == "stop"
    assert watch.usage == Usage(5, 7)
    assert [one["usage"] for one in shown[2:-1]] == ([more] if show else [])


def test_usage_on_every_event_stays_for_those_who_asked() -> None:
    running = [piece(text, usage={**USAGE, "completion_tokens": n}) for n, text in enumerate("abc", 1)]
    watch, out = watched(*running, piece("", "stop"), usage(), DONE, show_usage=True, keep_usage=True)
    assert out == renamed(*running, piece("", "stop"), usage(), DONE)
    assert watch.usage == Usage(5, 7)


@pytest.mark.parametrize(
    "counts",
    [{}, {"prompt_tokens": "5", "completion_tokens": 7}, {"prompt_tokens": 5, "completion_tokens": 0}],
)
@pytest.mark.covers("K-9")
def test_usage_that_cannot_be_is_replaced_by_an_estimate(counts: dict[str, Any]) -> None:
    watch, out = watched(piece("a"), piece("b", "stop"), usage(counts), DONE, show_usage=True)
    assert watch.usage is None
    assert payloads(out)[-2]["usage"]["completion_tokens"] == 2


def test_null_usage_is_no_report() -> None:
    watch, out = watched(piece("a", "stop", usage=None), DONE)
    assert watch.usage is None
    assert out == renamed(piece("a", "stop", usage=None), DONE)


@pytest.mark.covers("K-1")
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_the_model_is_the_callers_and_all_else_is_untouched(separators: tuple[str, str]) -> None:
    parts = [
        event(frame([{"index": 0, "delta": {"content": text}, "finish_reason": None}]), separators)
        for text in ("a", 'b "model":"theirs"', "\\", "", "é", "😀")
    ]
    _, out = watched(*parts, piece("", "stop"), DONE)
    colon = separators[1].encode()
    expected = b"".join(parts).replace(b'"model"' + colon + b'"theirs"', b'"model"' + colon + b'"mine"')
    assert out == expected + renamed(piece("", "stop"), DONE)


def test_a_model_that_changes_or_is_spelled_otherwise_is_renamed() -> None:
    parts = [
        b'data: {"model":"theirs","choices":[{"index":0,"text":"a"}]}\n\n',
        b'data: {"model":"other","choices":[{"index":0,"text":"a"}]}\n\n',
        b'data: {"m\\u006fdel":"th\\u0065irs","choices":[{"index":0,"text":"a"}]}\n\n',
        b'data: {"choices":[{"index":0,"text":"a","model":"theirs"}],"model" :\t"theirs" }\n\n',
        b'data: {"model":"mine","choices":[{"index":0,"text":"a"}]}\n\n',
        b'data: {"model":null,"choices":[{"index":0,"text":"a"}]}\n\n',
        b'data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}\n\n',
    ]
    _, out = watched(*parts)
    assert [one.get("model", "none") for one in payloads(out)[:-1]] == [*["mine"] * 5, None, "none"]
    assert b'"m\\u006fdel":"mine"' in out


def test_names_that_need_escapes_are_escaped() -> None:
    watch = StreamWatch('a"b/é', show_usage=True)
    out = watch.feed(piece("x") + piece("y") + piece("z", "stop")) + watch.close() + watch.end(Usage(1, 1))
    assert [one["model"] for one in payloads(out)[:-1]] == ['a"b/é'] * 4


def test_g12_choices_that_take_turns() -> None:
    parts = [piece(f"{index}{turn}", index=index) for turn in range(20) for index in range(3)]
    ends = [piece("", "stop", index=index) for index in range(3)]
    watch, out = watched(b"".join(parts), *ends, choices=3)
    assert out == renamed(*parts, *ends, DONE)
    assert watch.output_events == 60
    assert watch.finished


def test_g07_g09_calls_and_reasoning_are_untouched_and_counted() -> None:
    def delta(**delta: Any) -> bytes:
        return event(frame([{"index": 0, "delta": delta, "finish_reason": None}]))

    def call(index: int, **function: str) -> bytes:
        return delta(tool_calls=[{"index": index, "function": function}])

    parts = [
        delta(role="assistant", content=None),
        *[delta(content=None, reasoning_content=text) for text in ("I ", "think")],
        delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "2", "function": {"name": "g", "arguments": ""}}]),
        call(0, arguments='{"a"'),
        call(1, arguments='{"b"'),
        call(0, arguments=":1}"),
        call(1, arguments=":2}"),
        delta(function_call={"name": "old", "arguments": "{}"}),
        event(frame([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])),
    ]
    watch, out = watched(*parts, DONE)
    assert out == renamed(*parts, DONE)
    assert watch.output_events == 9


def test_log_probabilities_are_untouched() -> None:
    parts = [
        event(frame([{"index": 0, "text": text, "logprobs": {"tokens": [text]}, "finish_reason": None}]))
        for text in "abcdefghijklmnopqrstuvwxyz"
    ]
    watch, out = watched(b"".join(parts), words("", "stop"), DONE)
    assert out == renamed(*parts, words("", "stop"), DONE)
    assert watch.output_events == 26


@pytest.mark.parametrize(
    "hidden",
    [
        b'{"model":"theirs","choices":[{"index":0,"text":"a","finish_reason":"stop"}]}',
        b'{"model":"theirs","choices":[{"index":0,"text":"a"}],"usage":%b,"x":[{"y":"z"}]}'
        % json.dumps(USAGE).encode(),
        b'{"model":"theirs","choices":[{"index":0,"text":"a"}],"error":{"message":"x"},"x":[{"y":"z"}]}',
    ],
)
def test_what_only_looks_like_the_frame_is_read(hidden: bytes) -> None:
    """An event that begins and ends like all others, and says more in the middle."""
    plain = b'data: {"model":"theirs","choices":[{"index":0,"text":"%b"}]}\n\n'
    watch = StreamWatch("mine", show_usage=False)
    watch.feed(plain % b"a" + plain % b"b")
    watch.feed(plain % b"c" + b"data: " + hidden + b"\n\n")
    assert watch.finished or watch.usage or watch.failure


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_event_streams(end: bytes) -> None:
    lines = [
        b": comment",
        b"",
        b"event: message",
        b"id: 4",
        b'data:{"model":"theirs",',
        b'data: "choices":[{"index":0,"text":"a\\nb"}]}',
        b"retry: 10",
        b"",
        b'data:{"model":"theirs","choices":[{"index":0,"text":"c","finish_reason":"stop"}]}',
        b"",
        b"",
        b"",
        b"data:[DONE]",
        b"",
        b"",
    ]
    watch, out = watched(end.join(lines))
    assert watch.done
    assert watch.output_events == 2
    texts = [one["choices"][0]["text"] for one in payloads(out.replace(end, b"\n"))[:-1]]
    assert texts == ["a\nb", "c"]
    assert out.startswith(b": comment" + end + end + b"event: message" + end + b"id: 4" + end)
    assert b"theirs" not in out


def test_an_untouched_event_keeps_its_lines() -> None:
    odd = b'event: x\ndata: {"choices":\ndata: [{"index":0,"text":"a"}]}\n\n'
    _, out = watched(odd, words("", "stop"))
    assert out.startswith(odd)


def test_g28_comments_pass_but_do_not_start_an_answer() -> None:
    watch = StreamWatch("mine", show_usage=False)
    assert watch.feed(b": keep-alive\n\n" + OPENING) == b""
    assert not watch.started
    assert watch.feed(piece("a")) == renamed(b": keep-alive\n\n", OPENING, piece("a"))
    assert watch.started
    assert watch.feed(b": keep-alive\n\n") == b": keep-alive\n\n"


def test_an_answer_of_nothing_has_its_opening() -> None:
    watch, out = watched(OPENING, DONE)
    assert out == renamed(OPENING, DONE)
    assert watch.completion_tokens == 0


@pytest.mark.parametrize("events", [DONE, usage() + DONE, b": keep-alive\n\n" + DONE])
def test_g06_an_end_alone_is_no_answer(events: bytes) -> None:
    watch, _ = watched(events)
    assert watch.failure is not None
    assert not watch.finished


@pytest.mark.parametrize("cut", [b"", OPENING, OPENING + piece("a"), piece("a") + piece("b", "stop")[:-20]])
def test_g06_a_stream_that_ends_early_is_a_failure(cut: bytes) -> None:
    watch, out = watched(cut)
    assert watch.failure is not None
    assert watch.failure.kind is FailureKind.UPSTREAM_UNAVAILABLE
    assert b"[DONE]" not in out
    assert not watch.finished


def test_every_choice_has_to_finish() -> None:
    watch, _ = watched(piece("a", "stop"), piece("b", index=1), choices=2)
    assert watch.failure is not None


@pytest.mark.parametrize("last", [b"data: [DONE]", b"data: [DONE]\n", b"", b"\n"])
def test_the_last_blank_line_may_be_missing(last: bytes) -> None:
    watch, out = watched(piece("a"), piece("", "stop") + last)
    assert watch.failure is None
    assert out.replace(b"\n\n\n", b"\n\n") == renamed(piece("a"), piece("", "stop"), DONE)


def test_what_follows_the_end_is_ignored() -> None:
    _, out = watched(piece("a", "stop") + DONE + piece("x"), piece("y"), b"junk")
    assert out == renamed(piece("a", "stop"), DONE)


ERRORS = [
    (event({"error": {"message": "secret host", "code": 429}}), FailureKind.UPSTREAM_RATE_LIMITED),
    (event({"error": {"message": "secret", "type": "rate_limit_error"}}), FailureKind.UPSTREAM_RATE_LIMITED),
    (event({"error": {"message": "secret", "code": "400"}}), FailureKind.INVALID_REQUEST),
    (event({"error": {"message": "secret", "code": 500}}), FailureKind.UPSTREAM_UNAVAILABLE),
    (event({"error": "secret"}), FailureKind.UPSTREAM_UNAVAILABLE),
    (event({"object": "error", "message": "secret"}), FailureKind.UPSTREAM_UNAVAILABLE),
    (event({"message": "secret", "code": 5}), FailureKind.UPSTREAM_UNAVAILABLE),
    (b"event: error\n" + event({"detail": "secret"}), FailureKind.UPSTREAM_UNAVAILABLE),
    (piece("x", "error", error={"message": "secret"}), FailureKind.UPSTREAM_UNAVAILABLE),
]


@pytest.mark.covers("K-7", "TH-12")
@pytest.mark.parametrize(("bad", "kind"), ERRORS)
def test_an_error_in_the_stream_ends_it_in_our_words(bad: bytes, kind: FailureKind) -> None:
    watch, out = watched(piece("a") + bad + piece("b"), DONE)
    assert watch.failure is not None
    assert watch.failure.kind is kind
    assert "secret" not in watch.failure.message
    assert "secret" in watch.failure_text
    assert out == renamed(piece("a"))


@pytest.mark.parametrize(
    "junk",
    [
        b"<html>\n<body>secret</body>\n\n",
        b'{"id":"x","choices":[]}\n\n',
        b"data: secret\n\n",
        b"data: [1]\n\n",
        b'data: {"choices":\n\n',
    ],
)
def test_what_is_no_event_is_a_failure(junk: bytes) -> None:
    watch, out = watched(junk)
    assert watch.failure is not None
    assert watch.failure.kind is FailureKind.UPSTREAM_UNAVAILABLE
    assert "secret" not in watch.failure.message
    assert watch.failure_text
    assert out == b""


def test_what_is_not_quite_json_passes() -> None:
    half = b'data: {"model":"theirs","choices":[{"index":0,"text":"\\ud83d"}]}\n\n'
    infinite = b'data: {"model":"theirs","choices":[{"index":0,"text":"a","logprobs":-Infinity}]}\n\n'
    strange = b'data: {"model":"theirs","choices":[null,{"index":"0","text":7,"delta":[]}],"usage":3}\n\n'
    watch, out = watched(half, infinite, strange, words("", "stop"))
    assert out == renamed(half, infinite, strange, words("", "stop"), DONE)
    assert watch.output_events == 2


def test_long_events_are_bounded() -> None:
    watch = StreamWatch("mine", show_usage=False)
    for _ in range(LONGEST_EVENT // 65_536 + 1):
        assert watch.feed(b"x" * 65_536) == b""
    assert watch.failure is not None
    assert watch.failure.kind is FailureKind.UPSTREAM_UNAVAILABLE


def test_what_waits_for_the_first_output_is_bounded() -> None:
    watch = StreamWatch("mine", show_usage=False)
    for _ in range(LONGEST_EVENT // 32_768 + 1):
        watch.feed(b": %b\n\n" % (b"x" * 32_768))
    assert watch.failure is not None


@pytest.mark.covers("K-9")
@pytest.mark.parametrize(
    ("texts", "least"),
    [(["a"] * 50, 50), (["four" * 10], 10), (["日本語"], 3), (["😀"], 2), (["x", "", "y"], 2)],
)
def test_g03_an_estimate_is_at_least_the_pieces_and_what_the_bytes_make_likely(
    texts: list[str], least: int
) -> None:
    watch = StreamWatch("mine", show_usage=False)
    watch.feed(b"".join(piece(text) for text in texts))
    assert watch.completion_tokens >= least
    assert watch.estimate(3) == Usage(3, watch.completion_tokens)
    assert watch.completion_tokens <= max(len(texts), sum(len(text.encode()) for text in texts))


def test_a_burst_counts_as_its_events_one_by_one() -> None:
    texts = ["word", " é", "\\", '"', "\n\n", "", "😀" * 5] * 40
    whole, single = (StreamWatch("mine", show_usage=False) for _ in range(2))
    out = whole.feed(b"".join(piece(text) for text in texts))
    assert out == b"".join(single.feed(piece(text)) for text in texts)
    assert whole.completion_tokens == single.completion_tokens
    assert whole.output_events == single.output_events == 240
    assert "".join(one["choices"][0]["delta"]["content"] for one in payloads(out)) == "".join(texts)


def test_changing_ids_are_no_obstacle() -> None:
    parts = [event({**frame([{"index": 0, "text": "a"}]), "id": f"c-{n}"}) for n in range(100)]
    watch, out = watched(b"".join(parts), words("", "stop"), DONE)
    assert out == renamed(*parts, words("", "stop"), DONE)
    assert watch.output_events == 100


@pytest.mark.covers("P-6")
def test_the_end_is_the_dialects() -> None:
    watch = StreamWatch("mine", show_usage=False, done=b"data: bye\n\n")
    watch.feed(piece("a", "stop") + DONE)
    assert watch.end(Usage()) == b"data: bye\n\n"


def test_a_byte_order_mark_is_no_obstacle() -> None:
    watch, _ = watched(b"\xef\xbb\xbf" + piece("a", "stop"), DONE)
    assert watch.done
    assert watch.output_events == 1


def test_made_usage_of_a_stream_without_events() -> None:
    watch = StreamWatch("mine", show_usage=True)
    watch.feed(DONE)
    assert json.loads(watch.end(Usage(1, 0)).split(b"\n\n")[0][6:])["choices"] == []
