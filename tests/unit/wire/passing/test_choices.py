"""What of a provider's choices passes where only what the API knows does."""

import json
from typing import Any

import pytest

from onward.wire.passing.choices import known_answer, known_choices

HEAD = b'"id":"c","model":"mine"'


def told(choice: dict[str, Any]) -> dict[str, Any]:
    [shown] = json.loads(known_choices(json.dumps([choice]).encode()))
    return shown


@pytest.mark.covers("P-13")
@pytest.mark.parametrize(
    ("said", "text", "chat"),
    [
        (None, None, None),
        ("stop", "stop", "stop"),
        ("length", "length", "length"),
        ("content_filter", "content_filter", "content_filter"),
        ("tool_calls", "stop", "tool_calls"),
        ("", None, None),
        ("eos_token", "stop", "stop"),
        ("abort", "stop", "stop"),
        ("max_tokens", "length", "length"),
        ("model_length", "length", "length"),
        ("safety", "content_filter", "content_filter"),
        ("caf\u00e9", "stop", "stop"),
        (7, "stop", "stop"),
        ({"type": "stop"}, "stop", "stop"),
    ],
)
def test_a_reason_is_one_that_the_api_knows(said: Any, text: str | None, chat: str | None) -> None:
    assert told({"index": 0, "text": "a", "finish_reason": said})["finish_reason"] == text
    assert told({"index": 0, "message": {}, "finish_reason": said})["finish_reason"] == chat


@pytest.mark.covers("P-5", "P-13")
def test_members_of_the_providers_own_are_left_out() -> None:
    choice = {
        "native_finish_reason": "x",
        "text": 'a"]},{',
        "index": 0,
        "logprobs": {"tokens": []},
        "by": [{}],
    }
    assert told(choice) == {"text": 'a"]},{', "index": 0, "logprobs": None}


@pytest.mark.covers("P-5")
def test_what_is_known_keeps_its_bytes() -> None:
    raw = b'[ {"index": 0, "text": "a\\u00e9", "logprobs": null, "finish_reason": null} ,{"index":1,"delta":{"x":[1]}}]'
    assert known_choices(raw) is raw
    for odd in (b"[]", b"[ ]", b"[1, null]", b"null", b'{"a":1}', b'"x"'):
        assert known_choices(odd) is odd


@pytest.mark.covers("P-5")
def test_an_answer_of_several_choices() -> None:
    body = b'{"by":1,"choices":[{"index":0,"text":"a","x":1},{"index":1,"text":"b"}],"model":"theirs","id":"theirs too"}'
    assert json.loads(known_answer(body, HEAD)) == {
        "choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}],
        "model": "mine",
        "id": "c",
    }
