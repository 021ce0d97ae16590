"""A provider's unstreamed answer."""

import json
from typing import Any

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.wire.passing.whole import read_whole

COUNTS = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def body(separators: tuple[str, str] = (",", ":"), **fields: Any) -> bytes:
    choice = {"index": 0, "text": "some words", "finish_reason": "stop"}
    whole = {"id": "c", "model": "theirs", "choices": [choice], "usage": COUNTS, **fields}
    return json.dumps(whole, separators=separators).encode()


@pytest.mark.covers("K-1", "K-9")
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " : ")])
def test_the_model_is_the_callers_and_all_else_is_untouched(separators: tuple[str, str]) -> None:
    answer = read_whole(body(separators), "mine")
    assert answer.body == body(separators, model="mine")
    assert answer.usage == Usage(5, 7)
    assert answer.finish == ["stop"]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x":{"model":"theirs"},"model":"theirs","choices":[{"text":"\\"model\\""}]}',
        b'{"m\\u006fdel":"theirs","choices":[{"text":"a"}]}',
        b'{"choices":[{"text":"\\u00e9"}],"model":"theirs"}',
        b'{"choices":[{"text":"\\ud83d"}],"model":"theirs"}',
        b'{"choices":[{"text":"a","logprobs":{"token_logprobs":[-Infinity]}}],"model":"theirs"}',
    ],
)
def test_only_the_outermost_model_is_renamed(raw: bytes) -> None:
    place = raw.rindex(b'"theirs"') if raw.endswith(b'theirs"}') else raw.rindex(b'"theirs",')
    assert read_whole(raw, "mine").body == raw[:place] + b'"mine"' + raw[place + 8 :]


@pytest.mark.parametrize("text", [b'"a"', b'"model"'])
def test_an_answer_without_a_model_or_of_the_same_is_as_it_is(text: bytes) -> None:
    raw = b'{"choices":[{"text":%b}]}' % text
    assert read_whole(raw, "mine").body == raw
    assert read_whole(body(model="mine"), "mine").body == body(model="mine")


@pytest.mark.covers("K-9")
@pytest.mark.parametrize(
    "counts", [None, {}, {**COUNTS, "completion_tokens": 0}, {**COUNTS, "prompt_tokens": -1}]
)
def test_usage_that_is_missing_is_estimated(counts: Any) -> None:
    answer = read_whole(body(usage=counts), "mine")
    assert answer.usage is None
    assert answer.estimate(4) == Usage(4, 3)


def test_a_chat_is_estimated_by_all_its_parts() -> None:
    message = {
        "content": "x" * 40,
        "reasoning_content": "y" * 40,
        "tool_calls": [{"function": {"name": "f" * 8, "arguments": "z" * 40}}],
    }
    answer = read_whole(body(choices=[{"message": message}], usage=None), "mine")
    assert answer.completion_tokens == 32
    assert answer.finish == []


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", FailureKind.UPSTREAM_UNAVAILABLE),
        (b"<html>secret</html>", FailureKind.UPSTREAM_UNAVAILABLE),
        (b"[]", FailureKind.UPSTREAM_UNAVAILABLE),
        (b'{"choices":[]}', FailureKind.UPSTREAM_UNAVAILABLE),
        (b'{"choices":"secret"}', FailureKind.UPSTREAM_UNAVAILABLE),
        (b'{"model":"theirs","usage":{}}', FailureKind.UPSTREAM_UNAVAILABLE),
        (body()[:-1], FailureKind.UPSTREAM_UNAVAILABLE),
        (b"data: " + body() + b"\n\n", FailureKind.UPSTREAM_UNAVAILABLE),
        (b"[" * 100_000, FailureKind.UPSTREAM_UNAVAILABLE),
        (b'{"error":{"message":"secret"}}', FailureKind.UPSTREAM_UNAVAILABLE),
        (b'{"error":{"message":"secret","code":429}}', FailureKind.UPSTREAM_RATE_LIMITED),
        (b'{"error":{"message":"secret","code":400}}', FailureKind.INVALID_REQUEST),
    ],
)
def test_what_is_no_answer_is_a_failure(raw: bytes, kind: FailureKind) -> None:
    with pytest.raises(Failure) as caught:
        read_whole(raw, "mine")
    assert caught.value.kind is kind
    assert "secret" not in caught.value.message
