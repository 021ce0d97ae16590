"""The `prentis` dialect, a row for each statement that needs no server."""

import json
from typing import Any

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.reference import ModelReference
from onward.core.request import ChatRequest, CompletionRequest
from onward.core.usage import Usage
from onward.dialects.openai import OPENAI
from onward.dialects.openapi import openapi
from onward.dialects.prentis import PRENTIS
from onward.dialects.reference import parse
from onward.dialects.schema import Auth
from onward.wire.errors import encode_failure, failure_event
from onward.wire.passing.outgoing import read_passed
from onward.wire.requests import chat_request, completion_request
from onward.wire.usage import usage_fields
from tests.dialects.prentis_page import CODES, ERROR, SCHEMAS

USER = {"role": "user", "content": "Hello"}


def completion(**body: Any) -> CompletionRequest:
    return completion_request(PRENTIS, {"model": "m", "prompt": "p", **body})


def chat(**body: Any) -> ChatRequest:
    return chat_request(PRENTIS, {"model": "m", "messages": [USER], **body})


def passed_completion(**body: Any) -> Any:
    whole = {"model": "m", "prompt": "p", **body}
    return read_passed(PRENTIS.passed["completions"], whole, json.dumps(whole).encode())


def passed_chat(**body: Any) -> Any:
    whole = {"model": "m", "messages": [USER], **body}
    return read_passed(PRENTIS.passed["chat"], whole, json.dumps(whole).encode())


ours_and_theirs = pytest.mark.parametrize("read", [completion, passed_completion], ids=["served", "proxied"])
everywhere = pytest.mark.parametrize("read", [completion, chat, passed_completion, passed_chat])


def param_of(read: Any, **body: Any) -> str | None:
    with pytest.raises(Failure) as caught:
        read(**body)
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    assert caught.value.message.endswith(".")
    return caught.value.param


@pytest.mark.covers("P-2")
@ours_and_theirs
@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (["a", "b"], "prompt"),
        ([], "prompt"),
        ([5], "prompt[0]"),
        ([1, 2, 3], "prompt[0]"),
        ([[1, 2]], "prompt[0]"),
        ([None], "prompt[0]"),
        (["a", 1], "prompt"),
        ("", "prompt"),
        ([""], "prompt[0]"),
        (5, "prompt"),
        ({"text": "a"}, "prompt"),
        (True, "prompt"),
        (None, "prompt"),
    ],
    ids=str,
)
def test_one_text_is_a_prompt(read: Any, prompt: Any, param: str) -> None:
    assert param_of(read, prompt=prompt) == param


@pytest.mark.covers("P-2")
def test_an_array_that_holds_one_text_is_that_text() -> None:
    assert completion(prompt=["p"]).prompts == ["p"]
    assert completion(prompt="p").prompts == ["p"]
    assert passed_completion(prompt=["p"]).prompts == 1


@pytest.mark.covers("P-3")
@ours_and_theirs
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("n", 2),
        ("best_of", 1),
        ("logprobs", 0),
        ("logprobs", False),
        ("echo", False),
        ("suffix", ""),
        ("suffix", {"any": "thing"}),
    ],
)
def test_what_is_not_supported_is_refused_by_name(read: Any, field: str, value: Any) -> None:
    assert param_of(read, **{field: value}) == field


@pytest.mark.covers("P-3")
@ours_and_theirs
def test_null_is_not_sent(read: Any) -> None:
    read(**dict.fromkeys(("n", "best_of", "logprobs", "echo", "suffix")))


@pytest.mark.covers("P-3")
@ours_and_theirs
def test_other_fields_are_ignored(read: Any) -> None:
    read(top_k="any", prompt_chunks=5, logit_bias=[], return_token_ids="x", zz={}, min_tokens=-1, tools=3)
    asked = completion(return_token_ids=True, ignore_eos=True, top_k=3, min_p=0.5, stop_token_ids=[1])
    assert asked == completion()


RANGES = [
    ("max_tokens", (1, 2**31 - 1), (0, -1, 1.5, "5", True)),
    ("temperature", (0, 2, 0.5), (-0.1, 2.1, "1", True)),
    ("top_p", (0, 1, 0.5), (-0.1, 1.1, "1")),
    ("frequency_penalty", (-2, 2), (-2.1, 2.1, [])),
    ("presence_penalty", (-2, 2), (-2.1, 2.1, {})),
    ("stop", ("a", [], ["a", "b", "c", "d"]), (["a", "b", "c", "d", "e"], 5, "")),
    ("seed", (0, -1, 2**63 - 1), (1.5, "1", 2**63)),
    ("stream", (True, False), ("true", 1)),
    ("user", ("u", "u" * 5000), (5, [])),
]


@pytest.mark.covers("P-4")
@everywhere
@pytest.mark.parametrize(("field", "good", "bad"), RANGES, ids=[row[0] for row in RANGES])
def test_values_keep_to_their_ranges(read: Any, field: str, good: tuple[Any], bad: tuple[Any]) -> None:
    for value in good:
        read(**{field: value})
    for value in bad:
        assert param_of(read, **{field: value}) == field


