"""Laws of what is translated: no cut of a stream shows, and there and back again everything is as it was."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming._deltas import accumulate_delta

from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta, fold
from onward.core.request import ChatRequest, Message, Thought
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.wire.chat import ChatEncoder
from onward.wire.messages import MessagesEncoder
from onward.wire.requests import chat_request, messages_request
from onward.wire.translating.anthropic_body import messages_fields
from onward.wire.translating.anthropic_deltas import AnthropicDeltas
from onward.wire.translating.openai_body import chat_fields
from onward.wire.translating.openai_deltas import OpenAiDeltas
from onward.wire.translating.reading import DeltaReader
from onward.wire.translating.ways import body

OPENAI = DIALECTS["openai"]
REQUEST = ChatRequest(
    model="m", messages=[Message(role="user", content="x")], include_usage=True, max_tokens=99
)
TEXTS = st.text('ab "\\\n\r{}[]:é日😀', min_size=1, max_size=6) | st.sampled_from(
    ["data: [DONE]\n\n", "\n\n"]
)
SPOKEN = TEXTS.filter(str.strip)
"""Anthropic's API takes no other texts."""
OPAQUE = st.text("aB9+/=", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(st.text('a"é', max_size=3), st.integers() | TEXTS | st.none(), max_size=2)
USAGE = st.builds(Usage, st.just(9), st.integers(1, 50), st.integers(0, 9))


def chat_decoder() -> OpenAiDeltas:
    return OpenAiDeltas(iter("abcdefgh").__next__)


@st.composite
def replies(draw: st.DrawFn) -> list[ChoiceDelta]:
    """A reply in pieces: reasoning (signed, sealed, or neither), text, calls that take turns, the end."""
    pieces: list[ChoiceDelta] = []
    signed = draw(st.booleans())
    for _ in range(draw(st.integers(0, 2 if signed else 1))):
        if signed and draw(st.booleans()):
            pieces.append(ChoiceDelta(index=0, thoughts=[Thought(sealed=draw(OPAQUE))]))
            continue
        texts = draw(st.lists(TEXTS, max_size=3))
        pieces += [ChoiceDelta(index=0, reasoning=text) for text in texts]
        if signed:
            thought = Thought("".join(texts), draw(OPAQUE))
            pieces.append(ChoiceDelta(index=0, thoughts=[thought]))
    pieces += [ChoiceDelta(index=0, text=text) for text in draw(st.lists(TEXTS, max_size=4))]
    calls: list[list[ToolCallDelta]] = []
    for index in range(draw(st.integers(0, 3))):
        spelled = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
        cut = draw(st.integers(0, len(spelled)))
        first = ToolCallDelta(index, f"call_{index}", f"f{index}", spelled[:cut])
        calls.append([first, ToolCallDelta(index, arguments=spelled[cut:])])
    turns = [call[0] for call in calls] + [call[1] for call in calls]
    if draw(st.booleans()):
        turns = [piece for call in calls for piece in call]
    pieces += [ChoiceDelta(index=0, tool_calls=[piece]) for piece in turns]
    reason = FinishReason.TOOL_CALLS if calls else draw(st.sampled_from(list(FinishReason)))
    if not calls and reason is FinishReason.TOOL_CALLS:
        reason = FinishReason.STOP
    return [*pieces, ChoiceDelta(index=0, finish=reason)]


def encoded(encoder: ChatEncoder | MessagesEncoder, pieces: list[ChoiceDelta], usage: Usage) -> bytes:
    return b"".join([encoder.events(piece, usage) for piece in pieces]) + encoder.end(usage)


def as_chat(pieces: list[ChoiceDelta], usage: Usage) -> bytes:
    return encoded(ChatEncoder(OPENAI, REQUEST, id="1", created=1), pieces, usage)


def as_message(pieces: list[ChoiceDelta], usage: Usage) -> bytes:
    return encoded(MessagesEncoder(OPENAI, REQUEST, id="1", created=1), pieces, usage)


def decoded(reader: DeltaReader, stream: bytes, cuts: list[int]) -> list[ChoiceDelta]:
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    deltas = [one for a, b in itertools.pairwise(places) for one in reader.feed(stream[a:b])]
    deltas += reader.close()
    assert reader.failure is None
    return deltas


def whole(pieces: list[ChoiceDelta]) -> dict[str, Any]:
    """What a reply says, however it was cut."""
    [choice] = fold(pieces)
    return {
        "text": choice.text,
        "reasoning": choice.reasoning,
        "thoughts": choice.thoughts or [],
        "calls": [(call.index, call.id, call.name, call.arguments) for call in choice.tool_calls],
        "finish": choice.finish,
    }


CUTS = st.lists(st.integers(0, 3000), max_size=6)
LINES = st.sampled_from([b"\n", b"\r\n"])


@given(replies(), USAGE, CUTS, LINES)
@settings(max_examples=150)
def test_no_cut_of_a_chat_shows(pieces: list[ChoiceDelta], usage: Usage, cuts: list[int], line_end: bytes):
    stream = as_chat(pieces, usage).replace(b"\n", line_end)
    once, cut = chat_decoder(), chat_decoder()
    assert decoded(once, stream, []) == decoded(cut, stream, cuts)
    assert (once.usage, once.completion_tokens) == (cut.usage, cut.completion_tokens)
    assert once.usage == usage


@given(replies(), USAGE, CUTS, LINES)
@settings(max_examples=150)
def test_no_cut_of_a_message_shows(pieces: list[ChoiceDelta], usage: Usage, cuts: list[int], line_end: bytes):
    stream = as_message(pieces, usage).replace(b"\n", line_end)
    once, cut = AnthropicDeltas(), AnthropicDeltas()
    assert decoded(once, stream, []) == decoded(cut, stream, cuts)
    assert (once.usage, once.completion_tokens) == (cut.usage, cut.completion_tokens)
    assert once.usage == usage


@pytest.mark.complaint("G07", "G09")
@given(replies(), USAGE)
@settings(max_examples=200)
def test_an_answer_there_and_back(pieces: list[ChoiceDelta], usage: Usage):
    """A provider's chat as a message, read by a gateway as a chat again."""
    first = decoded(chat_decoder(), as_chat(pieces, usage), [])
    assert whole(first) == whole(pieces)
    second = decoded(AnthropicDeltas(), as_message(first, usage), [])
    assert whole(second) == whole(pieces)
    third = decoded(chat_decoder(), as_chat(second, usage), [])
    assert whole(third) == whole(pieces)


@given(replies(), USAGE)
@settings(max_examples=150)
def test_whole_answers_say_what_streams_say(pieces: list[ChoiceDelta], usage: Usage):
    chat = ChatEncoder(OPENAI, REQUEST, id="1", created=1).whole(pieces, usage)
    reader = chat_decoder()
    assert whole(reader.whole(chat)) == whole(pieces)
    assert reader.usage == usage
    message = MessagesEncoder(OPENAI, REQUEST, id="1", created=1).whole(pieces, usage)
    other = AnthropicDeltas()
    said, meant = whole(other.whole(message)), whole(pieces)
    assert [json.loads(call[3]) for call in said["calls"]] == [json.loads(call[3]) for call in meant["calls"]]
    said["calls"], meant["calls"] = ([call[:3] for call in one["calls"]] for one in (said, meant))
    assert said == meant
    assert other.usage == usage


@given(st.binary(max_size=200), CUTS)
@settings(max_examples=200)
def test_no_bytes_break_a_reader(stream: bytes, cuts: list[int]):
    """Whatever a provider sends: deltas, or a failure."""
    for reader in (chat_decoder(), AnthropicDeltas()):
        for piece in (stream, b'data: {"type":"message_start","choices":[' + stream + b"]}\n\n"):
            reader.feed(piece)
        reader.close()
        assert reader.failure is not None


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation in Anthropic's words."""
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        if number:
            blocks: list[dict[str, Any]] = []
            if draw(st.booleans()):
                thought = {"type": "thinking", "thinking": draw(TEXTS), "signature": draw(OPAQUE)}
                blocks.append(thought)
            if draw(st.booleans()):
                blocks.append({"type": "redacted_thinking", "data": draw(OPAQUE)})
            if draw(st.booleans()):
                blocks.append({"type": "text", "text": draw(SPOKEN)})
            calls = [
                {"type": "tool_use", "id": f"t{number}_{n}", "name": "f", "input": draw(ARGUMENTS)}
                for n in range(draw(st.integers(0 if blocks else 1, 2)))
            ]
            made.append({"role": "assistant", "content": [*blocks, *calls]})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": [{"type": "text", "text": draw(SPOKEN)}],
                }
                for call in calls
            ]
        else:
            results = []
        source = draw(
            st.sampled_from(
                [
                    {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                    {"type": "url", "url": "https://example.com/a.png"},
                ]
            )
        )
        image = [{"type": "image", "source": source}] if draw(st.booleans()) else []
        made.append({"role": "user", "content": [*results, *image, {"type": "text", "text": draw(SPOKEN)}]})
    return made


TOOLS = [{"name": "f", "description": "Does.", "input_schema": {"type": "object"}}]


@given(turns(), st.none() | SPOKEN, st.sampled_from(["auto", "any", "none", "tool"]), st.booleans())
@settings(max_examples=150)
def test_a_request_there_and_back(sent: list[dict[str, Any]], system: str | None, mode: str, alone: bool):
    """A body of Messages, as a chat, as Messages: the same bytes of text, calls, reasoning and images."""
    choice: dict[str, Any] = {"type": mode} | ({"name": "f"} if mode == "tool" else {})
    if alone and mode != "none":
        choice["disable_parallel_tool_use"] = True
    first = {"model": "m", "max_tokens": 9, "messages": sent, "tools": TOOLS, "tool_choice": choice}
    first |= {} if system is None else {"system": system}
    neutral = messages_request(OPENAI, first)
    chat = body(
        chat_fields(neutral, reasons=False),
        model="m",
        limit_field="max_completion_tokens",
        max_tokens=9,
        stream=False,
        ask_usage=False,
    )
    second = chat_request(OPENAI, json.loads(chat))
    back = json.loads(
        body(
            messages_fields(second, most=9),
            model="m",
            limit_field="max_tokens",
            max_tokens=9,
            stream=False,
            ask_usage=False,
        )
    )
    assert back == first


@st.composite
def interleaved(draw: st.DrawFn, *, behind_calls: bool) -> list[dict[str, Any]]:
    """An assistant's blocks in any order that a chat can tell: text does not follow text, nor a call unless
    reasoning stands between. `behind_calls`: whether reasoning may follow calls.
    """
    blocks: list[dict[str, Any]] = []
    called = 0
    for number in range(draw(st.integers(1, 7))):
        before = blocks[-1]["type"] if blocks else ""
        kinds = ["tool_use"]
        if before in ("", "thinking", "redacted_thinking"):
            kinds.append("text")
        if behind_calls or not called:
            kinds += ["thinking", "redacted_thinking"]
        match draw(st.sampled_from(kinds)):
            case "text":
                blocks.append({"type": "text", "text": draw(SPOKEN)})
            case "thinking":
                blocks.append({"type": "thinking", "thinking": draw(TEXTS), "signature": draw(OPAQUE)})
            case "redacted_thinking":
                blocks.append({"type": "redacted_thinking", "data": draw(OPAQUE)})
            case _:
                called += 1
                call = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": draw(ARGUMENTS)}
                blocks.append(call)
    return blocks


def history(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation in which an assistant said this, and which goes on."""
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block["id"],
            "content": [{"type": "text", "text": "So."}],
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    user = [{"type": "text", "text": "Hi"}]
    return [
        {"role": "user", "content": user},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": results or user},
    ]


@pytest.mark.complaint("G09")
@given(interleaved(behind_calls=True), st.booleans())
@settings(max_examples=200)
def test_the_order_of_a_message_comes_back_with_a_chat(blocks: list[dict[str, Any]], stream: bool):
    """What a provider of Messages answers, told as a chat, sent back by its caller as it came."""
    message = {"type": "message", "content": blocks, "stop_reason": "end_turn"}
    deltas = AnthropicDeltas().whole(json.dumps(message).encode())
    encoder = ChatEncoder(OPENAI, REQUEST, id="1", created=1)
    if stream:
        events = encoded(encoder, deltas, Usage(1, 1)).split(b"\n\n")
        pieces = [json.loads(event[6:]) for event in events if event.startswith(b"data: {")]
        told: dict[Any, Any] = {}
        for piece in pieces:
            for choice in piece["choices"]:
                told = accumulate_delta(told, choice["delta"])
    else:
        told = json.loads(encoder.whole(deltas, Usage(1, 1)))["choices"][0]["message"]
    told = {name: value for name, value in told.items() if value is not None}
    calls = told.get("tool_calls", [])
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "So."} for call in calls]
    user = {"role": "user", "content": "Hi"}
    back = chat_request(OPENAI, {"model": "m", "messages": [user, told, *(results or [user])]})
    made = json.loads(msgspec.json.encode(messages_fields(back, most=9)["messages"]))
    assert made == history(blocks)


@given(interleaved(behind_calls=False))
@settings(max_examples=200)
def test_the_order_of_a_history_passes_through_a_chat(blocks: list[dict[str, Any]]):
    first = {"model": "m", "max_tokens": 9, "messages": history(blocks), "tools": TOOLS}
    chat = chat_fields(messages_request(OPENAI, first), reasons=False)
    second = chat_request(OPENAI, json.loads(msgspec.json.encode({"model": "m", **chat})))
    made = json.loads(msgspec.json.encode(messages_fields(second, most=9)["messages"]))
    assert made == history(blocks)
