"""Which refusals of providers are for what a request says. Shapes as providers send them, words made up."""

import json
from typing import Any

import pytest

from onward.core.failure import FailureKind as Kind
from onward.dialects import DIALECTS
from onward.wire.errors import encode_failure
from onward.wire.passing.message_events import message_error
from onward.wire.passing.refusal import refusal, stream_error

SAID = "Their own words, of their-model."
REJECTIONS: dict[str, tuple[int, Any]] = {
    "openai": (
        400,
        {"error": {"message": SAID, "type": "invalid_request_error", "code": "content_policy_violation"}},
    ),
    "openai prompt": (
        400,
        {"error": {"message": SAID, "type": "invalid_request_error", "code": "invalid_prompt"}},
    ),
    "openai images": (
        400,
        {"error": {"message": SAID, "type": "image_generation_user_error", "code": "moderation_blocked"}},
    ),
    "azure": (
        400,
        {
            "error": {
                "message": SAID,
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {
                    "code": "ResponsibleAIPolicyViolation",
                    "content_filter_result": {"violence": {"filtered": True, "severity": "medium"}},
                },
            }
        },
    ),
    "azure, inside alone": (
        400,
        {
            "error": {
                "message": SAID,
                "code": "bad_request",
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
    ),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Output blocked by content filtering policy",
            },
        },
    ),
    "deepseek": (
        400,
        {
            "error": {
                "message": "Content Exists Risk",
                "type": "invalid_request_error",
                "code": "invalid_request_error",
            }
        },
    ),
    "alibaba": (
        400,
        {"error": {"message": SAID, "type": "data_inspection_failed", "code": "data_inspection_failed"}},
    ),
    "alibaba, bare": (400, {"code": "DataInspectionFailed", "message": SAID}),
    "zhipu": (
        400,
        {"contentFilter": [{"level": 1, "role": "user"}], "error": {"code": "1301", "message": SAID}},
    ),
    "moonshot": (400, {"error": {"message": SAID, "type": "content_filter"}}),
    "openrouter": (
        403,
        {"error": {"code": 403, "message": SAID, "metadata": {"reasons": ["x"], "flagged_input": "…"}}},
    ),
    "bytedance": (
        400,
        {"error": {"code": "InputTextSensitiveContentDetected", "message": SAID, "type": "BadRequest"}},
    ),
    "minimax": (400, {"base_resp": {"status_code": 1026, "status_msg": SAID}}),
    "google": (400, [{"error": {"code": 400, "message": SAID, "status": "PROHIBITED_CONTENT"}}]),
}
OTHERS: dict[str, tuple[int, Any]] = {
    "a field": (400, {"error": {"message": SAID, "type": "invalid_request_error", "code": "invalid_value"}}),
    "our key": (403, {"error": {"message": SAID, "type": "permission_error", "code": "no"}}),
    "words of the prompt": (
        400,
        {"error": {"message": "'content_filter' is no such field", "code": "unknown"}},
    ),
    "no object": (400, ["content_filter"]),
    "no json": (400, None),
    "a rate": (429, {"error": {"type": "content_filter"}}),
}


@pytest.mark.covers("P-9", "K-7")
@pytest.mark.parametrize("name", REJECTIONS)
def test_a_refusal_for_content_is_told_apart(name: str) -> None:
    status, body = REJECTIONS[name]
    failure = refusal(status, {}, 0, json.dumps(body).encode())
    assert failure.kind is Kind.UPSTREAM_CONTENT_REJECTED
    for dialect in DIALECTS.values():
        encoded = encode_failure(dialect, failure)
        assert encoded.status == 400
        assert SAID.encode() not in encoded.body
        assert b"retry-after" not in dict(encoded.headers)
    shown = json.loads(encode_failure(DIALECTS["prentis"], failure).body)["error"]
    assert (shown["code"], shown["type"]) == ("UPSTREAM_CONTENT_REJECTED", "invalid_request_error")


@pytest.mark.parametrize("name", REJECTIONS)
def test_and_in_a_stream(name: str) -> None:
    _, body = REJECTIONS[name]
    error = body.get("error", body) if isinstance(body, dict) else body[0]["error"]
    assert stream_error(error).kind is Kind.UPSTREAM_CONTENT_REJECTED
    assert message_error(error).kind is Kind.UPSTREAM_CONTENT_REJECTED


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_refusal_is_not(name: str) -> None:
    status, body = OTHERS[name]
    raw = b"<html>content_filter</html>" if body is None else json.dumps(body).encode()
    assert refusal(status, {}, 0, raw).kind is not Kind.UPSTREAM_CONTENT_REJECTED
