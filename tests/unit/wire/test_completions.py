"""Answers of the completions surface."""

import json

import pytest

from onward.core.delta import FinishReason
from onward.core.failure import Failure, FailureKind
from onward.core.request import CompletionRequest, TokensPart
from onward.core.usage import Usage
from onward.dialects.openai import OPENAI
from onward.wire.completions import CompletionEncoder
from tests.unit.wire.encoders import USAGE, USAGE_FIELDS, choices, completion, delta, entry, events, spelling


def encoder(**options: object) -> CompletionEncoder:
    return CompletionEncoder(OPENAI, completion(**options), id="1", created=1700000000)


@pytest.mark.covers("O-1")
def test_a_whole_answer_has_the_documented_shape() -> None:
    body = encoder().body([delta(text=" Paris.", finish=FinishReason.STOP)], USAGE)
    assert json.loads(body) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "org/m",
        "choices": [{"index": 0, "text": " Paris.", "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE_FIELDS,
    }


@pytest.mark.covers("O-1", "TC-7")
@pytest.mark.fault("D13")
def test_usage_is_an_event_of_its_own_only_when_asked() -> None:
    asked = encoder(stream=True, include_usage=True)
    piece = events(asked.events(delta(text="x"), USAGE))
    assert piece[0]["usage"] is None
    end = events(asked.end(USAGE))
    assert end[0]["choices"] == []
    assert end[0]["usage"] == USAGE_FIELDS
    assert {key: end[0][key] for key in ("id", "object", "created", "model")} == {
        key: piece[0][key] for key in ("id", "object", "created", "model")
    }
    assert end[1] == "[DONE]"
    not_asked = encoder(stream=True)
    assert "usage" not in events(not_asked.events(delta(text="x"), USAGE))[0]
    assert events(not_asked.end(USAGE)) == ["[DONE]"]


@pytest.mark.fault("D13")
def test_running_usage_rides_on_every_event() -> None:
    running = encoder(stream=True, include_usage=True, continuous_usage=True)
    for count in (1, 2):
        event = events(running.events(delta(text="x"), Usage(5, count)))[0]
        assert event["usage"]["completion_tokens"] == count


@pytest.mark.covers("O-1")
@pytest.mark.fault("D12")
def test_a_delta_is_one_event_with_its_own_index() -> None:
    stream = encoder(stream=True)
    text = 'a "quoted"\n line\u2028 \U0001f600'
    assert choices(stream.events(delta(3, text=text), USAGE)) == [
        {"index": 3, "text": text, "logprobs": None, "finish_reason": None}
    ]
    assert choices(stream.events(delta(1, finish=FinishReason.LENGTH), USAGE)) == [
        {"index": 1, "text": "", "logprobs": None, "finish_reason": "length"}
    ]


@pytest.mark.covers("TC-8")
def test_token_ids_are_there_only_when_asked() -> None:
    piece = delta(text="x", token_ids=[7], prompt_token_ids=[1, 2])
    asked = choices(encoder(return_token_ids=True).events(piece, USAGE))[0]
    assert (asked["token_ids"], asked["prompt_token_ids"]) == ([7], [1, 2])
    later = choices(encoder(return_token_ids=True).events(delta(text="x"), USAGE))[0]
    assert later["token_ids"] == []
    assert "prompt_token_ids" not in later
    plain = choices(encoder().events(piece, USAGE))[0]
    assert not {"token_ids", "prompt_token_ids"} & set(plain)


@pytest.mark.covers("TC-9")
@pytest.mark.fault("D02", "D04")
def test_log_probabilities_are_four_arrays() -> None:
    entries = [
        entry("The", None, None),
        entry(" cat", -1.5, [spelling(" dog", -0.5, 9), spelling(" cat", -1.5)], 3),
        entry(" x", -3.25, [spelling(" dog", -0.5, 9), spelling(" cow", -1.0, 8)], 7),
    ]
    piece = delta(text="The cat x", entries=entries)
    assert choices(encoder(logprobs=2).events(piece, USAGE))[0]["logprobs"] == {
        "tokens": ["The", " cat", " x"],
        "token_logprobs": [None, -1.5, -3.25],
        "top_logprobs": [
            None,
            {" dog": -0.5, " cat": -1.5},
            {" dog": -0.5, " cow": -1.0, " x": -3.25},
        ],
        "text_offset": [0, 3, 7],
    }


@pytest.mark.fault("D04")
def test_no_alternatives_leave_the_token_itself() -> None:
    piece = delta(text="a", entries=[entry("a", -0.25, [])])
    assert choices(encoder(logprobs=0).events(piece, USAGE))[0]["logprobs"]["top_logprobs"] == [{"a": -0.25}]
    assert choices(encoder(logprobs=0).events(delta(), USAGE))[0]["logprobs"]["tokens"] == []


@pytest.mark.covers("TC-9")
def test_of_alternatives_with_one_spelling_the_generated_one_stays() -> None:
    top = [spelling("a", -0.1, 5), spelling("a", -0.7, 6), spelling("b", -2.0, 7), spelling("b", -3.0, 8)]
    chosen = entry("a", -0.7, top)
    piece = delta(text="a", entries=[chosen])
    found = choices(encoder(logprobs=4).events(piece, USAGE))[0]["logprobs"]["top_logprobs"][0]
    assert found == {"a": -0.7, "b": -2.0}


def test_log_probabilities_are_numbers_that_json_has() -> None:
    piece = delta(entries=[entry("a", float("-inf"), [spelling("b", 1e-9, 2)])])
    found = choices(encoder(logprobs=1).events(piece, USAGE))[0]["logprobs"]
    assert found["token_logprobs"] == [-9999.0]
    assert found["top_logprobs"] == [{"b": 0.0, "a": -9999.0}]


@pytest.mark.covers("O-5")
def test_a_failure_in_a_stream_is_an_event_without_choices() -> None:
    found = events(encoder(stream=True).failure(Failure(FailureKind.ENGINE_FAILED, "gone")))
    assert found == [
        {"error": {"message": "gone", "type": "service_unavailable", "param": None, "code": "engine_failed"}}
    ]


@pytest.mark.covers("TC-10")
def test_the_ids_of_a_prompt_in_parts_are_not_told() -> None:
    asked = CompletionRequest(
        model="m", prompts=[], prompt_chunks=[TokensPart([1, 2])], return_token_ids=True, stream=True
    )
    made = CompletionEncoder(OPENAI, asked, id="1", created=1)
    first = delta(text="a", token_ids=[7], prompt_token_ids=[1, 2])
    (choice,) = choices(made.events(first, USAGE))
    assert choice["token_ids"] == [7]
    assert "prompt_token_ids" not in choice
    assert "prompt_token_ids" not in json.loads(made.body([first], USAGE))["choices"][0]