@pytest.mark.covers("P-4")
@everywhere
def test_stops_are_texts(read: Any) -> None:
    assert param_of(read, stop=[5]) == "stop[0]"
    assert param_of(read, stop=["a", ""]) == "stop[1]"


@pytest.mark.covers("P-4")
def test_the_limit_of_a_chat_has_two_names() -> None:
    for read in (chat, passed_chat):
        assert param_of(read, max_completion_tokens=0) == "max_completion_tokens"
        assert read(max_completion_tokens=5).max_tokens == 5


@pytest.mark.covers("P-4")
def test_the_page_has_these_ranges() -> None:
    """Each bound of the page's schema is one of ours, on the same side."""
    document = openapi(PRENTIS, "/v1", "1")["paths"]["/completions"]["post"]["requestBody"]
    ours = document["content"]["application/json"]["schema"]["properties"]
    page = SCHEMAS["CompletionRequest"]
    assert set(page["required"]) == {"model", "prompt"}
    for name, schema in page["properties"].items():
        for bound in ("minimum", "maximum"):
            if bound in schema:
                assert ours[name]["anyOf"][0][bound] == schema[bound], name
    assert set(page["properties"]) == set(ours)


@pytest.mark.covers("P-4")
def test_where_no_limit_is_set_the_model_decides() -> None:
    for read in (completion, chat, passed_completion, passed_chat):
        asked = read()
        assert asked.model_max_tokens
        assert asked.max_tokens is None
    assert completion().unset_max_tokens is None
    assert not completion_request(OPENAI, {"model": "m", "prompt": "p"}).model_max_tokens


@pytest.mark.covers("P-5")
@pytest.mark.parametrize(
    ("text", "base", "account", "deployment"),
    [
        ("deepseek-v4.1-flash", "deepseek-v4.1-flash", None, "deepseek-v4.1-flash"),
        ("accounts/acme/models/m", "m", "acme", None),
        ("accounts/acme/models/org/m", "org/m", "acme", None),
        ("accounts/acme/deployments/d", None, "acme", "d"),
        ("accounts/acme/other/d", "accounts/acme/other/d", None, "accounts/acme/other/d"),
        (
            "tinker://RUN/sampler_weights/X",
            "tinker://RUN/sampler_weights/X",
            None,
            "tinker://RUN/sampler_weights/X",
        ),
        ("a;b", "a;b", None, "a;b"),
        ("a:peft:8", "a:peft:8", None, "a:peft:8"),
    ],
)
def test_forms_of_references(text: str, base: Any, account: Any, deployment: Any) -> None:
    assert parse(PRENTIS, text) == ModelReference(text, base, None, account, deployment)


@pytest.mark.covers("P-5")
@pytest.mark.parametrize("text", ["accounts/acme/models/m", "accounts/acme/deployments/d", "d"])
def test_forms_of_this_api_are_no_others(text: str) -> None:
    assert parse(OPENAI, text) == ModelReference(text, text)


@pytest.mark.covers("P-9")
@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_has_a_code_and_a_type_of_the_page(kind: FailureKind) -> None:
    failure = Failure(kind, "What to change.", param="x")
    encoded = encode_failure(PRENTIS, failure)
    body = json.loads(encoded.body)
    ERROR.validate(body)
    assert list(body["error"]) == ["message", "type", "code", "param"]
    assert (b"retry-after" in dict(encoded.headers)) == (encoded.status in (429, 503))
    event = failure_event(PRENTIS, failure)
    assert json.loads(event.removeprefix(b"data: ")) == body


@pytest.mark.covers("P-9")
def test_every_code_of_the_page_is_some_failures() -> None:
    assert {row.code for row in PRENTIS.errors.values()} == set(CODES)
    types = {}
    for row in PRENTIS.errors.values():
        assert types.setdefault(row.code, row.type) == row.type


@pytest.mark.covers("P-10")
def test_images_are_told_where_there_were_any() -> None:
    assert "media" not in usage_fields(Usage(3, 4, 1))
    told = usage_fields(Usage(3, 4, 1, input_images=2))
    assert told["media"] == {"input_images": 2}
    assert told["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.covers("P-12")
def test_keys_come_in_either_header() -> None:
    assert PRENTIS.auth == (Auth.BEARER, Auth.X_API_KEY)
    assert {"completions", "chat", "models"} <= set(PRENTIS.surfaces)


@pytest.mark.covers("P-13")
def test_our_own_document_tells_of_the_headers() -> None:
    made = openapi(PRENTIS, "/v1", "1")["paths"]["/completions"]["post"]
    assert set(made["responses"]["200"]["headers"]) == {
        "x-request-id",
        "x-provider-class",
        "x-config-version",
        "Idempotency-Key",
    }
    assert set(made["responses"]["400"]) == {"$ref"}
    [parameter] = made["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", False)
    refused = made["requestBody"]["content"]["application/json"]["schema"]["properties"]["echo"]
    assert refused["type"] == "null"
