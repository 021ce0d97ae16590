"""PostgreSQL: beliefs that are checked, several gateways at once, and everything that can break."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from onward.admission.ledger import Account, AccountKind, Done, Expire, Granted, Refused
from onward.admission.store import EntryQuery
from onward.core.failure import Failure, FailureKind
from onward.stores.error import StoreError
from onward.stores.postgres import PostgresStore
from onward.stores.postgres import database as database_module
from onward.stores.postgres import ledger as ledger_module
from onward.stores.postgres import store as store_module
from onward.stores.postgres.migrate import MIGRATIONS, migrate
from onward.stores.statements import Migration
from tests.contract.stores import (
    ACCOUNTS,
    BALANCE,
    POSTGRES,
    SCHEMA,
    apply,
    attempt,
    connect_to_postgres,
    credit,
    entry,
    money,
    postgres,
    progress,
    release,
    reserve,
    settle,
)
from tests.unit.stores.between import Between

GRANTED, DONE = Granted(), Done()
Open = Callable[..., "asyncio.Future[PostgresStore]"]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens stores on an empty schema; all of them are closed in the end."""
    stores: list[PostgresStore] = []

    async def open_store(url: str = POSTGRES, **options) -> PostgresStore:
        store = await PostgresStore.open(url, schema=SCHEMA, **options)
        stores.append(store)
        return store

    async with postgres(tmp_path):
        yield open_store
        for store in stores:
            await store.close()


