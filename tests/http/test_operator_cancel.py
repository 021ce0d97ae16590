"""An operator ends a request in flight: in the process that was asked, in another one, on another host."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest

from onward.admission.ledger import State
from onward.dialects import DIALECTS
from onward.stores.postgres import PostgresStore
from onward.wiring import config as settings
from tests.contract.stores import POSTGRES, SCHEMA, postgres
from tests.http.gateway import MODEL, Gateway, cost, data_of, gateway, units
from tests.http.harness import SlowEngine, until
from tests.http.test_admin_commands import onward
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"
PATHS = {"openai": "/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
MOUNTED = {name: path for name, path in PATHS.items() if name in DIALECTS}
CODES = {"prentis": "REQUEST_CANCELLED"}


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


async def ask(running: Gateway, method: str, path: str):
    headers = {"authorization": f"Bearer {TOKEN}"}
    return await running.client.request(method, f"/admin/v1{path}", headers=headers)


async def in_flight(running: Gateway) -> str:
    """The ID of the only request that runs."""
    [one] = (await ask(running, "GET", "/requests")).json()["data"]
    return one["request_id"]


async def cancelled(running: Gateway, request_id: str) -> None:
    answer = await ask(running, "DELETE", f"/requests/{request_id}")
    assert (answer.status_code, answer.json()) == (200, {"request_id": request_id, "cancelled": True})


@pytest.mark.covers("P-9")
@pytest.mark.parametrize("dialect", list(MOUNTED))
async def test_before_any_output_it_is_499_and_free(tmp_path, mock, dialect: str):
    """Its place, its money and the call to the provider are let go at once."""
    mock.say(Behaviour(never=True), Behaviour())
    async with gateway(
        tmp_path, mock, tenant={"balance": "1.00"}, key={"concurrency": 1}, mounts=MOUNTED
    ) as running:
        path = f"{MOUNTED[dialect]}/completions"
        call = asyncio.create_task(running.complete(path=path))
        await mock.comes(lambda: len(mock.requests) == 1)
        request_id = await in_flight(running)
        began = time.monotonic()
        await cancelled(running, request_id)
        answer = await call
        assert time.monotonic() - began < 1
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (499, CODES.get(dialect, "request_cancelled"))
        assert "operator" in error["message"]
        await mock.comes(lambda: mock.requests[0].gone)
        await running.idle()
        [entry] = await running.ended()
        assert (entry.state, entry.charged, entry.outcome) == (State.RELEASED, 0, "cancelled")
        assert (await running.complete(path=path)).status_code == 200
        answer = await ask(running, "DELETE", f"/requests/{request_id}")
        assert answer.status_code == 404
        assert "GET /admin/v1/requests" in answer.json()["error"]["message"]


@pytest.mark.covers("P-9")
@pytest.mark.parametrize("dialect", list(MOUNTED))
async def test_a_stream_ends_with_an_error_event_and_what_was_made_is_charged(tmp_path, mock, dialect: str):
    mock.say(Behaviour(stall=3))
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}, mounts=MOUNTED) as running:
        path = f"{MOUNTED[dialect]}/completions"
        async with running.caller(path=path, stream=True) as caller:
            await caller.reads(3)
            await cancelled(running, await in_flight(running))
            events = data_of(await caller.reads_all())
        assert events[-1]["error"]["code"] == CODES.get(dialect, "request_cancelled")
        await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert (entry.state, entry.outcome) == (State.SETTLED, "cancelled")
        assert entry.usage.completion_tokens == 3
        assert entry.charged == cost(entry.usage.prompt_tokens, 3)
        assert await running.balance() == units("1.00") - entry.charged
        [attempt] = entry.attempts
        assert attempt.outcome == "cut_off"


async def test_an_engine_stops_too(tmp_path, text_side):
    engine = SlowEngine(260)
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "1.00"}) as running:
        async with running.caller(stream=True, max_tokens=300) as caller:
            await caller.reads(3)
            await cancelled(running, await in_flight(running))
            events = data_of(await caller.reads_all())
        assert events[-1]["error"]["code"] == "request_cancelled"
        await until(lambda: engine.status().running == 0)
        entry = await running.entry()
        assert (entry.state, entry.outcome) == (State.SETTLED, "cancelled")
        assert entry.usage.completion_tokens >= 2


async def test_what_is_not_running_is_404(tmp_path, mock):
    async with gateway(tmp_path, mock) as running:
        await running.complete()
        [entry] = await running.ended()
        for request_id in ("nothing", entry.request_id):
            assert (await ask(running, "DELETE", f"/requests/{request_id}")).status_code == 404
        without = await running.client.delete(f"/admin/v1/requests/{entry.request_id}")
        assert without.status_code == 401


async def test_on_another_host_within_seconds(tmp_path, mock):
    """Two gateways on one PostgreSQL: the one that does not run it writes it down, the other reads it."""

    async def shared(_: settings.Config) -> PostgresStore:
        return await PostgresStore.open(POSTGRES, schema=SCHEMA)

    mock.always(Behaviour(never=True))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(postgres(tmp_path))
        here, there = [
            await stack.enter_async_context(gateway(folder, mock, store=shared, tenant={"balance": "1"}))
            for folder in (tmp_path / "a", tmp_path / "b")
            if folder.mkdir() is None
        ]
        call, other = asyncio.create_task(there.complete()), asyncio.create_task(here.complete())
        await mock.comes(lambda: len(mock.requests) == 2)
        [running] = there.admission.gate.running
        await cancelled(here, running.demand.request_id)
        async with asyncio.timeout(3):
            answer = await call
        assert answer.status_code == 499
        assert not other.done()
        [left] = here.admission.gate.running
        await cancelled(here, left.demand.request_id)
        assert (await other).status_code == 499
        await here.ended(2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_request_is_cancelled_too(tmp_path, mock, stream: bool):
    """It would run to its end whoever leaves: an operator ends it all the same, for all who wait for it."""
    mock.say(Behaviour(stall=2) if stream else Behaviour(never=True), Behaviour())
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        body = {"prompt": "two words", "max_tokens": 5, "stream": stream}
        headers = {"idempotency-key": "a name"}
        calls = [
            asyncio.create_task(running.post("/v1/completions", body, headers=headers)) for _ in range(2)
        ]
        await mock.comes(lambda: len(mock.requests) == 1 and mock.requests[0].sent == (2 if stream else 0))
        await cancelled(running, await in_flight(running))
        for call in calls:
            answer = await call
            if stream:
                assert data_of(answer.text)[-1]["error"]["code"] == "request_cancelled"
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (499, "request_cancelled")
        await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert (entry.outcome, entry.charged > 0) == ("cancelled", stream)


async def test_by_a_command_beside_the_server(tmp_path, mock):
    mock.say(Behaviour(never=True))
    (tmp_path / "onward.toml").write_text("")
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        call = asyncio.create_task(running.complete())
        await mock.comes(lambda: len(mock.requests) == 1)
        request_id = await in_flight(running)
        assert request_id in await onward(tmp_path, "requests", "list")
        assert json.loads(await onward(tmp_path, "requests", "list", "--json"))[0]["model"] == MODEL
        assert request_id in await onward(tmp_path, "requests", "cancel", request_id)
        async with asyncio.timeout(5):
            assert (await call).status_code == 499
        with pytest.raises(AssertionError, match="is running"):
            await onward(tmp_path, "requests", "cancel", request_id)
