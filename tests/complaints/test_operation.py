"""G20, G21, G25, G27, G36: what operators see after weeks, with replicas, under load, in their logs."""

import asyncio
import gc
import json
import logging
import sys
import time

import pytest

from onward.admission.ledger import Reserve, Settle, State
from onward.core.usage import Usage
from onward.stores.postgres import PostgresStore
from onward.wiring import config as settings
from tests.contract.stores import POSTGRES, SCHEMA, attempt, postgres
from tests.http.gateway import MODEL, SECRET, cost, gateway
from tests.http.harness import until
from tests.mock_answers import SECRET as THEIR_SECRET
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"
ADMIN = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
DAY_MS = 86_400_000


async def open_postgres(_: settings.Config) -> PostgresStore:
    return await PostgresStore.open(POSTGRES, schema=SCHEMA)


@pytest.mark.complaint("G20")
async def test_g20_a_thousand_at_once_over_a_few_connections(tmp_path, mock: MockProvider):
    mock.always(Behaviour(tokens=5))
    async with (
        postgres(tmp_path),
        gateway(tmp_path, mock, tenant={"balance": "100"}, key={}, store=open_postgres) as running,
    ):

        async def call(_: int) -> str:
            async with running.caller() as caller:
                return await caller.reads_all()

        calls = asyncio.gather(*[call(n) for n in range(1000)])
        while not calls.done():  # an operator looks on
            await running.store.entries(_latest())
            await asyncio.wait([calls], timeout=0.2)
        assert all(text.startswith("HTTP/1.1 200") for text in await calls)
        [money] = await running.store.money(["balance:acme"])
        assert (money.spent, money.held) == (1000 * cost(2, 5), 0)


def _latest():
    from onward.admission.store import EntryQuery

    return EntryQuery(limit=5)


@pytest.mark.complaint("G21")
async def test_g21_a_request_leaves_nothing_behind(tmp_path, mock: MockProvider, monkeypatch):
    """Of 100,000 requests `bench/gateway` tells. Here: objects, which do not grow with a few hundred."""
    monkeypatch.setattr(logging.getLogger("onward"), "propagate", False)  # pytest keeps what is logged
    key = {"requests_per_minute": 10**6, "tokens_per_minute": 10**9, "concurrency": 10}
    async with gateway(tmp_path, mock, tenant={"balance": "100"}, key=key) as running:
        kinds = [
            {},
            {"stream": True},
            {"n": 9**9},
            {"model": "org/none"},
            {"prompt": "[[status=500]]"},
            {"prompt": "[[cut=1]]", "stream": True},
            {"max_tokens": 10**8},
        ]

        async def rounds(count: int) -> int:
            for number in range(count):
                for body in kinds:
                    await running.complete(**body)
                if number % 5 == 0:
                    async with running.caller(stream=True, prompt="[[stall=1]]") as caller:
                        await caller.reads(1)
                    await until(lambda: not list(running.admission.gate.running))
                mock.requests.clear()
            await running.admission.gate.mark()
            gc.collect()
            return sys.getallocatedblocks()

        await rounds(10)
        before = await rounds(5)
        after = await rounds(30)
        assert after - before < 30 * len(kinds) * 3
        await running.idle()


