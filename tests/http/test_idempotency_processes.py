"""Requests with an Idempotency-Key across processes: a kill and a new start, several workers, a real model."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from onward.admission.ledger import State
from tests.conftest import RunningServer
from tests.http.gateway import MODEL, cost, data_of, units
from tests.http.test_gateway_processes import HEADERS, ledger, serving
from tests.http.test_processes import MODEL as SMALL
from tests.http.test_processes import named, running
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.covers("P-8", "O-6"),
]
NAMED = HEADERS | {"idempotency-key": "order 7"}
BODY = {"model": MODEL, "prompt": "two words", "max_tokens": 5}


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def ask(client: httpx.AsyncClient, server: RunningServer, **changes) -> httpx.Response:
    url = f"{server.base_url}/v1/completions"
    return await client.post(url, json=BODY | changes, headers=NAMED)


async def events(client: httpx.AsyncClient, server: RunningServer, count: int):
    """Reads as many events of a stream and leaves; or what came before the connection broke."""
    text = ""
    url = f"{server.base_url}/v1/completions"
    async with client.stream("POST", url, json=BODY | {"stream": True}, headers=NAMED) as answer:
        async for piece in answer.aiter_text():
            text += piece
            if text.count("data: ") >= count:
                break
    return text


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_answer_survives_a_kill_and_a_new_start(tmp_path, mock, client, workers: int):
    async with serving(tmp_path, mock, workers=workers) as server:
        first = await ask(client, server)
        streamed = await client.post(
            f"{server.base_url}/v1/completions",
            json=BODY | {"stream": True},
            headers=NAMED | {"idempotency-key": "order 8"},
        )
        assert (first.status_code, data_of(streamed.text)[-1]) == (200, "[DONE]")
        server.process.kill()
        await asyncio.to_thread(server.process.wait)
    async with serving(tmp_path, mock, workers=workers) as server:
        again = await ask(client, server)
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers["idempotent-replayed"] == "true"
        again = await client.post(
            f"{server.base_url}/v1/completions",
            json=BODY | {"stream": True},
            headers=NAMED | {"idempotency-key": "order 8"},
        )
        assert again.content == streamed.content
        assert (await ask(client, server, max_tokens=4)).status_code == 409
    assert len(mock.requests) == 2
    entries, money = await ledger(tmp_path)
    assert [entry.charged for entry in entries] == [cost(2, 5)] * 2
    assert money == (units("1.00"), 2 * cost(2, 5), 0)


async def test_what_a_kill_cut_is_tried_again_and_charged_once(tmp_path, mock, client):
    mock.say(Behaviour(hold=3))
    async with serving(tmp_path, mock) as server:
        reading = asyncio.create_task(events(client, server, 99))
        await mock.comes(lambda: bool(mock.requests) and mock.requests[0].sent == 3)
        await asyncio.sleep(1.5)  # a mark of it would have been written
        server.process.kill()
        await asyncio.to_thread(server.process.wait)
        with pytest.raises(httpx.TransportError):
            await reading
    async with serving(tmp_path, mock) as server:
        answer = await ask(client, server, stream=True)
        assert data_of(answer.text)[-1] == "[DONE]"
        assert "idempotent-replayed" not in answer.headers
        assert (await ask(client, server, stream=True)).content == answer.content
    entries, money = await ledger(tmp_path)
    assert [(entry.state, entry.charged) for entry in entries] == [
        (State.EXPIRED, 0),
        (State.SETTLED, cost(2, 5)),
    ]
    assert money == (units("1.00"), cost(2, 5), 0)
    assert len(mock.requests) == 2


async def test_workers_answer_for_each_other(tmp_path, mock, client):
    """Whoever runs it: many at once, in two processes, are one request and one charge."""
    mock.always(Behaviour(delay=0.3))
    bounds = httpx.Limits(max_connections=40, max_keepalive_connections=0)
    async with (
        serving(tmp_path, mock, workers=2) as server,
        httpx.AsyncClient(timeout=20, limits=bounds) as many,
    ):
        answers = await asyncio.gather(*[ask(many, server) for _ in range(40)])
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert len(mock.requests) == 1
    entries, _ = await ledger(tmp_path)
    assert [entry.charged for entry in entries] == [cost(2, 5)]


async def test_a_worker_that_dies_leaves_its_names_to_the_others(tmp_path, mock, client):
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock, workers=2) as server:
        assert (await events(client, server, 2)).count("data: ") >= 2  # and it left
        for worker in named(server.process.pid, "onward.wiring.worker"):
            os.kill(worker, signal.SIGKILL)
        async with asyncio.timeout(20):
            while True:
                try:
                    answer = await ask(client, server, stream=True)
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        assert data_of(answer.text)[-1] == "[DONE]"
        assert len(mock.requests) == 2
    entries, _ = await ledger(tmp_path)
    assert sorted(entry.charged for entry in entries) == [0, cost(2, 5)]


async def test_a_deploy_waits_for_a_named_request_whose_caller_left(tmp_path, mock, client):
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock) as server:
        await events(client, server, 2)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert server.process.poll() is None
        mock.let_go()
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    async with serving(tmp_path, mock) as server:
        answer = await ask(client, server, stream=True)
        assert answer.headers["idempotent-replayed"] == "true"
        assert data_of(answer.text)[-1] == "[DONE]"
    assert len(mock.requests) == 1


def test_the_real_model_is_asked_once(gguf, tmp_path: Path, monkeypatch):
    """Sampled with a temperature and no seed: only what was kept can be the same again."""
    monkeypatch.chdir(tmp_path)
    body = {"model": SMALL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 1.5}
    chat = {"model": SMALL, "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24}
    with running(tmp_path) as server:
        for number, (path, asked) in enumerate(
            [
                ("completions", body),
                ("completions", body | {"stream": True}),
                ("chat/completions", chat),
                ("chat/completions", chat | {"stream": True}),
            ]
        ):
            headers = {"idempotency-key": str(number)}

            def post(path=path, asked=asked, headers=headers):
                url = f"{server.base_url}/v1/{path}"
                return httpx.post(url, json=asked, headers=headers, timeout=60, verify=False)

            first, again = post(), post()
            assert first.status_code == 200, first.text
            assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
        # one who leaves after the first event
        asked = json.dumps(body | {"stream": True, "max_tokens": 150}).encode()
        headers = {"idempotency-key": "leaves", "content-type": "application/json"}
        url = f"{server.base_url}/v1/completions"
        with httpx.stream("POST", url, content=asked, headers=headers, timeout=60, verify=False) as answer:
            first_line = next(answer.iter_lines())
        again = httpx.post(url, content=asked, headers=headers, timeout=60, verify=False)
        assert data_of(again.text)[-1] == "[DONE]"
        assert again.text.startswith(first_line)
        kept = httpx.post(url, content=asked, headers=headers, timeout=60, verify=False)
        assert kept.content == again.content
