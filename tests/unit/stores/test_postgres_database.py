"""PostgreSQL: connections that break or hang, what its URL says, migrations."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from onward.admission.ledger import Done, Granted, Refused
from onward.core.failure import Failure, FailureKind
from onward.stores.error import StoreError
from onward.stores.postgres import PostgresStore
from onward.stores.postgres import database as database_module
from onward.stores.postgres.migrate import MIGRATIONS, migrate
from onward.stores.statements import Migration
from tests.contract.stores import (
    POSTGRES,
    SCHEMA,
    apply,
    connect_to_postgres,
    credit,
    money,
    reserve,
    settle,
)
from tests.unit.stores.between import Between
from tests.unit.stores.conftest import Open

GRANTED, DONE = Granted(), Done()


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
    assert await store.revision() > 0


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
