"""Laws of answers that are held against patterns: of deltas, and of a provider's bytes."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.content_filter import ContentFilter
from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta, fold
from onward.core.failure import Failure, FailureKind
from onward.core.filtered_deltas import FilteredDeltas
from onward.wire.passing.filtered import FilteredWatch
from onward.wire.passing.shapes import OpenAiShape
from onward.wire.passing.stream import StreamWatch
from tests.laws.test_passing import streams

TEXTS = st.text("abc ", max_size=4)
PATTERNS = st.lists(
    st.sampled_from(["ab", "bc", "a.*c", "ca?b", "a b", "bbb"]), min_size=1, max_size=2, unique=True
)


@st.composite
def answers(draw: st.DrawFn) -> list[ChoiceDelta]:
    """The deltas of one or two choices."""
    deltas: list[ChoiceDelta] = []
    ids = 0
    for _ in range(draw(st.integers(0, 10))):
        delta = ChoiceDelta(index=draw(st.integers(0, 1)))
        match draw(st.integers(0, 5)):
            case 0:
                delta.reasoning = draw(TEXTS)
            case 1:
                call = ToolCallDelta(draw(st.integers(0, 1)), arguments=draw(TEXTS))
                delta.tool_calls = [call]
            case 2:
                delta.text, delta.reasoning = draw(TEXTS), draw(TEXTS)
            case 3:
                pass
            case _:
                delta.text = draw(TEXTS)
        count = draw(st.integers(0, 2))
        delta.token_ids = list(range(ids, ids + count))
        ids += count
        deltas.append(delta)
    return [*deltas, *(ChoiceDelta(index=n, finish=FinishReason.STOP) for n in range(2))]


def passed(content: ContentFilter, deltas: list[ChoiceDelta], *, stream: bool) -> list[ChoiceDelta] | None:
    """What goes on; None: the request failed."""
    filtered = FilteredDeltas(content, stream=stream)
    out: list[ChoiceDelta] = []
    try:
        for delta in deltas:
            out += filtered.push(delta)
    except Failure as error:
        failure = error
    else:
        return out
    assert failure.kind is FailureKind.CONTENT_BLOCKED_OUTPUT
    assert not out or not stream
    return None


def texts(choice: ChoiceDelta) -> dict[Any, str]:
    return {
        "text": choice.text,
        "reasoning": choice.reasoning,
        **{call.index: call.arguments for call in choice.tool_calls},
    }


def blocked(content: ContentFilter, choice: ChoiceDelta) -> bool:
    return any(content.output_blocked(text) for text in texts(choice).values())


@settings(max_examples=500, deadline=None)
@given(PATTERNS, answers())
def test_of_deltas_nothing_that_matches_goes_on_and_all_else_does(
    patterns: list[str], deltas: list[ChoiceDelta]
):
    content = ContentFilter.of([], patterns)
    whole = {choice.index: choice for choice in fold(deltas)}
    bad = {index for index, choice in whole.items() if blocked(content, choice)}
    assert (passed(content, deltas, stream=False) is None) == bool(bad)
    out = passed(content, deltas, stream=True)
    if out is None:
        assert bad
        return
    for choice in fold(out):
        original = whole[choice.index]
        assert not blocked(content, choice)
        if choice.index not in bad:
            assert choice == original
            continue
        assert choice.finish is FinishReason.CONTENT_FILTER
        for name, text in texts(choice).items():
            assert texts(original)[name].startswith(text)
        assert original.token_ids[: len(choice.token_ids)] == choice.token_ids
    assert {choice.index for choice in fold(out)} == set(whole)


def read(watch: Any, parts: list[bytes]) -> tuple[bytes, Any]:
    try:
        out = [watch.feed(part) for part in parts]
        out.append(watch.close())
    except Failure as failure:
        return b"", failure.kind
    return b"".join(out), watch.failure and watch.failure.kind


def filtering(patterns: list[str]) -> FilteredWatch:
    watch = StreamWatch("mine", show_usage=False, choices=2)
    return FilteredWatch(
        watch, ContentFilter.of([], patterns), OpenAiShape(), choices=2, found=lambda _: None
    )


def said(out: bytes) -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}
    for line in out.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            for choice in json.loads(line[5:])["choices"]:
                delta = choice.get("delta") or {}
                calls = delta.get("tool_calls") or [{"function": {"arguments": ""}}]
                for name, text in (
                    ("text", choice.get("text")),
                    ("content", delta.get("content")),
                    ("reasoning", delta.get("reasoning_content")),
                    ("arguments", calls[0]["function"]["arguments"]),
                ):
                    key = (choice["index"], name)
                    found[key] = found.get(key, "") + (text or "")
    return found


@settings(max_examples=300, deadline=None)
@given(streams(), st.lists(st.integers(0, 2000), max_size=6))
def test_of_events_any_cut_is_the_same_and_none_holds_a_match(stream: bytes, places: list[int]):
    content = ContentFilter.of([], ["ab", 'b"', "a b"])
    whole = read(filtering(["ab", 'b"', "a b"]), [stream])
    cuts = sorted(min(place, len(stream)) for place in places)
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(filtering(["ab", 'b"', "a b"]), parts) == whole
    assert read(filtering(["ab", 'b"', "a b"]), [stream[n : n + 1] for n in range(len(stream))]) == whole
    assert not any(content.output_blocked(text) for text in said(whole[0]).values())


@settings(max_examples=300, deadline=None)
@given(streams(), st.lists(st.integers(0, 2000), max_size=6))
def test_of_events_that_match_nothing_not_a_byte_is_different(stream: bytes, places: list[int]):
    """But choices do not wait for each other."""
    cuts = sorted(min(place, len(stream)) for place in places)
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    out, failed = read(filtering([r"a\b\bzz", "x"]), parts)
    plain, failure = read(StreamWatch("mine", show_usage=False, choices=2), parts)
    assert failed == failure
    if failed is None:
        assert sorted(lines(out)) == sorted(lines(plain))
        assert said(out) == said(plain)
    else:
        assert not Counter(lines(out)) - Counter(lines(plain))


def lines(out: bytes) -> list[bytes]:
    return out.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
