"""Answers of the chat surface."""

import json

import msgspec
import pytest

from onward.core.delta import FinishReason, ToolCallDelta
from onward.dialects.openai import OPENAI
from onward.dialects.schema import Response, Stream, UsageWhen
from onward.wire.chat import ChatEncoder
from tests.unit.wire.encoders import USAGE, USAGE_FIELDS, chat, choices, delta, entry, events, spelling

STRICT = msgspec.structs.replace(
    OPENAI,
    name="strict",
    response=Response(
        message_keys=("role", "content", "reasoning_content", "name", "tool_calls", "tool_call_id")
    ),
    stream=Stream(
        usage=UsageWhen.ALWAYS,
        null_usage=False,
        first_content=None,
        delta_keys=("content", "reasoning_content"),
        error_keys=("message", "type"),
    ),
)
"""A dialect that differs in every rule of its answers."""


def encoder(**options: object) -> ChatEncoder:
    return ChatEncoder(OPENAI, chat(**options), id="1", created=1700000000)


@pytest.mark.covers("O-2")
def test_a_whole_answer_has_the_documented_shape() -> None:
    body = encoder().body([delta(text="Hello.", finish=FinishReason.STOP)], USAGE)
    assert json.loads(body) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "org/m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello.",
                    "refusal": None,
                    "reasoning_content": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE_FIELDS,
    }


@pytest.mark.covers("O-2")
def test_a_stream_opens_with_the_role_and_ends_with_an_empty_delta() -> None:
    stream = encoder(stream=True)
    found = choices(
        stream.events(delta(text="Hel"), USAGE)
        + stream.events(delta(text="lo"), USAGE)
        + stream.events(delta(text=".", finish=FinishReason.STOP), USAGE)
    )
    assert [choice["delta"] for choice in found] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {"content": "."},
        {},
    ]
    assert [choice["finish_reason"] for choice in found] == [None, None, None, None, "stop"]
    assert events(stream.end(USAGE)) == ["[DONE]"]


def test_every_choice_opens_by_itself() -> None:
    stream = encoder(stream=True, n=2)
    found = choices(stream.events(delta(1, text="b"), USAGE) + stream.events(delta(0, text="a"), USAGE))
    assert [(choice["index"], choice["delta"]) for choice in found] == [
        (1, {"role": "assistant", "content": ""}),
        (1, {"content": "b"}),
        (0, {"role": "assistant", "content": ""}),
        (0, {"content": "a"}),
    ]


@pytest.mark.covers("O-3")
@pytest.mark.fault("D18")
def test_reasoning_has_a_key_of_its_own() -> None:
    stream = encoder(stream=True)
    found = choices(stream.events(delta(text="b", reasoning="a"), USAGE))
    assert found[1]["delta"] == {"reasoning_content": "a", "content": "b"}
    message = json.loads(encoder().body([delta(text="b", reasoning="a")], USAGE))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("a", "b")


@pytest.mark.fault("D16", "D17")
def test_a_call_is_named_once_and_indexed_always() -> None:
    stream = encoder(stream=True)
    pieces = [
        ToolCallDelta(0, "call_a", "f", '{"x"'),
        ToolCallDelta(0, arguments=":1}"),
        ToolCallDelta(1, "call_b", "g", "{}"),
    ]
    found = choices(b"".join(stream.events(delta(tool_calls=[piece]), USAGE) for piece in pieces))[1:]
    assert [choice["delta"]["tool_calls"] for choice in found] == [
        [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 0, "function": {"arguments": ":1}"}}],
        [{"index": 1, "id": "call_b", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
    ]


def test_calls_of_a_whole_answer_take_the_place_of_content() -> None:
    calls = [ToolCallDelta(0, "call_a", "f", "{}")]
    whole = delta(tool_calls=calls, finish=FinishReason.TOOL_CALLS)
    choice = json.loads(encoder().body([whole], USAGE))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    empty = json.loads(encoder().body([delta(finish=FinishReason.STOP)], USAGE))["choices"][0]["message"]
    assert empty["content"] == ""
    assert "tool_calls" not in empty


@pytest.mark.covers("O-2")
@pytest.mark.fault("D02", "D04")
def test_log_probabilities_are_objects() -> None:
    entries = [
        entry("é", -1.5, [spelling("b", -0.5, 9), spelling("é", -1.5)]),
        entry("x", -3.0, [spelling("b", -0.5, 9), spelling("c", -1.0, 8)]),
    ]
    stream = encoder(stream=True, logprobs=2)
    found = choices(stream.events(delta(text="éx", entries=entries), USAGE))
    b = {"token": "b", "logprob": -0.5, "bytes": [98]}
    e = {"token": "é", "logprob": -1.5, "bytes": [195, 169]}
    c = {"token": "c", "logprob": -1.0, "bytes": [99]}
    x = {"token": "x", "logprob": -3.0, "bytes": [120]}
    assert found[0]["logprobs"] is None
    assert found[1]["logprobs"] == {
        "content": [{**e, "top_logprobs": [b, e]}, {**x, "top_logprobs": [b, c, x]}],
        "refusal": None,
    }
    alone = choices(encoder(logprobs=0).events(delta(text="é", entries=entries[:1]), USAGE))[1]
    assert alone["logprobs"]["content"] == [{**e, "top_logprobs": []}]


def test_a_control_token_has_no_bytes() -> None:
    control = delta(entries=[entry("<|end|>", -1.0, [])])
    control.entries[0] = msgspec.structs.replace(
        control.entries[0], token=spelling("<|end|>", -1.0, own=None)
    )
    found = choices(encoder(logprobs=0).events(control, USAGE))
    assert found[1]["logprobs"]["content"][0]["bytes"] is None


@pytest.mark.covers("TC-8")
def test_token_ids_are_per_choice_and_the_prompt_rides_on_the_first() -> None:
    stream = encoder(stream=True, return_token_ids=True)
    found = choices(
        stream.events(delta(text="a", token_ids=[7], prompt_token_ids=[1, 2]), USAGE)
        + stream.events(delta(token_ids=[8]), USAGE)
        + stream.events(delta(token_ids=[9], finish=FinishReason.STOP), USAGE)
    )
    assert [choice["token_ids"] for choice in found] == [[], [7], [8], [9]]
    assert ["prompt_token_ids" in choice for choice in found] == [True, False, False, False]
    assert found[0]["prompt_token_ids"] == [1, 2]
    assert [choice["delta"] for choice in found[2:]] == [{"content": ""}, {}]
    whole = delta(text="a", token_ids=[7, 8, 9], prompt_token_ids=[1, 2], finish=FinishReason.STOP)
    choice = json.loads(encoder(return_token_ids=True).body([whole], USAGE))["choices"][0]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == ([7, 8, 9], [1, 2])


def test_another_dialect_is_other_data() -> None:
    """Keys of messages and deltas, usage unasked, errors: all of it out of the table."""
    stream = ChatEncoder(STRICT, chat(stream=True), id="1", created=1)
    found = choices(stream.events(delta(reasoning="r", finish=FinishReason.STOP), USAGE))
    assert [choice["delta"] for choice in found] == [
        {"role": "assistant", "content": None, "reasoning_content": None},
        {"content": None, "reasoning_content": "r"},
        {"content": None, "reasoning_content": None},
    ]
    assert events(stream.end(USAGE))[0]["usage"] == USAGE_FIELDS
    message = json.loads(stream.body([delta(text="x")], USAGE))["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": "x",
        "reasoning_content": None,
        "name": None,
        "tool_calls": None,
        "tool_call_id": None,
    }