@pytest.fixture
async def between() -> AsyncIterator[Between]:
    """What lies between a gateway and the database."""
    async with Between(POSTGRES) as between:
        yield between


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many operations each batch had that was decided behind locks."""
    seen: list[int] = []
    load = ledger_module._load

    async def counting(connection, operations):
        seen.append(len(operations))
        return await load(connection, operations)

    monkeypatch.setattr(ledger_module, "_load", counting)
    return seen


async def test_a_gateway_alone_writes_each_batch_in_one_statement(opened: Open, loads: list[int]):
    store = await opened()
    await credit(store, 1000)
    await apply(store, reserve("first", 1))
    assert loads, "accounts are met for the first time"
    loads.clear()
    for number in range(5):
        name = f"r{number}"
        assert await apply(store, reserve(name, 10), progress(name, 3)) == [GRANTED, DONE]
        assert await apply(store, progress(name, 4), reserve(f"s{number}", 10_000)) == [
            DONE,
            Refused(AccountKind.BALANCE, 989 - 5 * number),
        ]
        assert await apply(store, settle(name, 5, attempts=(attempt(), attempt("b")))) == [DONE]
        assert await apply(store, reserve(f"t{number}", 10), release(f"t{number}")) == [GRANTED, DONE]
    assert loads == []
    assert await money(store) == (1000, 25, 1)
    assert [one.deployment for one in (await entry(store, "r3")).attempts] == ["local", "b"]


async def test_what_others_changed_is_seen(opened: Open, loads: list[int]):
    """Nothing is granted or refused on what is not so any more."""
    one, other = await opened(), await opened()
    await credit(one, 100)
    assert await apply(one, reserve("a", 60)) == [GRANTED]
    assert await apply(other, reserve("b", 60)) == [Refused(AccountKind.BALANCE, 40)]
    assert await apply(other, reserve("c", 40)) == [GRANTED]
    assert await apply(one, reserve("d", 1)) == [Refused(AccountKind.BALANCE, 0)]
    await credit(other, 5)
    assert await apply(one, reserve("d", 5)) == [GRANTED]
    assert await apply(other, settle("a", 10)) == [DONE], "whoever ends it"
    assert await apply(one, settle("a", 60)) == [Done(ended=False)]
    assert await apply(one, progress("a", 60)) == [Done(ended=False)]
    assert await money(one) == (105, 10, 45)


async def test_beliefs_come_back(opened: Open, loads: list[int]):
    one, other = await opened(), await opened()
    await credit(one, 100)
    for store, name in ((one, "a"), (other, "b"), (one, "c")):
        await apply(store, reserve(name, 1))
    loads.clear()
    for number in range(30):
        await apply(one, reserve(f"r{number}", 1))
    assert len(loads) <= ledger_module._DOUBTFUL


async def test_several_gateways_at_once(opened: Open):
    """Random requests of four gateways on the same accounts: nothing is overspent, lost or charged twice."""
    stores = [await opened() for _ in range(4)]
    await credit(stores[0], 300)
    budget = Account(ACCOUNTS[1].id, ACCOUNTS[1].kind, 250)
    charged: list[int] = []

    async def client(number: int) -> None:
        draw = random.Random(number)
        for step in range(12):
            name, store = f"{number}-{step}", draw.choice(stores)
            amount = draw.randrange(1, 40)
            [result] = await apply(store, reserve(name, amount, (BALANCE, budget, ACCOUNTS[2])))
            if isinstance(result, Refused):
                continue
            if draw.random() < 0.5:
                assert await apply(store, progress(name, 1)) == [DONE]
            charge = draw.randrange(amount + 1)
            ends = release(name) if draw.random() < 0.3 else settle(name, charge)
            assert await apply(draw.choice(stores), ends) == [DONE]
            charged.append(getattr(ends, "charge", 0))
            credited, spent, held = await money(store)
            assert spent + held <= 250, credited

    await asyncio.gather(*(client(number) for number in range(16)))
    assert await money(stores[0]) == (300, sum(charged), 0)
    page = await stores[0].entries(EntryQuery(limit=1000))
    assert sum(one.charged for one in page.entries) == sum(charged)


async def test_one_ends_it(opened: Open):
    """Everybody ends the same request at once, in all ways."""
    stores = [await opened() for _ in range(3)]
    for number in range(10):
        name = f"r{number}"
        await apply(stores[0], reserve(name, 5, () if number % 2 else ACCOUNTS[2:]))
        ends = (settle(name, 3), release(name), Expire(lease="lease", at_ms=1))
        results = await asyncio.gather(*(apply(*pair) for pair in zip(stores, ends, strict=True)))
        assert sorted(result.ended for [result] in results) == [False, False, True]


async def test_g20_a_thousand_at_once_over_few_connections(opened: Open):
    stores = [await opened(), await opened()]
    await credit(stores[0], 10_000)

    async def request(number: int) -> None:
        store, name = stores[number % 2], f"r{number}"
        accounts = (BALANCE, Account(f"key:k{number % 7}:2026-11", AccountKind.KEY_MONTH))
        assert await apply(store, reserve(name, 10, accounts)) == [GRANTED]
        await store.money([account.id for account in accounts])
        assert await apply(stores[(number + 1) % 2], settle(name, 10)) == [DONE]

    async with asyncio.timeout(60):
        await asyncio.gather(*(request(number) for number in range(1000)))
    assert await money(stores[0]) == (10_000, 10_000, 0)
    connection = await connect_to_postgres()
    used = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward' AND pid <> pg_backend_pid()"
    )
    await connection.close()
    assert used >= 2
    assert sum(len(store._database._pool._holders) for store in stores) == 2 * database_module.POOL


async def test_items_that_cannot_be_kept_harm_nobody_else(opened: Open):
    store = await opened()
    results = await asyncio.gather(
        apply(store, reserve("a", 1, ())),
        apply(store, reserve("b", 1, (), label="nul \x00")),
        apply(store, reserve("c", 1, (), label="lone \ud800")),
        apply(store, reserve("d", 1, ())),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [list, ValueError, ValueError, list]
    assert await apply(store, settle("a", 0), settle("d", 0)) == [DONE, DONE]


# Connections


async def test_a_lost_connection_costs_nobody_anything(opened: Open):
    store = await opened(f"{POSTGRES}?application_name={SCHEMA}")
    await credit(store, 100)
    connection = await connect_to_postgres()
    for number in range(3):
        name = f"r{number}"
        assert await apply(store, reserve(name, 1)) == [GRANTED]
        assert await money(store) == (100, number, 1)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", SCHEMA
        )
        assert await apply(store, settle(name, 1)) == [DONE]
        assert await money(store) == (100, number + 1, 0)
    await connection.close()


async def test_an_answer_that_is_lost(opened: Open, between: Between):
    """The batch was written and nobody heard of it: asked again, it holds once."""
    store = await opened(between.url)
    await credit(store, 100)
    await apply(store, reserve("first", 1))
    between.swallow_answers = True
    writing = asyncio.ensure_future(apply(store, reserve("r", 60)))
    connection = await connect_to_postgres()
    held = f"SELECT count(*) FROM {SCHEMA}.held WHERE request_id = 'r'"  # noqa: S608
    while not await connection.fetchval(held):
        await asyncio.sleep(0.01)
    between.swallow_answers = False
    between.cut()
    assert await writing == [GRANTED]
    assert await money(store) == (100, 0, 61)
    await connection.close()


async def test_the_database_hangs(
    opened: Open, between: Between, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(database_module, "ANSWER_S", 0.3)
    store = await opened(between.url)
    assert await apply(store, reserve("a", 1, ())) == [GRANTED]
    await store.revision()
    between.hang()
    began = time.monotonic()
    calls = [apply(store, reserve(f"r{number}", 1, ())) for number in range(50)]
    results = await asyncio.gather(*calls, store.revision(), credit(store, 1), return_exceptions=True)
    assert {type(result) for result in results} == {Failure}
    assert {result.kind for result in results} == {FailureKind.STORE_DOWN}
    assert time.monotonic() - began < 3
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, "it is said once"
    between.flow()
    while True:
        try:
            assert await apply(store, settle("a", 1)) == [DONE]
            break
        except Failure:
            await asyncio.sleep(0.05)
    assert "answers again" in caplog.text
    assert await store.revision() == 1


async def test_the_database_is_gone_and_comes_back(opened: Open, between: Between):
    store = await opened(between.url)
    await apply(store, reserve("a", 1, ()))
    between.refuse()
    for call in (apply(store, settle("a", 1)), store.revision(), store.renew("l", 1), store.prune(1)):
        with pytest.raises(Failure) as failure:
            await call
        assert failure.value.kind is FailureKind.STORE_DOWN
        assert failure.value.retry_after
    between.flow()
    assert await apply(store, settle("a", 1)) == [DONE]


async def test_closing_while_the_database_hangs(opened: Open, between: Between):
    store = await opened(between.url)
    await apply(store, reserve("a", 1, ()))
    await store.revision()
    between.hang()
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 5
    with pytest.raises(Failure):
        await store.revision()


async def test_whoever_holds_a_lock_too_long(opened: Open):
    store = await opened(f"{POSTGRES}?statement_timeout=200")
    await apply(store, reserve("a", 1))
    connection = await connect_to_postgres()
    async with connection.transaction():
        await connection.execute(f"SELECT 1 FROM {SCHEMA}.accounts FOR UPDATE")  # noqa: S608
        with pytest.raises(Failure) as failure:
            await apply(store, reserve("b", 1))
        assert failure.value.kind is FailureKind.STORE_DOWN
    await connection.close()
    assert isinstance((await apply(store, reserve("b", 1)))[0], Refused)


# Settings


@pytest.mark.parametrize(("durability", "expected"), [("process", "off"), ("disk", "on")])
async def test_durability(opened: Open, durability, expected: str):
    store = await opened(durability=durability)

    async def setting(connection) -> str:
        return await connection.fetchval("SHOW synchronous_commit")

    assert await store._database.ledger(setting) == expected
    assert await store._database.write(setting) == "on", "keys and credits are flushed in any case"


async def test_what_the_url_says(opened: Open):
    store = await opened(f"{POSTGRES}?application_name=mine&connect_timeout=7&work_mem=8MB")

    async def setting(connection) -> tuple[str, ...]:
        names = ("application_name", "work_mem", "search_path", "statement_timeout")
        return tuple([await connection.fetchval(f"SHOW {name}") for name in names])

    assert await store._database.ledger(setting) == ("mine", "8MB", SCHEMA, "5s")
    assert store._database._settings.connect_s == 7


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:a-secret@127.0.0.1:1/test",
        "postgresql://user:a-secret@127.0.0.1:port/test",
        "mysql://user:a-secret@127.0.0.1/test",
        "postgresql://postgres:a-secret@127.0.0.1:5432/no_such_database",
        "postgresql://no_such_user:a-secret@127.0.0.1:5432/postgres",
        "postgresql://postgres:a-secret@127.0.0.1:5432/postgres?sslmode=verify-full",
        "postgresql://postgres:a-secret@127.0.0.1:5432/postgres?no_such_setting=1",
        "postgresql://postgres:a-secret@127.0.0.1:5432/postgres?connect_timeout=soon",
    ],
)
async def test_addresses_that_do_not_work(url: str, caplog: pytest.LogCaptureFixture):
    with pytest.raises(StoreError) as error:
        await PostgresStore.open(url)
    assert "PostgreSQL" in str(error.value)
    assert "a-secret" not in str(error.value) + caplog.text


@pytest.fixture
async def fresh() -> AsyncIterator[str]:
    """The name of a schema that is not there."""
    name = f"{SCHEMA}_fresh"
    yield name
    connection = await connect_to_postgres()
    await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    await connection.close()


async def test_gateways_that_start_at_once_make_one_schema(fresh: str):
    stores = await asyncio.gather(*(PostgresStore.open(POSTGRES, schema=fresh) for _ in range(5)))
    for store in stores:
        assert await store.revision() == 1
        await store.close()


async def test_a_schema_of_a_newer_version(fresh: str):
    await (await PostgresStore.open(POSTGRES, schema=fresh)).close()
    connection = await connect_to_postgres()
    await connection.execute(f"INSERT INTO {fresh}.migrations (number, name) VALUES (999, 'later')")  # noqa: S608
    with pytest.raises(StoreError, match="newer version"):
        await PostgresStore.open(POSTGRES, schema=fresh)
    await connection.close()


async def test_migrations_go_forward_all_or_none(fresh: str):
    connection = await connect_to_postgres()
    await connection.execute(f"SET search_path = {fresh}")
    first = Migration(1, "0001_a.sql", "CREATE TABLE a (x int); CREATE TABLE b (x int);")
    broken = Migration(2, "0002_b.sql", "ALTER TABLE a ADD y int; ALTER TABLE nothing ADD y int;")
    with pytest.raises(asyncpg.UndefinedTableError):
        await migrate(connection, fresh, [first, broken])
    assert await connection.fetchval("SELECT to_regclass($1)::text", f"{fresh}.a") is None
    await migrate(connection, fresh, [first])
    await connection.execute("INSERT INTO a VALUES (1)")
    second = Migration(2, "0002_b.sql", "ALTER TABLE a ADD y int NOT NULL DEFAULT 7;")
    for _ in range(2):
        await migrate(connection, fresh, [first, second])
    assert tuple(await connection.fetchrow("SELECT * FROM a")) == (1, 7)
    names = [row["name"] for row in await connection.fetch("SELECT name FROM migrations ORDER BY number")]
    assert names == ["0001_a.sql", "0002_b.sql"]
    await connection.close()
    assert MIGRATIONS


async def test_a_user_who_may_not_make_the_schema(fresh: str):
    connection = await connect_to_postgres()
    role = f"{fresh}_role"
    await connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(StoreError, match="Grant it CREATE"):
            await PostgresStore.open(POSTGRES.replace("postgres@", f"{role}@"), schema=fresh)
        await connection.execute(f"CREATE SCHEMA {fresh} AUTHORIZATION {role}")
        store = await PostgresStore.open(POSTGRES.replace("postgres@", f"{role}@"), schema=fresh)
        assert await apply(store, reserve("a", 1, ())) == [GRANTED]
        await store.close()
    finally:
        await connection.execute(f"DROP SCHEMA IF EXISTS {fresh} CASCADE; DROP ROLE {role}")
        await connection.close()


async def test_leases_go_by_the_clock_of_the_database(opened: Open, monkeypatch: pytest.MonkeyPatch):
    """A host whose clock is an hour ahead, or behind, ends nobody's requests."""
    right, wrong = await opened(), await opened()
    for ahead_s in (3600, -3600):

        class Clock:
            @staticmethod
            def time(ahead_s: int = ahead_s) -> float:
                return time.time() + ahead_s

        living, dead = f"living{ahead_s}", f"dead{ahead_s}"
        now = int(time.time() * 1000)
        await apply(right, reserve(living, 1, (), lease=living), reserve(dead, 1, (), lease=dead))
        await right.renew(living, now + 30_000)
        await right.renew(dead, now - 1000)
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "time", Clock)
            wrong._ahead_ms = None
            assert await wrong.expire_leases(int(Clock.time() * 1000), frozenset()) == 1
            await wrong.renew("of the wrong", int((Clock.time() + 30) * 1000))
        await apply(right, reserve(f"other{ahead_s}", 1, (), lease="of the wrong"))
        assert await right.expire_leases(now, frozenset()) == 0
        assert (await entry(right, living)).ended_ms is None
        assert (await entry(right, dead)).ended_ms is not None


async def test_an_expiry_by_two_hosts_happens_once(opened: Open):
    stores = [await opened() for _ in range(3)]
    await apply(
        stores[0], *[reserve(f"r{number}", 1, () if number % 2 else ACCOUNTS[2:]) for number in range(30)]
    )
    counts = await asyncio.gather(*(store.expire_leases(1000, frozenset()) for store in stores))
    assert sum(counts) == 30
    assert await money(stores[0], ACCOUNTS[2]) == (0, 0, 0)
