"""A gateway as processes: what a signal, a kill and a second start leave in the ledger."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from onward.admission.ledger import Entry, State
from onward.admission.store import EntryQuery
from onward.stores.sqlite import SqliteStore
from tests.conftest import RunningServer, start_server
from tests.http.gateway import MODEL, SECRET, UPSTREAM, cost, data_of, digest_of, units
from tests.http.test_processes import named
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
CONFIG = """
[server]
workers = {workers}
shutdown_grace_s = {grace}
[dialects]
openai = "/v1"
tokens = "/tokens/v1"
[[providers]]
name = "up"
protocol = "openai"
base_url = "{upstream}"
[[models]]
id = "{model}"
price = {{ input = "1", cached_input = "0.5", output = "2" }}
  [[models.deployments]]
  name = "bought"
  provider = "up"
  model = "{name}"
[[tenants]]
name = "acme"
balance = "{balance}"
[[keys]]
name = "ci"
tenant = "acme"
sha256 = "{digest}"
concurrency = 100
"""
HEADERS = {"authorization": f"Bearer {SECRET}"}


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@contextlib.asynccontextmanager
async def serving(
    folder: Path, mock: MockProvider, *, workers: int = 1, grace: float = 10, balance: str = "1.00"
) -> AsyncIterator[RunningServer]:
    """`onward serve` over a provider, ready. Killed in the end if it still runs."""
    config = CONFIG.format(
        workers=workers,
        grace=grace,
        balance=balance,
        upstream=mock.base_url,
        model=MODEL,
        name=UPSTREAM,
        digest=digest_of(SECRET),
    )
    server = start_server(folder, config=config)
    try:
        await asyncio.to_thread(server.wait_ready)
        yield server
    finally:
        server.process.kill()
        await asyncio.to_thread(server.process.wait)


class Reading:
    """A streamed call and what came of it so far."""

    def __init__(self, server: RunningServer, client: httpx.AsyncClient) -> None:
        self.text = ""
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._read(server, client))

    async def _read(self, server: RunningServer, client: httpx.AsyncClient) -> None:
        body = {"model": MODEL, "prompt": "two words", "max_tokens": 5, "stream": True}
        url = f"{server.base_url}/v1/completions"
        with contextlib.suppress(httpx.TransportError):
            async with client.stream("POST", url, json=body, headers=HEADERS) as answer:
                async for piece in answer.aiter_text():
                    self.text += piece
                    self._more.set()

    async def has(self, events: int) -> None:
        async with asyncio.timeout(20):
            while self.text.count("data: ") < events:
                self._more.clear()
                await self._more.wait()

    async def ends(self) -> list:
        async with asyncio.timeout(20):
            await self._task
        return data_of(self.text)


async def ledger(folder: Path) -> tuple[list[Entry], tuple[int, int, int]]:
    """All entries, oldest first; what was credited, is spent and held."""
    store = await SqliteStore.open(folder / "onward.db", owner=False)
    try:
        page = await store.entries(EntryQuery(limit=1000))
        entries = page.entries
        while page.cursor is not None:
            page = await store.entries(EntryQuery(limit=1000, cursor=page.cursor))
            entries += page.entries
        [money] = await store.money(["balance:acme"])
        assert money.spent == sum(entry.charged for entry in entries)
        return entries[::-1], (money.credited, money.spent, money.held)
    finally:
        await store.close()


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


@pytest.mark.complaint("G30")
@pytest.mark.parametrize("workers", [1, 2])
async def test_g30_a_deploy_lets_streams_end(tmp_path, mock: MockProvider, client, workers: int):
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock, workers=workers) as server:
        reading = Reading(server, client)
        await reading.has(2)
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):  # no new work, whoever asks; and whoever asks is told
            while (await client.get(f"{server.base_url}/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
        probes = [(await client.get(f"{server.base_url}{path}")) for path in ("/healthz", "/readyz")]
        assert [probe.status_code for probe in probes] == [200, 503]
        assert probes[1].json()["reasons"] == ["shutting down"]
        body = {"model": MODEL, "prompt": "two words"}
        for path in ("/v1/completions", "/tokens/v1/completions"):
            refused = await client.post(f"{server.base_url}{path}", json=body, headers=HEADERS)
            assert refused.status_code == 503, refused.text
            assert refused.headers["connection"] == "close"
            assert int(refused.headers["retry-after"]) > 0
        assert server.process.poll() is None
        mock.let_go()
        *_, finish, done = await reading.ends()
        assert (finish["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    [entry], money = await ledger(tmp_path)
    assert (entry.state, entry.charged, entry.outcome) == (State.SETTLED, cost(2, 5), "ok")
    assert money == (units("1.00"), cost(2, 5), 0)


@pytest.mark.complaint("G30")
@pytest.mark.parametrize("twice", [False, True])
async def test_g30_what_outlives_its_grace_is_told_so_and_let_go(tmp_path, mock, client, twice: bool):
    """It is ours that it ended, so nothing is charged; and nothing stays held."""
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock, grace=30 if twice else 0.2) as server:
        reading = Reading(server, client)
        await reading.has(2)
        server.process.send_signal(signal.SIGTERM)
        if twice:
            await asyncio.sleep(0.1)  # two signals at once are one
            server.process.send_signal(signal.SIGTERM)
        events = await reading.ends()
        assert events[-1]["error"]["message"].startswith("The server is shutting down")
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    [entry], money = await ledger(tmp_path)
    assert (entry.state, entry.charged) == (State.RELEASED, 0)
    assert money == (units("1.00"), 0, 0)


async def test_after_a_kill_and_a_start_nothing_is_held(tmp_path, mock: MockProvider, client):
    """What was marked is charged; what was answered stands; the opening balance comes once."""
    mock.say(Behaviour(), Behaviour(hold=3), Behaviour(hold=0))
    async with serving(tmp_path, mock) as server:
        body = {"model": MODEL, "prompt": "two words", "max_tokens": 5}
        url = f"{server.base_url}/v1/completions"
        assert (await client.post(url, json=body, headers=HEADERS)).status_code == 200
        marked, silent = Reading(server, client), Reading(server, client)
        await marked.has(3)
        await mock.comes(lambda: len(mock.requests) == 3)
        entries, money = await ledger(tmp_path)
        assert [entry.state for entry in entries] == [State.SETTLED, State.HELD, State.HELD]
        assert money[2] == entries[1].held + entries[2].held
        async with asyncio.timeout(10):  # a mark is written each second
            while (await ledger(tmp_path))[0][1].usage.completion_tokens != 3:
                await asyncio.sleep(0.05)
        server.process.kill()
        await asyncio.to_thread(server.process.wait)
        assert data_of(marked.text)[-1] != "[DONE]"
        await silent.ends()
    async with serving(tmp_path, mock) as server:
        entries, money = await ledger(tmp_path)
        first, second, third = entries
        assert (first.state, first.charged) == (State.SETTLED, cost(2, 5))
        assert (second.state, second.estimated) == (State.EXPIRED, True)
        assert second.usage.completion_tokens == 3
        assert second.charged == cost(second.usage.prompt_tokens, 3)
        assert (third.state, third.charged) == (State.EXPIRED, 0)
        assert money == (units("1.00"), first.charged + second.charged, 0)
        url = f"{server.base_url}/v1/completions"
        assert (await client.post(url, json=body, headers=HEADERS)).status_code == 200
        assert server.stop() == 0


async def test_a_worker_that_is_killed_leaves_nothing_held(tmp_path, mock: MockProvider, client):
    """At once: its supervisor lives. Its places are free as well."""
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock, workers=2) as server:
        reading = Reading(server, client)
        await reading.has(2)
        [entry], _ = await ledger(tmp_path)
        assert entry.state is State.HELD
        workers = named(server.process.pid, "onward.wiring.worker")
        assert len(workers) == 2
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        await reading.ends()
        assert "[DONE]" not in reading.text
        async with asyncio.timeout(10):
            while (await ledger(tmp_path))[0][0].state is State.HELD:
                await asyncio.sleep(0.02)
        [entry], money = await ledger(tmp_path)
        assert (entry.state, money[2]) == (State.EXPIRED, 0)
        async with asyncio.timeout(20):
            while len(named(server.process.pid, "onward.wiring.worker")) < 2:
                await asyncio.sleep(0.05)


@pytest.mark.complaint("G01", "G15")
async def test_workers_share_a_balance_and_a_limit(tmp_path, mock: MockProvider):
    """Balance for 10 calls that use all they hold, 60 at once over two processes: 10 pass."""
    mock.always(Behaviour(hold=0, counts="17/5"))
    body = {"model": MODEL, "prompt": "two words", "max_tokens": 5}
    bounds = httpx.Limits(max_connections=60, max_keepalive_connections=0)
    async with (
        serving(tmp_path, mock, workers=2, balance="0.000270000") as server,
        httpx.AsyncClient(timeout=20, limits=bounds) as client,
    ):
        url = f"{server.base_url}/v1/completions"
        calls = [asyncio.create_task(client.post(url, json=body, headers=HEADERS)) for _ in range(60)]
        await mock.comes(lambda: len(mock.requests) == 10)
        async with asyncio.timeout(20):
            while sum(call.done() for call in calls) < 50:
                await asyncio.sleep(0.01)
        mock.let_go()
        answers = [await call for call in calls]
        assert sorted(answer.status_code for answer in answers) == [200] * 10 + [402] * 50
        assert len(mock.requests) == 10
        assert await asyncio.to_thread(server.stop) == 0
    entries, money = await ledger(tmp_path)
    assert [entry.charged for entry in entries] == [27_000] * 10
    assert money == (270_000, 270_000, 0)


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ('limits = "redis://127.0.0.1:99999/x"', "the limits cannot be counted: The address of Redis"),
        ('limits = "redis://127.0.0.1:1/0"', "the store cannot be used"),
        ('url = "postgresql://nobody:hush@127.0.0.1:1/none"', "the store cannot be opened"),
    ],
    ids=["no address", "no redis", "no postgres"],
)
def test_what_does_not_answer_at_the_start_is_named(tmp_path, store: str, said: str):
    config = CONFIG.format(
        workers=1,
        grace=1,
        balance="1",
        upstream="http://127.0.0.1:9/v1",
        model=MODEL,
        name=UPSTREAM,
        digest=digest_of(SECRET),
    )
    server = start_server(tmp_path, config=f"[store]\n{store}\n{config}")
    assert server.process.wait(30) == 1
    text = server.log.read_text()
    [line] = [line for line in text.splitlines() if line.startswith("onward: ")]
    assert line.startswith(f"onward: {said}")
    assert "fault of ours" not in text
    assert "Traceback" not in text
    assert "hush" not in text
