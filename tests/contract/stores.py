"""Stores for the contract suite: every sort of them, and what becomes of each when a process ends.

To add one, write a `Place` and a row in `PLACES`.
"""

import asyncio
import atexit
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import asyncpg

from onward.admission.ledger import (
    Account,
    AccountKind,
    Operation,
    Progress,
    Release,
    Reserve,
    Result,
    Settle,
)
from onward.admission.store import EntryQuery, Money, Store
from onward.core.attempt import Attempt
from onward.core.usage import Usage
from onward.stores.postgres import PostgresStore
from onward.stores.sqlite import SqliteStore
from tests.conftest import missing

NOVEMBER = 1_795_000_000_000
"""A moment in November 2026, Unix milliseconds."""
DECEMBER = 1_797_500_000_000
BALANCE = Account("balance:acme", AccountKind.BALANCE)
TENANT = Account("tenant:acme:2026-11", AccountKind.TENANT_MONTH)
KEY = Account("key:ci:2026-11", AccountKind.KEY_MONTH)
ACCOUNTS = (BALANCE, TENANT, KEY)


class Place(Protocol):
    """Where stores keep what they keep. All that were opened are closed in the end."""

    async def open(self) -> Store:
        """A store as a server has it. One at a time, but for `beside`."""
        ...

    async def beside(self) -> Store:
        """The same data as another process sees it, which is open at the same time."""
        ...

    async def crash(self) -> Store:
        """What a new server finds after the one of `open` was killed, in whatever it did."""
        ...


class SqlitePlace:
    """A file. After a crash there is what the file and its log held at that moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[SqliteStore] = []
        self._crashes = 0
        self.path = folder / "store.db"

    async def open(self) -> Store:
        return await self._open(owner=True)

    async def beside(self) -> Store:
        return await self._open(owner=False)

    async def crash(self) -> Store:
        self._crashes += 1
        folder = self._folder / f"after-{self._crashes}"
        folder.mkdir()
        for name in ("store.db", "store.db-wal"):
            file = self.path.with_name(name)
            if file.exists():
                shutil.copy(file, folder / name)
        await self.close()
        self.path = folder / "store.db"
        return await self.open()

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def _open(self, *, owner: bool) -> Store:
        store = await SqliteStore.open(self.path, owner=owner)
        self._opened.append(store)
        return store


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Place]:
    place = SqlitePlace(folder)
    yield place
    await place.close()


POSTGRES = os.environ.get("ONWARD_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
SCHEMA = f"onward_test_{os.getpid()}_{secrets.token_hex(4)}"
"""Of this process. Its tests empty it, which takes a tenth of the time of making one."""
_TABLES = (
    "accounts",
    "attempts",
    "claims",
    "credits",
    "entries",
    "held",
    "keys",
    "leases",
    "origins",
    "tenants",
)


class PostgresPlace:
    """A schema. After a crash there is what was committed."""

    def __init__(self) -> None:
        self._opened: list[PostgresStore] = []

    async def open(self) -> Store:
        store = await PostgresStore.open(POSTGRES, schema=SCHEMA)
        self._opened.append(store)
        return store

    async def beside(self) -> Store:
        return await self.open()

    async def crash(self) -> Store:
        for store in self._opened:
            abandon(store)
        return await self.open()

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()


def abandon(store: PostgresStore) -> None:
    """Leave the connections as a process does that is killed."""
    database = store._database
    if not database._closed:
        database._closed = True
        database._ledger.terminate()
        database._pool.terminate()


async def connect_to_postgres() -> asyncpg.Connection:
    try:
        return await asyncpg.connect(POSTGRES, timeout=10)
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        missing(f"PostgreSQL at {POSTGRES} ({error})")


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[Place]:
    connection = await connect_to_postgres()
    try:
        if await connection.fetchval("SELECT to_regclass($1)::text", f"{SCHEMA}.migrations") is None:
            atexit.register(lambda: asyncio.run(_drop(SCHEMA)))
        else:
            emptied = "".join(f"DELETE FROM {SCHEMA}.{table};" for table in _TABLES)  # noqa: S608
            await connection.execute(f"SET synchronous_commit = off; {emptied}")
    finally:
        await connection.close()
    place = PostgresPlace()
    yield place
    await place.close()


async def _drop(schema: str) -> None:
    connection = await connect_to_postgres()
    await connection.execute(f"SET synchronous_commit = off; DROP SCHEMA IF EXISTS {schema} CASCADE")
    await connection.close()


PLACES: dict[str, Callable[[Path], AbstractAsyncContextManager[Place]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
}


def reserve(request_id: str, amount: int, accounts: tuple[Account, ...] = ACCOUNTS, **fields) -> Reserve:
    """A reservation of the tenant acme and its key ci."""
    values = {
        "lease": "lease",
        "key_id": "ci",
        "key_name": "ci",
        "tenant": "acme",
        "model": "model",
        "surface": "chat",
        "at_ms": NOVEMBER,
    }
    return Reserve(request_id=request_id, amount=amount, accounts=accounts, **(values | fields))


def settle(request_id: str, charge: int, **fields) -> Settle:
    fields.setdefault("usage", Usage(3, 4, 1))
    fields.setdefault("at_ms", NOVEMBER + 1000)
    return Settle(request_id=request_id, charge=charge, **fields)


def release(request_id: str, outcome: str = "upstream_unavailable", **fields) -> Release:
    fields.setdefault("at_ms", NOVEMBER + 1000)
    return Release(request_id=request_id, outcome=outcome, **fields)


def progress(request_id: str, charge: int, usage: Usage | None = None) -> Progress:
    return Progress(request_id=request_id, charge=charge, usage=usage or Usage(3, 2, 0))


def attempt(deployment: str = "local", **fields) -> Attempt:
    fields.setdefault("outcome", "ok")
    fields.setdefault("started_ms", NOVEMBER)
    return Attempt(deployment=deployment, **fields)


async def apply(store: Store, *operations: Operation) -> list[Result]:
    return await store.apply(list(operations))


async def credit(store: Store, amount: int, tenant: str = "acme", **fields) -> Money:
    fields.setdefault("note", "")
    fields.setdefault("at_ms", NOVEMBER)
    return await store.credit(tenant, amount, **fields)


async def money(store: Store, account: Account = BALANCE) -> tuple[int, int, int]:
    """What was credited, is spent, is held."""
    [found] = await store.money([account.id])
    assert found.id == account.id
    return found.credited, found.spent, found.held


async def entry(store: Store, request_id: str):
    """The one entry of a request; None: there is none."""
    page = await store.entries(EntryQuery(request_id=request_id))
    assert len(page.entries) <= 1
    return page.entries[0] if page.entries else None
