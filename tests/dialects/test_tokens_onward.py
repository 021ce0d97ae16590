"""The `tokens` dialect before a second Onward, whose model is a real one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from onward.admission.ledger import State
from onward.wiring import config as settings
from tests.http.gateway import MODEL, Gateway, cost, data_of, gateway

PATH = "/tokens/v1/completions"
CHAT = "/tokens/v1/chat/completions"
REAL = "smollm2-135m-instruct"
FRANCE = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
async def resold(server, tmp_path, monkeypatch) -> AsyncIterator[Gateway]:
    """The default server behind a gateway that counts money."""
    monkeypatch.setattr("tests.http.gateway.UPSTREAM", REAL)
    provider = settings.Provider(name="onward", protocol="openai", base_url=f"{server.base_url}/v1")
    async with gateway(tmp_path, provider, tenant={"balance": "1.00"}) as running:
        yield running


async def direct(running: Gateway, server, body: dict[str, Any], path: str = "completions"):
    answer = await running.client.post(f"{server.base_url}/v1/{path}", json={**body, "model": REAL})
    assert answer.status_code == 200, answer.text
    return answer


def without_names(answer: dict[str, Any]) -> dict[str, Any]:
    """All but the ID and the time, which are new for each request, and what happened to be cached."""
    usage = {
        name: count for name, count in (answer.get("usage") or {}).items() if not name.endswith("details")
    }
    return {**answer, "id": "", "created": 0, "model": MODEL, "usage": usage}


@pytest.mark.covers("K-1", "K-9")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": [504, 3575, 282, 4649, 314], "logprobs": 2, "return_token_ids": True},
        {"prompt": [[504, 3575], [282, 4649, 314]], "n": 2, "seed": 7, "temperature": 1, "echo": True},
        {"best_of": 3, "n": 1, "seed": 3, "temperature": 1},
    ],
    ids=str,
)
async def test_an_answer_is_the_models_own(resold: Gateway, server, fields: dict):
    """All that the model's server makes of the fields comes through, and is charged as it counts."""
    body = {**FRANCE, **fields}
    ours = await resold.post(PATH, body)
    theirs = await direct(resold, server, body)
    assert without_names(ours.json()) == without_names(theirs.json())
    entry = await resold.entry()
    usage = theirs.json()["usage"]
    assert (entry.usage.prompt_tokens, entry.usage.completion_tokens) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    assert entry.charged == cost(
        usage["prompt_tokens"], usage["completion_tokens"], entry.usage.cached_tokens
    )
    assert not entry.overdraft
    assert not entry.estimated


@pytest.mark.covers("K-1", "K-8")
async def test_a_stream_is_the_models_own(resold: Gateway, server):
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "stream": True, "logprobs": True}
    ours = data_of((await resold.post(CHAT, body)).text)
    asked = {**body, "stream_options": {"include_usage": True}}
    theirs = data_of((await direct(resold, server, asked, "chat/completions")).text)
    assert [without_names(event) for event in ours[:-1]] == [without_names(event) for event in theirs[:-1]]
    assert ours[-1] == theirs[-1] == "[DONE]"
    entry = await resold.entry()
    assert entry.usage.completion_tokens == ours[-2]["usage"]["completion_tokens"] > 0
    assert not entry.estimated


@pytest.mark.covers("K-7", "K-12")
@streamed
async def test_what_the_models_server_refuses(resold: Gateway, server, stream: bool):
    answer = await resold.post(PATH, {**FRANCE, "temperature": 99, "stream": stream})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert "temperature" not in answer.text
    entry = await resold.entry()
    assert (entry.state, entry.charged) == (State.RELEASED, 0)
    assert entry.request_id == answer.headers["x-tokens-request-id"]
    await resold.logged("must be at most 2, not 99")


@pytest.mark.covers("K-4")
@streamed
async def test_choices_come_by_their_index(resold: Gateway, server, stream: bool):
    body = {**FRANCE, "n": 3, "seed": 1, "temperature": 1, "stream": stream}
    answer = await resold.post(PATH, body)
    theirs = (await direct(resold, server, {**body, "stream": False})).json()["choices"]
    if stream:
        texts = ["", "", ""]
        for event in data_of(answer.text)[:-2]:
            [choice] = event["choices"]
            texts[choice["index"]] += choice["text"]
    else:
        texts = [choice["text"] for choice in answer.json()["choices"]]
    assert texts == [choice["text"] for choice in theirs]


@pytest.mark.covers("K-10")
async def test_a_caller_who_goes_is_charged_for_what_was_made(resold: Gateway, server):
    """And the model's server stops: its slot is free for the next."""
    long = {**FRANCE, "max_tokens": 2000, "ignore_eos": True}
    async with resold.caller(path=PATH, **long, stream=True) as caller:
        await caller.reads(5)
        caller.goes()
        entry = await resold.entry()
    assert (entry.state, entry.outcome, entry.estimated) == (State.SETTLED, "disconnected", True)
    assert 5 <= entry.usage.completion_tokens < 1000
    assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens) <= entry.held
    assert (await resold.post(PATH, FRANCE)).status_code == 200
