"""The OpenAI Python SDK, unmodified: sync, async, streaming, errors."""

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

pytestmark = pytest.mark.covers("O-1", "O-2", "O-5")
MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def sync_client(server):
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def client(server):
    async with AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(sync_client):
    return sync_client.models.list().data[0].id


def test_completion(sync_client, model):
    answer = sync_client.completions.create(
        model=model, prompt="The capital of France is", max_tokens=8, temperature=0, logprobs=2
    )
    choice = answer.choices[0]
    assert "Paris" in choice.text
    assert answer.model == model
    assert answer.id.startswith("cmpl-")
    assert answer._request_id
    assert choice.logprobs.tokens
    assert "".join(choice.logprobs.tokens) == choice.text
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_streamed_completion_equals_whole(sync_client, model):
    ask = {"model": model, "prompt": "The capital of France is", "max_tokens": 16, "temperature": 0}
    whole = sync_client.completions.create(**ask)
    stream = sync_client.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    text, usage = "", None
    for chunk in stream:
        text += chunk.choices[0].text if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].text
    assert usage.total_tokens == whole.usage.total_tokens


@pytest.mark.covers("TC-8", "O-3")
def test_sampled_ids_are_the_next_prompt(sync_client, model):
    """token_ids fed back reproduce the context exactly (TC-8)."""
    first = sync_client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=12, seed=3, extra_body={"return_token_ids": True}
    ).choices[0]
    ids = first.prompt_token_ids + first.token_ids
    second = sync_client.completions.create(
        model=model, prompt=ids, max_tokens=1, extra_body={"return_token_ids": True}
    )
    assert second.choices[0].prompt_token_ids == ids
    assert second.usage.prompt_tokens == len(ids)


async def test_chat(client, model):
    answer = await client.chat.completions.create(
        model=model, messages=MESSAGES, temperature=0, max_tokens=60
    )
    message = answer.choices[0].message
    assert message.role == "assistant"
    assert message.content
    assert answer.id.startswith("chatcmpl-")
    text, roles = "", []
    stream = await client.chat.completions.create(
        model=model, messages=MESSAGES, temperature=0, max_tokens=60, stream=True
    )
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        roles.append(chunk.choices[0].delta.role)
    assert text == message.content
    assert roles[0] == "assistant"


async def test_chat_stream_helper_accumulates(client, model):
    """The SDK's own accumulating stream ends with the same message."""
    async with client.chat.completions.stream(
        model=model, messages=MESSAGES, temperature=0, max_tokens=30
    ) as stream:
        final = await stream.get_final_completion()
    whole = await client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, max_tokens=30)
    assert final.choices[0].message.content == whole.choices[0].message.content


async def test_errors_are_the_classes_users_catch(client, model):
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.completions.create(model="nobody/nothing", prompt="x")
    assert unknown.value.code == "model_not_found"
    assert unknown.value.param == "model"
    with pytest.raises(openai.BadRequestError) as bad:
        await client.completions.create(model=model, prompt="x", temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError):
        await client.completions.create(model=model, prompt="x", temperature=9, stream=True)
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model=model, input="x")


@pytest.mark.covers("O-4")
async def test_models(client, model):
    listed = [entry async for entry in client.models.list()]
    assert model in {entry.id for entry in listed}
    assert (await client.models.retrieve(model)).id == model
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("org/unknown")
