"""Requests with an Idempotency-Key while the store is down, the server ends, or its process dies."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from onward.admission.idempotency import Binding, Claim, Claimed, Kept, KeptAnswer
from onward.admission.keys import Key
from onward.admission.ledger import State
from onward.http.limits import Limits
from onward.stores.limits import MemoryLimits
from onward.wiring.authority import Authority
from onward.wiring.config import Retention
from tests.contract.stores import apply, reserve, settle
from tests.http.gateway import Gateway, cost, data_of, gateway, units
from tests.http.harness import MODEL, SlowEngine, edge, until
from tests.http.test_gateway_shared import start  # noqa: F401 - a fixture
from tests.http.test_idempotency import NAMED, PAYS, events_of, same, streamed
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

pytestmark = pytest.mark.covers("P-8", "O-6")


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@contextlib.asynccontextmanager
async def serving(folder: Path, mock: MockProvider, **options) -> AsyncIterator[Gateway]:
    async with gateway(folder, mock, **({"tenant": PAYS} | options)) as running:
        yield running


# The store


@streamed
async def test_no_name_is_taken_while_the_store_is_down(tmp_path, mock, stream: bool):
    async with serving(tmp_path, mock) as running:
        running.store.broken = True
        await running.refused(503, "store_down", headers=NAMED, stream=stream)
        running.store.broken = False
        assert (await running.complete(headers=NAMED, stream=stream)).status_code == 200
        assert len(mock.requests) == 1


async def test_a_stream_whose_end_could_not_be_written_is_kept_later(tmp_path, mock):
    """As its charge is: the caller was told of a failure, and gets the whole of it when asking again."""
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(hold=3))
        async with running.caller(headers=NAMED, stream=True) as caller:
            await caller.reads(3)
            running.store.broken = True
            mock.let_go()
            await caller.reads_all()
        assert data_of(caller.text)[-1]["error"]["code"] == "store_down"
        running.store.broken = False
        answer = await running.complete(headers=NAMED, stream=True)  # waits for the next mark
        assert answer.headers["idempotent-replayed"] == "true"
        assert data_of(answer.text)[-1] == "[DONE]"
        assert (await running.entry()).charged == cost(2, 5)
        assert len(mock.requests) == 1


async def test_a_whole_answer_that_could_not_be_written_is_nobodys(tmp_path, mock):
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(hold=0))
        calling = asyncio.create_task(running.complete(headers=NAMED))
        await mock.comes(lambda: len(mock.requests) == 1)
        running.store.broken = True
        mock.let_go()
        assert (await calling).json()["error"]["code"] == "store_down"
        running.store.broken = False
        answer = await running.complete(headers=NAMED)
        assert answer.status_code == 200
        same(answer, await running.complete(headers=NAMED))
        entries = await running.ended(2)
        assert [entry.charged for entry in entries] == [0, cost(2, 5)]


@streamed
async def test_a_name_is_let_go_once_the_store_is_back(tmp_path, mock, stream: bool):
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(delay=0.2, status=503))
        calling = asyncio.create_task(running.complete(headers=NAMED, stream=stream))
        await mock.comes(lambda: len(mock.requests) == 1)
        running.store.broken = True
        assert (await calling).status_code == 503
        running.store.broken = False
        answer = await running.complete(headers=NAMED, stream=stream)
        assert (answer.status_code, len(mock.requests)) == (200, 2)


@streamed
async def test_without_a_store_names_hold_within_the_process(text_side, tmp_path, stream: bool):
    async with edge(text_side, tmp_path) as running:
        asked = {"model": MODEL, "prompt": "hello", "max_tokens": 3, "stream": stream}

        async def complete(**changes):
            return await running.client.post("/v1/completions", json=asked | changes, headers=NAMED)

        first = await complete()
        assert first.status_code == 200
        same(first, await complete())
        assert (await complete(max_tokens=2)).status_code == 409
        assert len(running.engine.requests) == 1


# The end of a server


@streamed
async def test_a_server_that_ends_waits_for_a_request_whose_caller_left(tmp_path, mock, stream: bool):
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(hold=2 if stream else 0))
        async with running.caller(headers=NAMED, stream=stream) as caller:
            await (caller.reads(2) if stream else mock.comes(lambda: len(mock.requests) == 1))
            caller.goes()
        await until(lambda: running.http.connections == 0)
        draining = asyncio.create_task(running.http.drain(10))
        await asyncio.sleep(0.1)
        assert not draining.done()
        mock.let_go()
        await draining
        entry = await running.entry()
        assert (entry.state, entry.charged) == (State.SETTLED, cost(2, 5))


@streamed
async def test_a_hurry_ends_named_requests_and_all_are_told(tmp_path, mock, stream: bool):
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(hold=2 if stream else 0))
        asked = {"headers": NAMED, "stream": stream}
        async with running.caller(**asked) as first, running.caller(**asked) as second:
            if stream:
                await first.reads(2)
                await second.reads(2)
            else:
                await mock.comes(lambda: len(mock.requests) == 1)
                await asyncio.sleep(0.05)
            hurry = asyncio.Event()
            hurry.set()
            await running.http.drain(30, hurry)
            for caller in (first, second):
                assert "The server is shutting down" in await caller.reads_all()
                assert "[DONE]" not in caller.text
        entry = await running.entry()
        assert (entry.state, entry.charged) == (State.RELEASED, 0)
    async with serving(tmp_path, mock) as running:
        assert (await running.complete(**asked)).status_code == 200


async def test_a_process_that_dies_charges_nothing_of_a_named_request(tmp_path, mock):
    """Without a name its marks would be charged. The next try is the only charge."""
    async with serving(tmp_path, mock) as running:
        mock.say(Behaviour(hold=3))
        async with running.caller(headers=NAMED, stream=True) as caller:
            await caller.reads(3)
            await running.admission.gate.mark()
            authority = Authority(running.config, running.store, MemoryLimits(time.monotonic))
            await authority.bury(running.admission.lease)
            entry = await running.entry()
            assert (entry.state, entry.charged) == (State.EXPIRED, 0)
            # what still runs of it here has lost its name
            async with running.caller(headers=NAMED, stream=True) as again:
                await mock.comes(lambda: len(mock.requests) == 2)
                await again.reads_all()
            mock.let_go()
            await caller.reads_all()
        entries = await running.ended(2)
        assert sorted(entry.charged for entry in entries) == [0, cost(2, 5)]
        kept = await running.complete(headers=NAMED, stream=True)
        assert kept.content == events_of(again)
        assert await running.balance() == units("1.00") - cost(2, 5)


# Several gateways


@streamed
async def test_a_replay_on_another_gateway(start, mock, stream: bool):  # noqa: F811
    one, two = await start(tenant=PAYS), await start(tenant=PAYS)
    first = await one.complete(headers=NAMED, stream=stream)
    assert first.status_code == 200
    same(first, await two.complete(headers=NAMED, stream=stream))
    assert len(mock.requests) == 1
    answer = await two.complete(headers=NAMED, stream=stream, max_tokens=3)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_conflict")
    [entry] = await two.ended(1)
    assert entry.charged == cost(2, 5)


@streamed
async def test_another_gateway_waits_for_the_answer(start, mock, stream: bool):  # noqa: F811
    one, two = await start(tenant=PAYS), await start(tenant=PAYS)
    mock.say(Behaviour(hold=2 if stream else 0))
    first = asyncio.create_task(one.complete(headers=NAMED, stream=stream))
    await mock.comes(lambda: len(mock.requests) == 1)
    second = asyncio.create_task(two.complete(headers=NAMED, stream=stream))
    await asyncio.sleep(0.4)
    assert not second.done()
    mock.let_go()
    same(await first, await second)
    assert len(mock.requests) == 1


@pytest.mark.parametrize("limits", [Limits(named_wait_s=0.6), Limits(request_s=0.6)], ids=["wait", "request"])
async def test_another_gateway_does_not_wait_for_ever(start, mock, limits: Limits):  # noqa: F811
    one = await start(tenant=PAYS)
    two = await start(tenant=PAYS, limits=limits)
    mock.say(Behaviour(hold=0))
    first = asyncio.create_task(one.complete(headers=NAMED))
    await mock.comes(lambda: len(mock.requests) == 1)
    answer = await two.complete(headers=NAMED)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert int(answer.headers["retry-after"]) > 0
    assert "still running" in answer.json()["error"]["message"]
    mock.let_go()
    same(await first, await two.complete(headers=NAMED))
    assert not one.admission.names._left
    assert not two.admission.names._left


async def test_another_gateway_takes_over_what_failed(start, mock):  # noqa: F811
    one, two = await start(tenant=PAYS), await start(tenant=PAYS)
    mock.say(Behaviour(delay=0.3, status=503))
    first = asyncio.create_task(one.complete(headers=NAMED))
    await mock.comes(lambda: len(mock.requests) == 1)
    second = await two.complete(headers=NAMED)
    assert ((await first).status_code, second.status_code) == (503, 200)
    same(second, await one.complete(headers=NAMED))
    assert [entry.charged for entry in await one.ended(2)] == [0, cost(2, 5)]


async def test_who_leaves_while_waiting_takes_no_name(start, mock):  # noqa: F811
    one, two = await start(tenant=PAYS), await start(tenant=PAYS)
    mock.say(Behaviour(hold=0, status=503))
    first = asyncio.create_task(one.complete(headers=NAMED))
    await mock.comes(lambda: len(mock.requests) == 1)
    asked: list[int] = []
    claim = two.admission.names._asked._write

    def counted(claims):
        asked.append(len(claims))
        return claim(claims)

    two.admission.names._asked._write = counted
    async with two.caller(headers=NAMED) as caller:
        await asyncio.sleep(0.4)
        caller.goes()
    await two.logged('"disconnected":true')
    assert not two.admission.recordings
    assert len(asked) > 1
    asked.clear()
    await asyncio.sleep(0.6)
    assert not asked, "nobody asks for who has left"
    mock.let_go()
    assert (await first).status_code == 503
    assert (await one.complete(headers=NAMED)).status_code == 200
    assert len(mock.requests) == 2


async def test_a_thousand_names_are_claimed_in_few_calls(text_side, tmp_path):
    engine = SlowEngine(260, 0)
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "1000"}) as running:
        claimed = running.store.claim
        batches: list[int] = []

        async def claim(claims):
            batches.append(len(claims))
            return await claimed(claims)

        running.admission.names._asked._write = claim
        names = [{"idempotency-key": str(number)} for number in range(200)]
        answers = await asyncio.gather(*[running.complete(headers=name, prompt=[1]) for name in names])
        assert {answer.status_code for answer in answers} == {200}
        assert sum(batches) == 200
        assert len(batches) < 100


@pytest.mark.complaint("G27")
async def test_g27_a_key_that_is_revoked_on_one_gateway_gets_nothing_on_another(start, mock):  # noqa: F811
    one, two = await start(tenant=PAYS), await start(tenant=PAYS)
    secret = "on-a-key-that-is-revoked"
    digest = hashlib.sha256(secret.encode()).digest()
    key = Key(id="k1", name="lent", sha256=digest, tenant="acme")
    await one.store.add_key(key, prefix="on-a", at_ms=1)
    await asyncio.gather(one.admission.refresh(), two.admission.refresh())
    first = await one.complete(secret=secret, headers=NAMED)
    assert first.status_code == 200, first.text
    same(first, await two.complete(secret=secret, headers=NAMED))
    await one.store.revoke_key("k1", 2)
    async with asyncio.timeout(5):
        while (await two.complete(secret=secret, headers=NAMED)).status_code != 401:
            await asyncio.sleep(0.05)
    assert len(mock.requests) == 1


async def test_old_answers_are_forgotten(tmp_path, mock):
    """When the supervisor starts, and every hour; those that run are not answers."""
    day_ms = 86_400_000
    now = int(time.time() * 1000)
    async with serving(tmp_path, mock, config={"retention": Retention(idempotency_hours=24)}) as running:
        store = running.store
        ages = {"old": now - 2 * day_ms, "new": now - day_ms // 2}
        claims = {
            name: Claim(
                scope="ci", name=name, path="/p", body_sha256=b"", request_id=name, lease="l", at_ms=at_ms
            )
            for name, at_ms in ages.items()
        }
        await store.claim(list(claims.values()))
        for name in ages:
            answer = KeptAnswer(status=200, headers=(), body=b"")
            ending = settle(name, 0, binding=Binding(scope="ci", name=name, answer=answer))
            await apply(store, reserve(name, 0, lease="l"), ending)
        authority = Authority(running.config, store, MemoryLimits(time.monotonic))
        pruning = asyncio.create_task(authority._prune())
        again = [msgspec.structs.replace(claim, request_id="another") for claim in claims.values()]
        async with asyncio.timeout(5):
            while isinstance((await store.claim(again))[0], Kept):
                await asyncio.sleep(0.01)
        pruning.cancel()
        old, new = await store.claim(again)
        assert (old, type(new)) == (Claimed(), Kept)
