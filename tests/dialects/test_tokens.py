"""The `tokens` dialect, a row for each statement that needs no provider."""

import json
from typing import Any

import pytest

from onward.core.failure import Failure, FailureKind, invalid
from onward.core.request import ChatRequest, CompletionRequest
from onward.core.usage import Usage
from onward.dialects.openai import OPENAI
from onward.dialects.openapi import openapi
from onward.dialects.reference import parse
from onward.dialects.schema import Action, HeaderValue, UsageWhen
from onward.dialects.tokens import TOKENS
from onward.wire.body import check_body_headers
from onward.wire.completions import CompletionEncoder
from onward.wire.errors import encode_failure, failure_event
from onward.wire.requests import chat_request, completion_request

USER = {"role": "user", "content": "Hello"}
KIND = FailureKind
FAILURES = [
    # statement, kind, status, code
    ("K-2", KIND.INVALID_REQUEST, 400, "invalid_request"),
    ("K-3", KIND.UNKNOWN_MODEL, 404, "model_not_found"),
    ("K-3", KIND.MODEL_NOT_ALLOWED, 404, "model_not_found"),
    ("K-5", KIND.BODY_TOO_LARGE, 413, "request_entity_too_large"),
    ("K-6", KIND.SURFACE_UNSUPPORTED, 400, "endpoint_not_supported_for_model"),
    ("K-7", KIND.UPSTREAM_UNAVAILABLE, 502, "upstream_unreachable"),
    ("K-7", KIND.UPSTREAM_TIMEOUT, 502, "upstream_unreachable"),
    ("K-7", KIND.UPSTREAM_RATE_LIMITED, 429, "rate_limit_exceeded"),
    ("K-10", KIND.INSUFFICIENT_BALANCE, 402, "insufficient_balance"),
    ("K-10", KIND.BUDGET_EXCEEDED, 402, "spend_cap_reached"),
    ("K-11", KIND.RATE_LIMITED, 429, "rate_limit_exceeded"),
    ("K-7", KIND.INVALID_KEY, 401, "invalid_api_key"),
    ("K-7", KIND.TENANT_SUSPENDED, 403, "tenant_suspended"),
    ("K-7", KIND.AGREEMENT_REQUIRED, 403, "agreement_required"),
    ("K-7", KIND.UNKNOWN_ROUTE, 404, "invalid_request"),
    ("K-7", KIND.METHOD_NOT_ALLOWED, 405, "invalid_request"),
    ("K-7", KIND.CONTEXT_LENGTH_EXCEEDED, 400, "context_length_exceeded"),
    ("K-7", KIND.PAYMENT_REQUIRED, 402, "payment_required"),
    ("K-7", KIND.DEADLINE_EXCEEDED, 504, "deadline_exceeded"),
    ("K-7", KIND.CANCELLED, 499, "request_cancelled"),
    ("K-7", KIND.IDEMPOTENCY_CONFLICT, 409, "idempotency_conflict"),
    ("K-7", KIND.ENGINE_STARTING, 503, "engine_starting"),
    ("K-7", KIND.STORE_DOWN, 503, "store_down"),
    ("K-7", KIND.INTERNAL, 500, "internal_error"),
]


def completion(**body: Any) -> CompletionRequest:
    return completion_request(TOKENS, {"model": "m", "prompt": "p", **body})


def chat(**body: Any) -> ChatRequest:
    return chat_request(TOKENS, {"model": "m", "messages": [USER], **body})


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        pytest.param(*row, marks=pytest.mark.covers(statement), id=row[0].value)
        for statement, *row in FAILURES
    ],
)
def test_each_failure_has_its_status_and_code(kind: FailureKind, status: int, code: str) -> None:
    encoded = encode_failure(TOKENS, Failure(kind, "What to change."))
    assert encoded.status == status
    assert json.loads(encoded.body)["error"]["code"] == code
    assert (b"retry-after" in dict(encoded.headers)) == (status in (429, 503))


@pytest.mark.covers("K-7", "K-12")
@pytest.mark.parametrize(
    ("kind", "upstream", "shown"),
    [
        (KIND.INVALID_REQUEST, 422, 422),
        (KIND.UPSTREAM_UNAVAILABLE, 500, 500),
        (KIND.UPSTREAM_UNAVAILABLE, 503, 503),
        (KIND.UPSTREAM_UNAVAILABLE, None, 502),
        (KIND.UPSTREAM_TIMEOUT, 504, 504),
        (KIND.RATE_LIMITED, 400, 429),
    ],
)
def test_the_only_providers_status_is_passed_on(kind: FailureKind, upstream: int | None, shown: int) -> None:
    failure = Failure(kind, "It failed.", upstream_status=upstream, retry_after=9)
    encoded = encode_failure(TOKENS, failure)
    assert encoded.status == shown
    assert dict(encoded.headers).get(b"retry-after") == (b"9" if shown in (429, 503) else None)
    assert encode_failure(OPENAI, failure).status == OPENAI.errors[kind].status


