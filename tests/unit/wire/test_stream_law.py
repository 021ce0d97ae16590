"""The law of both encoders: the pieces of a stream, joined as clients join them, are the whole."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import ChoiceDelta, FinishReason, TokenEntry, TokenSpelling, ToolCallDelta, fold
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.dialects.schema import Dialect
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from tests.api import join_completion
from tests.unit.wire.encoders import chat, completion, events
from tests.unit.wire.test_chat import STRICT

LOGPROBS = st.floats(min_value=-50, max_value=0)
SPELLINGS = st.builds(
    TokenSpelling, st.integers(0, 99), st.text(max_size=4), st.none() | st.binary(max_size=4), LOGPROBS
)
ENTRIES = st.builds(TokenEntry, SPELLINGS, st.none() | st.lists(SPELLINGS, max_size=3), st.integers(0, 99))
CALLS = st.lists(st.text(max_size=6), max_size=3)


@st.composite
def streams(draw: st.DrawFn, *, of_chat: bool) -> list[ChoiceDelta]:
    """Deltas of one to three choices, interleaved, each with exactly one finish, on its last."""
    lanes: list[list[ChoiceDelta]] = []
    for index in range(draw(st.integers(1, 3))):
        lane = [
            ChoiceDelta(
                index=index,
                text=draw(st.text(max_size=5)),
                reasoning=draw(st.text(max_size=5)) if of_chat else "",
                entries=draw(st.lists(ENTRIES, max_size=2)),
                token_ids=draw(st.lists(st.integers(0, 99), max_size=3)),
            )
            for _ in range(draw(st.integers(1, 4)))
        ]
        lane[0].prompt_token_ids = draw(st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3))
        if of_chat and draw(st.booleans()):
            pieces = draw(CALLS)
            lane.append(
                ChoiceDelta(index=index, tool_calls=[ToolCallDelta(0, "call_a", "f", "".join(pieces[:1]))])
            )
            lane += [
                ChoiceDelta(index=index, tool_calls=[ToolCallDelta(0, arguments=piece)])
                for piece in pieces[1:]
            ]
        lane[-1].finish = draw(st.sampled_from(FinishReason))
        lanes.append(lane)
    woven: list[ChoiceDelta] = []
    while lanes:
        lane = draw(st.sampled_from(lanes))
        woven.append(lane.pop(0))
        if not lane:
            lanes.remove(lane)
    return woven


OPTIONS = st.fixed_dictionaries(
    {
        "logprobs": st.none() | st.integers(0, 2),
        "return_token_ids": st.booleans(),
        "include_usage": st.booleans(),
        "continuous_usage": st.booleans(),
    }
)
EVERY = pytest.mark.parametrize("dialect", [*DIALECTS.values(), STRICT], ids=lambda dialect: dialect.name)
USAGE = Usage(3, 4, 1)


@EVERY
@pytest.mark.fault("D05", "D12", "D14")
@settings(deadline=None)
@given(deltas=streams(of_chat=False), options=OPTIONS)
def test_a_streamed_completion_is_the_whole_one(
    dialect: Dialect, deltas: list[ChoiceDelta], options: dict[str, Any]
) -> None:
    encoder = CompletionEncoder(dialect, completion(stream=True, **options), id="1", created=1)
    found = events(b"".join(encoder.events(delta, USAGE) for delta in deltas) + encoder.end(USAGE))
    assert found.pop() == "[DONE]"
    whole = json.loads(encoder.body(fold(deltas), USAGE))
    joined = join_completion(found)
    assert joined["choices"] == whole["choices"]
    assert joined["usage"] in (None, whole["usage"])


@EVERY
@pytest.mark.fault("D05", "D12", "D16", "D17")
@settings(deadline=None)
@given(deltas=streams(of_chat=True), options=OPTIONS)
def test_a_streamed_chat_is_the_whole_one(
    dialect: Dialect, deltas: list[ChoiceDelta], options: dict[str, Any]
) -> None:
    encoder = ChatEncoder(dialect, chat(stream=True, **options), id="1", created=1)
    found = events(b"".join(encoder.events(delta, USAGE) for delta in deltas) + encoder.end(USAGE))
    assert found.pop() == "[DONE]"
    whole = json.loads(encoder.body(fold(deltas), USAGE))
    assert [joined(found, choice["index"]) for choice in whole["choices"]] == [
        essence(choice) for choice in whole["choices"]
    ]


def essence(choice: dict[str, Any]) -> dict[str, Any]:
    """What a choice says, whichever way it came."""
    message = choice["message"]
    return {
        "content": message.get("content") or "",
        "reasoning": message.get("reasoning_content") or "",
        "calls": message.get("tool_calls") or [],
        "logprobs": (choice["logprobs"] or {}).get("content", []),
        "token_ids": choice.get("token_ids", []),
        "prompt_token_ids": choice.get("prompt_token_ids"),
        "finish_reason": choice["finish_reason"],
    }


def joined(found: list[Any], index: int) -> dict[str, Any]:
    """The pieces of one choice, joined as a client would."""
    pieces = [
        event["choices"][0] for event in found if event["choices"] and event["choices"][0]["index"] == index
    ]
    assert pieces[0]["delta"]["role"] == "assistant"
    assert [piece["finish_reason"] is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    whole = {"message": message, "logprobs": {"content": []}, "token_ids": [], "finish_reason": None}
    for piece in pieces:
        for key in ("content", "reasoning_content"):
            message[key] += piece["delta"].get(key) or ""
        for call in piece["delta"].get("tool_calls") or []:
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({key: call[key] for key in ("id", "type", "function")})
            else:
                assert set(call) == {"index", "function"}
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        whole["logprobs"]["content"] += (piece["logprobs"] or {}).get("content", [])
        whole["token_ids"] += piece.get("token_ids", [])
        if "prompt_token_ids" in piece:
            assert piece is pieces[0]
            whole["prompt_token_ids"] = piece["prompt_token_ids"]
        whole["finish_reason"] = piece["finish_reason"]
    return essence(whole)
