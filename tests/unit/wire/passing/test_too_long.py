"""Which refusals of providers are for the length of a request. Shapes as providers send them."""

import json
from typing import Any

import pytest

from onward.core.failure import FailureKind as Kind
from onward.dialects import DIALECTS
from onward.wire.errors import encode_failure
from onward.wire.passing.message_events import message_error
from onward.wire.passing.refusal import refusal, stream_error

REFUSALS: dict[str, tuple[int, Any]] = {
    "openai": (400, {"error": {"message": "", "param": "messages", "code": "context_length_exceeded"}}),
    "by its sentence": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, you requested 9000.",
                "type": "BadRequestError",
                "code": 400,
            }
        },
    ),
    "flat": (400, {"object": "error", "message": "The maximum context length is 2048 tokens", "code": 400}),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        },
    ),
    "anthropic, with its output": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            },
        },
    ),
    "llama.cpp": (400, {"error": {"code": 400, "message": "too large", "type": "exceed_context_size_error"}}),
    "sglang": (
        400,
        {
            "object": "error",
            "message": "The input (9 tokens) is longer than the model's context length (8 tokens).",
        },
    ),
    "google, in a list": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (9) exceeds the maximum number of tokens (8)",
                }
            }
        ],
    ),
    "another one of ours": (
        400,
        {
            "type": "error",
            "error": {"message": "The prompt has 9 tokens and the context of this model is 8 tokens."},
        },
    ),
    "inside alone": (
        400,
        {"error": {"message": "", "code": "bad_request", "innererror": {"code": "ContextLengthExceeded"}}},
    ),
    "413": (413, {"error": {"code": "context_length_exceeded", "message": "no"}}),
}
OTHERS: dict[str, tuple[int, Any]] = {
    "a field": (400, {"error": {"message": "'max_tokens' is too long a name", "code": "invalid_value"}}),
    "a rate": (429, {"error": {"code": "context_length_exceeded"}}),
    "no object": (400, ["context_length_exceeded"]),
    "no json": (400, None),
}


@pytest.mark.covers("P-9", "K-7")
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_for_its_length_is_told_apart(name: str) -> None:
    """As the same request to a model served here: whoever has to shorten a conversation looks for the code."""
    status, body = REFUSALS[name]
    failure = refusal(status, {}, 0, json.dumps(body).encode())
    assert failure.kind is Kind.UPSTREAM_CONTEXT_EXCEEDED
    codes = {
        "openai": "context_length_exceeded",
        "prentis": "CONTEXT_LENGTH_EXCEEDED",
        "tokens": "invalid_request",
    }
    for dialect, code in codes.items():
        encoded = encode_failure(DIALECTS[dialect], failure)
        assert encoded.status == (status if dialect == "tokens" else 400)
        error = json.loads(encoded.body)["error"]
        assert (error["code"], error["message"]) == (code, failure.message)


@pytest.mark.parametrize("name", REFUSALS)
def test_and_in_a_stream(name: str) -> None:
    _, body = REFUSALS[name]
    outer = body[0] if isinstance(body, list) else body
    assert stream_error(outer.get("error", outer)).kind is Kind.UPSTREAM_CONTEXT_EXCEEDED
    assert message_error(outer.get("error", outer)).kind is Kind.UPSTREAM_CONTEXT_EXCEEDED


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_refusal_is_not(name: str) -> None:
    status, body = OTHERS[name]
    raw = b"<html>context_length_exceeded</html>" if body is None else json.dumps(body).encode()
    assert refusal(status, {}, 0, raw).kind is not Kind.UPSTREAM_CONTEXT_EXCEEDED
