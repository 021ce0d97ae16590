"""Several gateways on one PostgreSQL and one Redis: every limit and every unit of money is counted once."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from onward.admission.ledger import State
from onward.core.usage import Usage
from onward.stores.postgres import PostgresStore
from onward.stores.redis import RedisLimits
from onward.wiring import config as settings
from tests.contract.limits import REDIS, clear
from tests.contract.stores import POSTGRES, SCHEMA, postgres
from tests.http.gateway import Gateway, cost, data_of, gateway, units
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

ONE_CALL = 27_000
"""What a call of `complete` holds."""


async def open_postgres(_: settings.Config) -> PostgresStore:
    return await PostgresStore.open(POSTGRES, schema=SCHEMA)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def start(tmp_path, mock) -> AsyncIterator:
    """Starts a gateway that shares what the ones before it have."""
    prefix = f"onward:test:{secrets.token_hex(8)}:"
    await clear(REDIS, prefix)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(postgres(tmp_path))
        count = 0

        async def start(**options) -> Gateway:
            nonlocal count
            count += 1
            folder = tmp_path / str(count)
            folder.mkdir()
            limits = RedisLimits(REDIS, prefix=prefix)
            running = gateway(folder, mock, store=open_postgres, rate_limits=limits, **options)
            return await stack.enter_async_context(running)

        yield start
    await clear(REDIS, prefix)


async def calls(gateways: list[Gateway], count: int) -> list[int]:
    """The statuses of calls at once, shared out evenly."""
    answers = await asyncio.gather(*[gateways[n % len(gateways)].complete() for n in range(count)])
    return sorted(answer.status_code for answer in answers)


async def held(running: Gateway, name: str = "balance:acme") -> int:
    [money] = await running.store.money([name])
    return money.held


@pytest.mark.complaint("G01")
async def test_g01_a_balance_for_ten_calls_and_two_gateways(start, mock):
    mock.always(Behaviour(hold=0, counts="17/5"))  # each uses all that it holds
    tenant = {"balance": f"{10 * ONE_CALL / 10**9:.9f}"}
    gateways = [await start(tenant=tenant), await start(tenant=tenant)]
    running = asyncio.create_task(calls(gateways, 60))
    await mock.comes(lambda: len(mock.requests) == 10)
    while await held(gateways[0]) != 10 * ONE_CALL:
        await asyncio.sleep(0.01)
    mock.let_go()
    assert await running == [200] * 10 + [402] * 50
    assert len(mock.requests) == 10
    entries = await gateways[1].ended(10)
    assert sum(entry.charged for entry in entries) == 10 * ONE_CALL
    assert await gateways[1].balance() == 0


async def test_a_key_of_two_gateways_has_one_limit(start, mock):
    key = {"requests_per_minute": 7, "tokens_per_minute": 10**6}
    gateways = [await start(key=key), await start(key=key)]
    assert await calls(gateways, 20) == [200] * 7 + [429] * 13
    assert len(mock.requests) == 7


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_charged_as_anywhere(start, mock, stream: bool):
    running = await start(tenant={"balance": "1.00"}, key={"monthly_cap": "0.5", "concurrency": 3})
    mock.say(Behaviour(counts="900/70", cached=400))
    answer = await running.complete(stream=stream, max_tokens=100)
    assert answer.status_code == 200
    entry = await running.entry()
    assert (entry.state, entry.usage, entry.charged) == (
        State.SETTLED,
        Usage(900, 70, 400),
        cost(900, 70, 400),
    )
    assert await running.balance() == units("1.00") - entry.charged
    assert [one.status for one in entry.attempts] == [200]


async def test_a_caller_who_leaves_is_charged_as_anywhere(start, mock):
    mock.say(Behaviour(stall=3))
    running = await start(tenant={"balance": "1.00"}, key={"concurrency": 1})
    async with running.caller(stream=True) as caller:
        await caller.reads(3)
        caller.goes()
        entry = await running.entry()
    assert (entry.outcome, entry.usage.completion_tokens) == ("disconnected", 3)
    async with asyncio.timeout(5):  # its place is given back in Redis, behind the ledger
        while (await running.complete()).status_code == 429:
            await asyncio.sleep(0.01)
    assert await running.balance() == units("1.00") - sum(one.charged for one in await running.entries())


async def test_postgres_goes_away_and_comes_back(start, mock):
    """The ledger's connection is cut while a stream runs: an error at its end or none, and one charge."""
    running = await start(tenant={"balance": "1.00"})
    mock.say(Behaviour(hold=3))
    async with running.caller(stream=True) as caller:
        await caller.reads(3)
        database = running.store._database
        number = database._ledger.get_server_pid()
        assert await database.read(
            lambda connection: connection.fetchval("SELECT pg_terminate_backend($1)", number)
        )
        mock.let_go()
        events = data_of(await caller.reads_all())
    assert events[-1] == "[DONE]" or events[-1]["error"]["code"] == "store_down"
    await running.admission.gate.mark()
    entry = await running.entry()
    assert (entry.state, entry.charged) == (State.SETTLED, cost(2, 5))
    assert (await running.complete()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_redis_that_is_down_lets_nothing_pass(start, mock, stream: bool):
    running = await start(key={"requests_per_minute": 100})
    connection = running.limits._connection
    await connection.disconnect()
    there, connection.port = connection.port, 1  # where nobody is
    await running.refused(503, "store_down", stream=stream)
    assert not mock.requests
    assert not await running.entries()
    connection.port = there
    assert (await running.complete(stream=stream)).status_code == 200