@pytest.mark.complaint("G25")
async def test_g25_no_secret_gets_out(tmp_path, monkeypatch):
    """Not where the provider repeats its key either."""
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("UPSTREAM_KEY", THEIR_SECRET)
    with MockProvider(key=THEIR_SECRET) as mock:
        provider = {"api_key_env": "UPSTREAM_KEY"}
        async with gateway(tmp_path, mock, tenant={"balance": "1.00"}, provider=provider) as running:
            assert (await running.complete()).status_code == 200  # it is sent where it belongs
            seen: list[str] = []
            for say in ("status=401", "status=400", "status=500", "error_event=0", "error_event=2", "html"):
                for stream in (False, True):
                    for path in ("/v1/completions", "/tokens/v1/completions"):
                        answer = await running.complete(path=path, prompt=f"[[{say}]]", stream=stream)
                        seen += [answer.text, str(answer.headers.raw)]
            for secret in ("on-not-the-key-of-anybody", SECRET + "x"):
                answer = await running.complete(secret=secret)
                seen += [answer.text, str(answer.headers.raw)]
            for path in ("/metrics", "/v1/models", "/openapi.json", "/v1/openapi.json", "/readyz"):
                answer = await running.client.get(path, headers={"authorization": f"Bearer {SECRET}"})
                seen.append(answer.text)
            for path in ("ledger", "usage", "keys", "config", "requests", "models", "deployments", "tenants"):
                answer = await running.client.get(f"/admin/v1/{path}", headers=ADMIN)
                assert answer.status_code == 200
                seen.append(answer.text)
            seen.append(await running.logged("upstream_unavailable", "said: "))
            for secret in (THEIR_SECRET, SECRET, TOKEN):
                assert not [text for text in seen if secret in text]


@pytest.mark.complaint("G27")
async def test_g27_a_revoked_key_is_refused_by_other_replicas(tmp_path, mock: MockProvider, monkeypatch):
    """Within 5 s. Let in as soon, and with its limits as they are then."""
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    async with (
        postgres(tmp_path),
        gateway(folders[0], mock, store=open_postgres) as one,
        gateway(folders[1], mock, store=open_postgres) as two,
    ):
        assert (await two.complete(secret=None)).status_code == 200  # no key exists
        made = (await one.client.post("/admin/v1/keys", content='{"name": "new"}', headers=ADMIN)).json()
        assert (await one.complete(secret=made["secret"])).status_code == 200
        assert (await one.complete(secret=None)).status_code == 401

        async def turns(status: int, secret: str | None) -> float:
            began = time.monotonic()
            async with asyncio.timeout(5):
                while (await two.complete(secret=secret)).status_code != status:
                    await asyncio.sleep(0.02)
            return time.monotonic() - began

        await turns(401, None)
        assert (await two.complete(secret=made["secret"])).status_code == 200
        await one.client.delete(f"/admin/v1/keys/{made['id']}", headers=ADMIN)
        assert (await one.complete(secret=made["secret"])).status_code == 401
        assert await turns(401, made["secret"]) < 5
        assert (await two.complete(secret=None)).status_code == 401  # the end of the last key lets nobody in


@pytest.mark.complaint("G36")
async def test_g36_the_request_log_is_pruned_and_the_ledger_kept(tmp_path, mock: MockProvider):
    now = int(time.time() * 1000)
    async with gateway(tmp_path, mock, key={}) as running:
        for name, days in (("old", 31), ("young", 29)):
            at_ms = now - days * DAY_MS
            reserve = Reserve(
                request_id=name,
                lease="gone",
                key_id=None,
                key_name=None,
                tenant=None,
                model=MODEL,
                surface="chat",
                at_ms=at_ms,
                amount=100,
                accounts=(),
            )
            tries = (attempt("d1", started_ms=at_ms), attempt("d2", started_ms=at_ms))
            settle = Settle(request_id=name, charge=70, usage=Usage(1, 2), at_ms=at_ms, attempts=tries)
            await running.store.apply([reserve, settle])
    async with gateway(tmp_path, mock, key={}, config={"retention": settings.Retention()}) as running:
        async with asyncio.timeout(5):
            while (await running.entries())[0].attempts:
                await asyncio.sleep(0.01)
        old, young = await running.entries()
        assert (old.state, old.charged, old.usage, old.attempts) == (State.SETTLED, 70, Usage(1, 2), ())
        assert len(young.attempts) == 2
        text = await running.logged()
        assert not [line for line in text.splitlines() if line and len(line) > 2000]


@pytest.mark.complaint("G36")
async def test_g36_a_log_line_does_not_grow_with_its_request(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, key={}) as running:
        await running.complete(prompt="x" * 100_000, user="u" * 900, stop=["y" * 1000])
        await running.complete(prompt="z" * 100_000 + "[[status=400]]", model=MODEL)
        text = await running.logged('"status":200', '"status":400')
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert len(lines) >= 2
        assert len(text) < 4000
