"""A provider's chat as deltas, however providers write it."""

import json
from typing import Any

import pytest

from onward.core.delta import ChoiceDelta, FinishReason, fold
from onward.core.failure import Failure, FailureKind
from onward.core.request import ChatRequest, Thought
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.wire.messages import MessagesEncoder
from onward.wire.translating.openai_deltas import OpenAiDeltas
from tests.http.messages import message_of
from tests.unit.wire.passing.events import DONE, event, frame, piece, usage


def said(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return event(frame([{"index": 0, "delta": delta, "finish_reason": finish}], **more))


def read(*events: bytes) -> tuple[list[ChoiceDelta], OpenAiDeltas]:
    reader = OpenAiDeltas(iter("abcdef").__next__)
    deltas = [delta for one in events for delta in reader.feed(one)]
    return deltas + reader.close(), reader


def calls_of(deltas: list[ChoiceDelta]) -> list[tuple[int, str | None, str | None, str]]:
    [choice] = fold(deltas)
    return [(call.index, call.id, call.name, call.arguments) for call in choice.tool_calls]


def call(index: int | None, id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:  # noqa: A002
    given = {"index": index, "id": id}
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {key: value for key, value in given.items() if value is not None} | {"function": function}


def test_the_end_waits_for_the_usage() -> None:
    deltas, reader = read(said({"role": "assistant"}), piece("Hi"), piece("", "length"), usage(), DONE)
    assert [(one.text, one.finish) for one in deltas] == [("Hi", None), ("", FinishReason.LENGTH)]
    assert reader.usage == Usage(5, 7)
    early = OpenAiDeltas(str)
    assert early.feed(piece("Hi") + piece("", "stop"))[-1].finish is None


CALLS = {
    "in turns": [
        [call(0, "a", "f", ""), call(1, "b", "g", "")],
        [call(0, None, None, '{"x"')],
        [call(1, None, None, "{}"), call(0, None, None, ":1}")],
    ],
    "an ID on every piece": [
        [call(0, "a", "f", '{"x"')],
        [call(0, "a", "f", ":1}"), call(1, "b", "g", "{}")],
    ],
    "without an index": [
        [call(None, "a", "f", '{"x"')],
        [call(None, None, None, ":1}")],
        [call(None, "b", "g", "{}")],
    ],
    "the name later": [[call(0, "a", None, "")], [call(0, None, "f", '{"x":1}')], [call(1, "b", "g", "{}")]],
    "one index for all": [[call(0, "a", "f", '{"x":1}'), call(0, "b", "g", "{}")]],
    "one index for all, in pieces": [
        [call(0, "a", "f", '{"x"')],
        [call(0, None, None, ":1}")],
        [call(0, "b", "g", "{")],
        [call(0, None, None, "}")],
    ],
    "without an index, the name later": [
        [call(None, "a", None, "")],
        [call(None, "a", "f", '{"x":1}')],
        [call(None, "b", None, ""), call(None, "b", "g", "{}")],
    ],
    "indices from 1": [[call(1, "a", "f", '{"x":1}')], [call(2, "b", "g", "{}")]],
    "arguments before the name": [
        [call(0, "a", None, '{"x"')],
        [call(0, None, "f", ":1}")],
        [call(1, "b", "g", "{}")],
    ],
}


@pytest.mark.parametrize("way", CALLS)
def test_calls_keep_apart(way: str) -> None:
    deltas, reader = read(
        *[said({"tool_calls": calls}) for calls in CALLS[way]], said({}, "tool_calls"), DONE
    )
    assert calls_of(deltas) == [(0, "a", "f", '{"x":1}'), (1, "b", "g", "{}")]
    assert reader.failure is None
    ids = [one.id for delta in deltas for one in delta.tool_calls if one.id]
    assert ids == ["a", "b"]


def test_a_call_without_an_id_gets_one() -> None:
    deltas, _ = read(said({"tool_calls": [call(0, None, "f", "{}")]}), said({}, "stop"), DONE)
    assert calls_of(deltas) == [(0, "call_a", "f", "{}")]
    assert deltas[-1].finish is FinishReason.TOOL_CALLS


def test_a_function_call_of_old() -> None:
    pieces = [
        said({"function_call": {"name": "f", "arguments": "{"}}),
        said({"function_call": {"arguments": "}"}}),
    ]
    deltas, _ = read(*pieces, said({}, "function_call"), DONE)
    assert calls_of(deltas) == [(0, "call_a", "f", "{}")]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_by_either_name(name: str) -> None:
    deltas, _ = read(said({name: "So", "content": None}), piece("Hi", "stop"), DONE)
    [choice] = fold(deltas)
    assert (choice.reasoning, choice.text) == ("So", "Hi")


def test_without_a_mark_of_the_end_a_finish_is_one() -> None:
    deltas, reader = read(piece("Hi", "stop"))
    assert (deltas[-1].finish, reader.failure) == (FinishReason.STOP, None)
    deltas, reader = read(piece("Hi"), DONE)
    assert (deltas[-1].finish, reader.failure) == (FinishReason.STOP, None)


@pytest.mark.parametrize(
    "events", [[], [DONE], [piece("Hi")], [said({"role": "assistant"}), DONE], [usage(), DONE]]
)
def test_a_stream_that_is_not_whole(events: list[bytes]) -> None:
    deltas, reader = read(*events)
    assert reader.failure is not None
    assert all(delta.finish is None for delta in deltas)


def test_an_error_in_it() -> None:
    deltas, reader = read(piece("Hi"), event({"error": {"message": "key sk-1", "code": 429}}), piece("more"))
    assert [delta.text for delta in deltas] == ["Hi"]
    assert reader.failure is not None
    assert reader.failure.kind is FailureKind.UPSTREAM_RATE_LIMITED
    assert "sk-1" in reader.failure_text


def test_output_behind_the_usage_is_estimated() -> None:
    _, reader = read(piece("Hi"), usage(), piece("more words that nobody counted", "stop"), DONE)
    assert reader.usage is None
    assert reader.completion_tokens > 5


def test_other_choices_are_not_heard() -> None:
    deltas, _ = read(piece("Hi"), piece("no", index=1), piece("", "stop"), DONE)
    assert [choice.text for choice in fold(deltas)] == ["Hi"]


def test_a_whole_answer() -> None:
    message = {
        "content": None,
        "reasoning_content": "So",
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"function": {"name": "g"}},
        ],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    reader = OpenAiDeltas(iter("abc").__next__)
    deltas = reader.whole(json.dumps({"choices": [choice], "usage": None}).encode())
    assert calls_of(deltas) == [(0, "a", "f", "{}"), (1, "call_a", "g", "")]
    assert (fold(deltas)[0].reasoning, reader.usage) == ("So", None)
    assert reader.completion_tokens >= 1


@pytest.mark.parametrize(
    "wrong", [b"", b"{}", b"[]", b'{"choices":[]}', b'{"error":{"message":"no"}}', b"<html>"]
)
def test_what_is_no_answer(wrong: bytes) -> None:
    with pytest.raises(Failure) as failed:
        OpenAiDeltas(str).whole(wrong)
    assert failed.value.kind is FailureKind.UPSTREAM_UNAVAILABLE


@pytest.mark.covers("P-12")
@pytest.mark.parametrize("index", [None, 0])
def test_calls_without_ids_are_told_apart_by_their_names(index: int | None) -> None:
    deltas, _ = read(said({"tool_calls": [call(index, None, "f", "{}"), call(index, None, "g", "{}")]}), DONE)
    assert [name for _, _, name, _ in calls_of(deltas)] == ["f", "g"]


@pytest.mark.covers("P-12")
def test_a_name_in_pieces_is_one_call() -> None:
    deltas, _ = read(
        said({"tool_calls": [call(0, "a", "get_", "")]}),
        said({"tool_calls": [call(0, None, "weather", "{}")]}),
        DONE,
    )
    assert len(calls_of(deltas)) == 1


@pytest.mark.covers("P-12")
def test_arguments_that_are_an_object() -> None:
    given = {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"city": "Zürich"}}}
    deltas, reader = read(said({"tool_calls": [given]}, "tool_calls"), DONE)
    assert calls_of(deltas) == [(0, "a", "f", '{"city": "Zürich"}')]
    assert reader.completion_tokens > 1


