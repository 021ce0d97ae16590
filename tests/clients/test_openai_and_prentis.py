"""The OpenAI SDK for Python, unmodified, at the mount of `prentis`: a model of ours, a provider's."""

from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.prentis_platform import MODELS, MOUNT, SECRET, platform

pytestmark = pytest.mark.covers("P-6", "P-9", "P-12")
ours_and_theirs = pytest.mark.parametrize("model", MODELS)
MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def base_url(gguf, tmp_path_factory) -> Iterator[str]:
    with platform(tmp_path_factory.mktemp("platform")) as running:
        yield running.base_url + MOUNT


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key=SECRET, max_retries=0) as made:
        yield made


@ours_and_theirs
def test_a_completion_whole_and_streamed(client: OpenAI, model: str):
    ask = {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(**ask, user="someone")
    assert (whole.model, whole.object, len(whole.choices)) == (model, "text_completion", 1)
    assert whole._request_id
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    text, usages = "", []
    for chunk in client.completions.create(**ask, stream=True):
        text += chunk.choices[0].text if chunk.choices else ""
        usages.append(chunk.usage)
    assert text == whole.choices[0].text
    # it comes unasked, at the end alone
    assert usages[:-1] == [None] * (len(usages) - 1)
    assert usages[-1].total_tokens == whole.usage.total_tokens
    if model == "small":
        assert "Paris" in text


@ours_and_theirs
async def test_a_chat_whole_and_streamed(base_url: str, model: str):
    async with AsyncOpenAI(base_url=base_url, api_key=SECRET, max_retries=0) as client:
        ask = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 5}
        whole = await client.chat.completions.create(**ask)
        text, usage = "", None
        async for chunk in await client.chat.completions.create(**ask, stream=True):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage or usage
        assert text == whole.choices[0].message.content
        assert usage.completion_tokens == whole.usage.completion_tokens


@ours_and_theirs
def test_headers_are_there_for_those_who_look(client: OpenAI, model: str):
    raw = client.completions.with_raw_response.create(model=model, prompt="x", max_tokens=1)
    assert raw.headers["x-provider-class"] == "primary"
    assert raw.headers["x-config-version"]
    assert raw.parse()._request_id == raw.headers["x-request-id"]


@ours_and_theirs
def test_errors_are_the_classes_users_catch(client: OpenAI, model: str):
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=model, prompt="x", n=2)
    assert (bad.value.code, bad.value.param, bad.value.type) == (
        "INVALID_REQUEST",
        "n",
        "invalid_request_error",
    )
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=model, prompt=["a", "b"], stream=True)
    assert bad.value.param == "prompt"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="nobody", prompt="x")
    assert (unknown.value.code, unknown.value.type) == ("MODEL_NOT_FOUND", "not_found_error")


def test_keys(base_url: str):
    with OpenAI(base_url=base_url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            client.completions.create(model="small", prompt="x")
        assert refused.value.code == "INVALID_API_KEY"


def test_providers_failures(client: OpenAI):
    """What the provider says becomes our own; the SDK's class is by the status."""
    for words, error, code in (
        ("[[status=429]]", openai.RateLimitError, "UPSTREAM_RATE_LIMITED"),
        ("[[status=500]]", openai.InternalServerError, "UPSTREAM_UNAVAILABLE"),
    ):
        with pytest.raises(error) as failed:
            client.completions.create(model="remote", prompt=words)
        assert failed.value.code == code
        assert failed.value.response.headers["retry-after"]
    with pytest.raises(openai.APIError) as broken:
        list(client.completions.create(model="passed", prompt="[[error_event=2]]", stream=True))
    assert broken.value.code == "UPSTREAM_UNAVAILABLE"


def test_models(client: OpenAI):
    assert {entry.id for entry in client.models.list()} == set(MODELS)
