"""P-13: whatever is sent, the answer is what the API's own page says, from a real model and from a provider."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.conftest import RunningServer
from tests.dialects import prentis_page as page
from tests.prentis_platform import CONTEXT, MODELS, MOUNT, SECRET, platform

ours_and_theirs = pytest.mark.parametrize("model", MODELS)
pytestmark = pytest.mark.covers("P-13")


@pytest.fixture(scope="module", name="platform")
def running(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with platform(tmp_path_factory.mktemp("platform")) as made:
        yield made


@pytest.fixture(scope="module")
def client(platform: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.base_url + MOUNT, timeout=60, verify=False, headers=AUTH) as made:
        yield made


AUTH = {"authorization": f"Bearer {SECRET}"}


# What we answer, by our own checks: schemas, headers, every event


@ours_and_theirs
@pytest.mark.covers("P-6", "P-7", "P-10")
def test_answers_and_events_are_the_pages(client: httpx.Client, model: str) -> None:
    for prompt in ("def fibonacci(n):", ["Once upon a time"]):
        body = {"model": model, "prompt": prompt, "max_tokens": 8, "stop": ["\n\n"], "temperature": 0}
        whole = page.completion(client.post("/completions", json=body), model)
        found = page.events(client.post("/completions", json={**body, "stream": True}), model)
        assert "".join(event["choices"][0]["text"] for event in found[:-1]) == whole["choices"][0]["text"]
        told = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert [found[-1]["usage"][name] for name in told] == [whole["usage"][name] for name in told]


@ours_and_theirs
@pytest.mark.covers("P-10")
def test_what_was_cached_is_told(client: httpx.Client, platform: RunningServer, model: str) -> None:
    body = {"model": model, "prompt": "word " * 200, "max_tokens": 1}
    first, second = (page.completion(client.post("/completions", json=body))["usage"] for _ in range(2))
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0 if model == "small" else cached == 0
    assert first["prompt_tokens"] == second["prompt_tokens"]


@ours_and_theirs
@pytest.mark.covers("P-4", "P-9")
def test_errors_are_the_pages(client: httpx.Client, model: str) -> None:
    for fields, param in (
        ({"n": 1}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"prompt": [1]}, "prompt[0]"),
    ):
        answer = client.post("/completions", json={"model": model, "prompt": "x", **fields})
        assert (answer.status_code, page.error(answer)["param"]) == (400, param)
    answer = client.post("/completions", json={"model": "nobody", "prompt": "x"})
    assert page.error(answer)["code"] == "MODEL_NOT_FOUND"
    answer = client.post("/completions", json={"model": model, "prompt": "x"}, headers={"authorization": ""})
    assert page.error(answer)["code"] == "INVALID_API_KEY"


def test_too_long_for_the_context(client: httpx.Client) -> None:
    answer = client.post("/completions", json={"model": "small", "prompt": "word " * 600})
    assert (answer.status_code, page.error(answer)["code"]) == (400, "CONTEXT_LENGTH_EXCEEDED")
    answer = client.post("/completions", json={"model": "small", "prompt": "word", "max_tokens": 600})
    error = page.error(answer)
    assert (error["code"], error["param"]) == ("CONTEXT_LENGTH_EXCEEDED", "max_tokens")


# What schemathesis makes of the page


UNSUPPORTED = ("n", "best_of", "logprobs", "echo", "suffix")


def tightened() -> dict[str, Any]:
    """The page's document less the fields of P-3, plus 409 and minimum lengths."""
    document = copy.deepcopy(page.DOCUMENT)
    document["servers"], document["security"] = [{"url": MOUNT}], []
    request = document["components"]["schemas"]["CompletionRequest"]
    for name in UNSUPPORTED:
        del request["properties"][name]
    properties = request["properties"]
    properties["model"]["minLength"] = 1
    texts = [one for name in ("prompt", "stop") for one in properties[name]["oneOf"]]
    for text in texts:
        (text if text["type"] == "string" else text["items"])["minLength"] = 1
    document["components"]["parameters"]["IdempotencyKey"]["schema"]["minLength"] = 1
    responses = document["components"]["responses"]
    responses["Error409"] = responses["Error400"]
    document["paths"]["/completions"]["post"]["responses"]["409"] = {
        "$ref": "#/components/responses/Error409"
    }
    return document


SCHEMA = schemathesis.openapi.from_dict(tightened())
OPERATION = SCHEMA["/completions"]["POST"]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_headers_conformance,
    schemathesis.checks.response_schema_conformance,
]
_MOST = 2**31 - 1
_SEEDS = range(-(2**63), 2**63)


def answered(platform: RunningServer, case: schemathesis.Case, model: str) -> requests.Response:
    """The answer to a case, as `model` where it names any, checked by all that the page says. It is sent from
    here, as schemathesis itself leaves a stream after half a second.
    """
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str) and case.body["model"]:
        case.body["model"] = model
    sent = case.as_transport_kwargs(base_url=platform.base_url + MOUNT, headers=AUTH)
    answer = requests.request(**sent, timeout=60)
    checks = CHECKS
    if answer.headers["content-type"] != "application/json":
        # the page's schema of a stream is that of its text: its events are looked at by ours
        checks = [check for check in CHECKS if check is not schemathesis.checks.response_schema_conformance]
        page.events(httpx.Response(200, headers=dict(answer.headers), content=answer.content), model)
    case.validate_response(answer, checks=checks)
    return answer


def fuzz(mode: GenerationMode, count: int) -> Any:
    def decorate(test: Any) -> Any:
        found = given(case=OPERATION.as_strategy(mode))(test)
        bounds = settings(
            max_examples=count,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # a case is small as it is, and what fails once may not fail again
            suppress_health_check=list(HealthCheck),
        )
        return bounds(found)

    return decorate


@ours_and_theirs
@fuzz(GenerationMode.POSITIVE, 40)
def test_what_the_page_takes_is_taken(platform: RunningServer, model: str, case: schemathesis.Case) -> None:
    """Less what no machine holds: a seed beyond 64 bits, more tokens than the context has; 1.0 is no
    integer here, and a name of a request can be seen.
    """
    answer = answered(platform, case, model)
    body = case.body
    if answer.status_code in (200, 409):  # 409: a name that an earlier case gave to another body
        return
    error = json.loads(answer.content)["error"]
    assert answer.status_code == 400, error
    if error["param"] == "Idempotency-Key":
        assert not case.headers["Idempotency-Key"].isprintable()
        return
    if error["param"] in ("prompt", "prompt[0]"):  # a control character may have no token at all
        assert model == "small"
        return
    if error["param"] in UNSUPPORTED and error["param"] in body:  # by chance
        return
    if error["param"] not in body:  # `N` is refused, lest a provider reads it as `n`
        assert error["param"] in [name.casefold() for name in body]
        return
    sent = body[error["param"]]
    if error["param"] == "seed":
        assert type(sent) is float or sent not in _SEEDS
    else:
        assert error["param"] == "max_tokens", (error, body)
        assert type(sent) is float or sent > (CONTEXT - 64 if model == "small" else _MOST)


@ours_and_theirs
@fuzz(GenerationMode.NEGATIVE, 40)
def test_what_the_page_does_not_take_is_refused(
    platform: RunningServer, model: str, case: schemathesis.Case
) -> None:
    answer = answered(platform, case, model)
    if not isinstance(case.body, dict) or None not in case.body.values():  # null is not sent
        case.validate_response(answer, checks=[schemathesis.checks.negative_data_rejection])