@pytest.mark.covers("P-12")
def test_content_in_parts() -> None:
    """As some providers write it where their models reason."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    deltas, reader = read(
        said({"content": [thinking]}), said({"content": [{"type": "text", "text": "Yes"}, 7]}, "stop"), DONE
    )
    assert [(one.reasoning, one.text) for one in deltas] == [("Hm", ""), ("", "Yes"), ("", "")]
    assert reader.output_events == 2


@pytest.mark.covers("P-12")
@pytest.mark.parametrize("name", ["content", "reasoning_content"])
def test_halves_of_a_character_in_two_pieces(name: str) -> None:
    """UTF-8 has no halves: they are put together, and one that stays alone is U+FFFD."""
    pieces = [said({name: text}) for text in ("a\ud83d", "\ude00b", "\ud83d", "c", "\udc00", "d\ud83d")]
    deltas, _ = read(*pieces, piece("", "stop"), DONE)
    [choice] = fold(deltas)
    assert choice.text + choice.reasoning == "a\U0001f600b\ufffdc\ufffdd\ufffd"
    assert deltas[-1].finish is FinishReason.STOP


@pytest.mark.covers("P-12")
def test_halves_do_not_change_places() -> None:
    half = call(0, "a", "f", '"\ud83d')
    deltas, _ = read(
        said({"reasoning_content": "x\ud83d"}),
        said({"content": "\ude00"}),
        said({"tool_calls": [half]}),
        said({"tool_calls": [call(0, None, None, '\ude00"')]}),
        piece("", "tool_calls"),
        DONE,
    )
    [choice] = fold(deltas)
    assert (choice.reasoning, choice.text) == ("x\ufffd", "\ufffd")
    assert choice.tool_calls[0].arguments == '"\U0001f600"'


@pytest.mark.covers("P-12")
def test_half_a_character_in_a_whole_answer() -> None:
    message = {
        "role": "assistant",
        "content": "a\ud83d",
        "tool_calls": [call(None, "\udc00", "f", '"\ud83d"')],
    }
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    [choice] = fold(OpenAiDeltas(str).whole(json.dumps(body).encode()))
    assert choice.text == "a\ufffd"
    assert choice.tool_calls[0].arguments == '"\ufffd"'


def thinks(text: str, signature: str | None = "Eq==", **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature, **more}


SEALED = {"type": "redacted_thinking", "data": "Em=="}


def blocks_of(deltas: list[ChoiceDelta], *, stream: bool) -> list[dict[str, Any]]:
    """The message that a caller of Messages reads, streamed or not."""
    request = ChatRequest(model="m", messages=[], max_tokens=99)
    encoder = MessagesEncoder(DIALECTS["openai"], request, id="1", created=1)
    if not stream:
        return json.loads(encoder.whole(deltas, Usage(1, 1)))["content"]
    sent = b"".join([encoder.events(one, Usage(1, 1)) for one in deltas]) + encoder.end(Usage(1, 1))
    return message_of(sent.decode())["content"]


SIGNED = [thinks("So"), SEALED, thinks("Hm", "Er==")]


@pytest.mark.complaint("G09")
def test_each_block_of_a_whole_answer_has_its_own_text_and_signature() -> None:
    message = {"reasoning_content": "SoHm", "content": "Yes", "thinking_blocks": SIGNED}
    answer = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    deltas = OpenAiDeltas(str).whole(answer)
    for stream in (True, False):
        assert blocks_of(deltas, stream=stream) == [*SIGNED, {"type": "text", "text": "Yes"}]


def test_blocks_of_a_whole_answer_stand_where_they_say() -> None:
    placed = [thinks("So"), thinks("Hm", "Er==", after={"content": 1, "tool_calls": 0})]
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"content": "AB", "thinking_blocks": placed, "tool_calls": calls}
    answer = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    deltas = OpenAiDeltas(str).whole(answer)
    for stream in (True, False):
        assert blocks_of(deltas, stream=stream) == [
            thinks("So"),
            {"type": "text", "text": "A"},
            thinks("Hm", "Er=="),
            {"type": "text", "text": "B"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ]


IN_PIECES: dict[str, list[dict[str, Any]]] = {
    "whole blocks behind their text": [
        {"reasoning_content": "S"},
        {"reasoning_content": "o"},
        {"thinking_blocks": [thinks("So")]},
    ],
    "pieces of blocks beside it": [
        {"reasoning_content": "S", "thinking_blocks": [thinks("S", None)]},
        {"reasoning_content": "o", "thinking_blocks": [thinks("o", "")]},
        {"reasoning_content": "", "thinking_blocks": [thinks("")]},
    ],
    "pieces of blocks alone": [
        {"thinking_blocks": [thinks("S", None)]},
        {"thinking_blocks": [thinks("o", None)]},
        {"thinking_blocks": [thinks("")]},
    ],
    "whole blocks alone": [{"thinking_blocks": [thinks("So")]}],
}


@pytest.mark.complaint("G09")
@pytest.mark.parametrize("way", IN_PIECES)
def test_blocks_that_come_in_pieces_are_one(way: str) -> None:
    deltas, _ = read(*[said(one) for one in IN_PIECES[way]], piece("Yes", "stop"), DONE)
    for stream in (True, False):
        assert blocks_of(deltas, stream=stream) == [thinks("So"), {"type": "text", "text": "Yes"}]
    assert fold(deltas)[0].thoughts == [Thought("So", "Eq==")]


ENDS: list[tuple[dict[str, Any], str, tuple[str, str | None]]] = [
    ({"stop_reason": "END"}, "stop", ("stop_sequence", "END")),  # vLLM
    ({"matched_stop": "END"}, "stop", ("stop_sequence", "END")),  # SGLang
    ({"stop_reason": None, "matched_stop": "END"}, "stop", ("stop_sequence", "END")),
    ({"stop_reason": 151_645}, "stop", ("end_turn", None)),  # a token: the model's own end
    ({"matched_stop": "NaN happened"}, "stop", ("end_turn", None)),  # nothing that was asked for
    ({"stop_reason": ""}, "stop", ("end_turn", None)),
    ({"stop_reason": ["END"]}, "stop", ("end_turn", None)),
    ({"stop_reason": "END"}, "length", ("max_tokens", None)),
    ({}, "stop", ("end_turn", None)),
]


@pytest.mark.parametrize(("told", "finish", "shown"), ENDS)
def test_a_stop_that_is_told(told: dict[str, Any], finish: str, shown: tuple[str, str | None]) -> None:
    choice = {"index": 0, "finish_reason": finish, **told}
    streamed, _ = read(piece("Hi"), event(frame([choice | {"delta": {}}])), usage(), DONE)
    whole = json.dumps({"choices": [choice | {"message": {"content": "Hi"}}]}).encode()
    request = ChatRequest(model="m", messages=[], stop=["FIN", "END"])
    for deltas in (streamed, OpenAiDeltas(str).whole(whole)):
        encoder = MessagesEncoder(DIALECTS["openai"], request, id="1", created=1)
        message = json.loads(encoder.whole(deltas, Usage(1, 1)))
        assert (message["stop_reason"], message["stop_sequence"]) == shown
