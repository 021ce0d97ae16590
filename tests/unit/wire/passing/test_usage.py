"""What a provider reports, as far as it can be believed."""

from typing import Any

import pytest

from onward.core.usage import Usage
from onward.wire.passing.usage import likely_tokens, outside_ascii, read_usage


@pytest.mark.covers("K-9")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7}, Usage(5, 7)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
        (
            {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}},
            Usage(5, 7, 3),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": None}, Usage(5, 7)),
        ({"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {}}, Usage(5, 7)),
        ({"prompt_tokens": 5, "completion_tokens": 7, "prompt_cache_hit_tokens": 2}, Usage(5, 7, 2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 6}},
            Usage(5, 7),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": -1}},
            Usage(5, 7),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": "3"}},
            Usage(5, 7),
        ),
        ({"prompt_tokens": -1, "completion_tokens": 7}, None),
        ({"prompt_tokens": 5, "completion_tokens": 7.0}, None),
        ({"prompt_tokens": "5", "completion_tokens": 7}, None),
        ({"prompt_tokens": True, "completion_tokens": 7}, None),
        ({"prompt_tokens": 5, "completion_tokens": 2**31}, None),
        ({"prompt_tokens": 5}, None),
        ({}, None),
        (None, None),
        ([5, 7], None),
        ("5", None),
    ],
)
def test_usage_is_believed_or_not(reported: Any, usage: Usage | None) -> None:
    assert read_usage(reported) == usage


def test_likely_tokens_are_rounded_up() -> None:
    assert [likely_tokens(size, 0) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [likely_tokens(size, size) for size in (0, 1, 3, 4)] == [0, 1, 1, 2]
    assert likely_tokens(7, 3) == 2
    assert outside_ascii("aé日".encode()) == 5