@pytest.mark.covers("K-2")
@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/json; charset=latin-1"])
def test_a_body_of_another_type_has_no_model(content_type: str | None) -> None:
    with pytest.raises(Failure) as caught:
        check_body_headers(content_type, None, TOKENS.untyped_body_lacks)
    assert caught.value.param == "model"
    assert caught.value.message.startswith("'model' is missing")
    assert "Content-Type: application/json" in caught.value.message
    encoded = encode_failure(TOKENS, caught.value)
    assert encoded.status == 400
    assert json.loads(encoded.body)["error"]["code"] == "invalid_request"
    check_body_headers("application/json; charset=utf-8", None, TOKENS.untyped_body_lacks)


@pytest.mark.covers("K-2")
def test_compressed_bodies_are_refused_as_anywhere() -> None:
    with pytest.raises(Failure, match="Content-Encoding"):
        check_body_headers("application/json", "gzip", TOKENS.untyped_body_lacks)


@pytest.mark.covers("K-3")
@pytest.mark.parametrize(
    "text", ["deepseek/deepseek-v4.1-flash", "tinker://RUN/sampler_weights/X", "a;b", "a:peft:8"]
)
def test_a_model_is_an_id_and_nothing_else(text: str) -> None:
    assert parse(TOKENS, text).base == text


@pytest.mark.covers("K-4")
@pytest.mark.parametrize("read", [completion, chat])
@pytest.mark.parametrize("n", [0, 5, 128, -1, "2", 1.0, True])
def test_a_served_models_n_is_1_to_4(read: Any, n: Any) -> None:
    with pytest.raises(Failure) as caught:
        read(n=n)
    assert caught.value.param == "n"
    assert [read(n=good).n for good in (1, 4, None)] == [1, 4, 1]


@pytest.mark.covers("K-7")
def test_every_answer_names_its_request() -> None:
    header = TOKENS.headers[0]
    assert (header.name, header.value, header.on_failures) == (
        "x-tokens-request-id",
        HeaderValue.REQUEST_ID,
        True,
    )


@pytest.mark.covers("K-8")
@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_a_served_stream_always_ends_with_usage(options: Any) -> None:
    encoder = CompletionEncoder(TOKENS, completion(stream=True, stream_options=options), id="1", created=1)
    event, done, nothing = encoder.end(Usage(3, 4)).split(b"\n\n")
    told = json.loads(event.removeprefix(b"data: "))
    assert (told["choices"], told["usage"]["total_tokens"]) == ([], 7)
    assert (done, nothing) == (b"data: [DONE]", b"")
    assert TOKENS.stream.usage is UsageWhen.ALWAYS


@pytest.mark.covers("K-8")
def test_options_of_a_stream_need_no_stream() -> None:
    assert not completion(stream_options={"include_usage": True}).stream
    assert not chat(stream_options={"include_usage": True}).stream


@pytest.mark.covers("K-8")
def test_a_failure_in_a_stream_is_an_event() -> None:
    event = failure_event(TOKENS, Failure(KIND.UPSTREAM_UNAVAILABLE, "It failed.", upstream_status=500))
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert error == {
        "message": "It failed.",
        "type": "server_error",
        "param": None,
        "code": "upstream_unreachable",
    }


@pytest.mark.covers("K-1")
def test_a_served_model_answers_as_in_openai() -> None:
    for name, extra in (("completions", {"prompt": "p"}), ("chat", {"messages": [USER]})):
        tokens, openai = TOKENS.surfaces[name], OPENAI.surfaces[name]
        assert [field.name for field in tokens.fields] == [field.name for field in openai.fields]
        read = {"completions": completion_request, "chat": chat_request}[name]
        body = {"model": "m", "n": 3, "stop": ["a"], "max_tokens": 5, "logit_bias": {"5": 1}, **extra}
        assert read(TOKENS, body) == read(OPENAI, body)
        refused = [field.name for field in openai.fields if field.action is Action.REJECT]
        for field in refused:
            with pytest.raises(Failure):
                read(TOKENS, {**body, field: "x"})
    assert completion().unset_max_tokens == 16


@pytest.mark.covers("K-1", "K-7", "K-10")
def test_how_requests_go_on_to_providers() -> None:
    passing = TOKENS.passing
    assert set(TOKENS.passed) == {"completions", "chat"}
    assert not passing.cap_unset
    assert passing.lowers_limit
    assert passing.final == frozenset()
    assert passing.joint_failure is KIND.UPSTREAM_UNAVAILABLE
    assert set(TOKENS.surfaces) == {"completions", "chat", "models", "model"}


@pytest.mark.covers("O-5")
def test_openai_passes_on_what_the_caller_has_to_change() -> None:
    assert OPENAI.passing.cap_unset
    assert not OPENAI.passing.lowers_limit
    assert OPENAI.passing.final == {KIND.INVALID_REQUEST}
    assert OPENAI.passing.joint_failure is None
    assert encode_failure(OPENAI, invalid("model", "No.")).status == 400


def test_the_document_says_what_goes_on() -> None:
    operation = openapi(TOKENS, "/tokens/v1", "1.0")["paths"]["/completions"]["post"]
    assert "`max_tokens`" in operation["requestBody"]["description"]
    assert {"4XX", "5XX"} <= set(operation["responses"])
    models = openapi(TOKENS, "/tokens/v1", "1.0")["paths"]["/models"]["get"]
    assert "4XX" not in models["responses"]
