"""The `prentis` dialect before a second Onward, whose model is a real one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from onward.wiring import config as settings
from tests.dialects import prentis_page as page
from tests.http.gateway import MODEL, Gateway, cost, gateway

PATH = "/prentis/v1/completions"
CHAT = "/prentis/v1/chat/completions"
MOUNTS = {"openai": "/v1", "prentis": "/prentis/v1"}
REAL = "smollm2-135m-instruct"
BODY = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0, "stop": ["\n\n"]}


@pytest.fixture
async def resold(server, tmp_path, monkeypatch) -> AsyncIterator[Gateway]:
    """The default server behind a gateway that counts money."""
    monkeypatch.setattr("tests.http.gateway.UPSTREAM", REAL)
    provider = settings.Provider(name="onward", protocol="openai", base_url=f"{server.base_url}/v1")
    async with gateway(tmp_path, provider, tenant={"balance": "1.00"}, mounts=MOUNTS) as running:
        yield running


@pytest.mark.covers("P-6", "P-10", "P-13")
@pytest.mark.parametrize(
    "fields", [{}, {"prompt": ["Once upon a time"], "stop": None}, {"seed": 7, "temperature": 1}], ids=str
)
async def test_a_completion_is_the_models_own(resold: Gateway, server, fields: dict[str, Any]):
    body = {**BODY, **fields}
    direct = (
        await resold.client.post(f"{server.base_url}/v1/completions", json={**body, "model": REAL})
    ).json()
    whole = page.completion(await resold.post(PATH, body), MODEL)
    assert whole["choices"] == direct["choices"]
    assert REAL not in str(whole)
    found = page.events(await resold.post(PATH, {**body, "stream": True}), MODEL)
    assert "".join(event["choices"][0]["text"] for event in found[:-1]) == direct["choices"][0]["text"]
    entries = await resold.ended(2)
    for entry, told in zip(entries, (whole["usage"], found[-1]["usage"]), strict=True):
        counts = told["prompt_tokens"], told["completion_tokens"]
        assert counts == (direct["usage"]["prompt_tokens"], direct["usage"]["completion_tokens"])
        assert entry.charged == cost(*counts, told["prompt_tokens_details"]["cached_tokens"])
        assert not entry.estimated


@pytest.mark.covers("P-6", "P-12")
async def test_a_chat_likewise(resold: Gateway, server):
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
    whole = (await resold.post(CHAT, body)).json()
    found = page.events(await resold.post(CHAT, {**body, "stream": True}), MODEL, chat=True)
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in found[:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert found[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


@pytest.mark.covers("P-5", "P-9")
async def test_what_the_models_server_refuses(resold: Gateway, server):
    """By its own words in our log, by ours to the caller."""
    answer = await resold.post(PATH, {**BODY, "max_tokens": 100_000})
    assert (answer.status_code, page.error(answer)["code"]) == (400, "CONTEXT_LENGTH_EXCEEDED")
    assert REAL not in answer.text
    await resold.logged("100000 more are asked for")
