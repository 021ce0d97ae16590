"""The durable store in PostgreSQL: for several gateways that share keys, money and limits."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onward.admission.idempotency import Claim, ClaimResult
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Operation, Result
from onward.admission.store import (
    Directory,
    EntryPage,
    EntryQuery,
    Money,
    StoredKey,
    UsageQuery,
    UsageRow,
)
from onward.core.failure import Failure
from onward.stores.error import StoreError
from onward.stores.postgres import claims as names
from onward.stores.postgres import directory, reading
from onward.stores.postgres.database import LONG_S, Connection, Database, Durability, Settings
from onward.stores.postgres.ledger import Ledger
from onward.stores.postgres.migrate import migrate
from onward.stores.statements import read_queries

SCHEMA: Final = "onward"
_Q: Final = read_queries(Path(__file__).parent / "queries" / "ledger.sql")
_PRUNED_AT_ONCE: Final = 5000
_FORGOTTEN_AT_ONCE: Final = 500
_CLOSE_ENOUGH_MS: Final = 20
"""A look at the database's clock that took longer is made again, a few times."""
_NOISE_MS: Final = 100
"""Clocks that differ by no more than this from what was known have not been set."""


class PostgresStore:
    """`admission.store.Store` over a schema that any number of gateways share. `open` makes one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ledger = Ledger(database)
        self._ahead_ms: int | None = None
        """How much the database's clock is ahead of ours."""

    @classmethod
    async def open(
        cls, url: str, *, durability: Durability = "process", schema: str = SCHEMA
    ) -> "PostgresStore":
        """Connect, and bring the schema up to date. Raises `StoreError`.

        `url` is what libpq calls a connection URI, with its options for TLS; whatever else stands in
        its query is a setting of the server.
        """
        settings = Settings(url, durability, schema)
        database = await Database.open(settings)
        store = cls(database)
        try:
            await database.ledger(lambda connection: migrate(connection, schema), within=LONG_S)
        except Failure as failure:
            await database.close()
            raise StoreError(f"PostgreSQL cannot be used: {failure.__cause__ or failure}.") from failure
        except BaseException:
            await database.close()
            raise
        return store

    async def apply(self, operations: list[Operation]) -> list[Result]:
        return await self._ledger.apply(operations)

    async def renew(self, lease: str, until_ms: int) -> None:
        async def work(connection: Connection) -> None:
            ahead_ms = await self._ahead(connection)
            await connection.execute(_Q["renew_lease"], lease, until_ms + ahead_ms)

        await self._database.read(work)

    async def expire_leases(self, now_ms: int, keep: frozenset[str]) -> int:
        kept = sorted(keep)

        async def over(connection: Connection) -> list[str]:
            now = now_ms + await self._ahead(connection)
            leases = [row[0] for row in await connection.fetch(_Q["leases_over"], now, kept)]
            await connection.execute(_Q["forget_leases"], now, kept)
            return leases

        leases = await self._database.read(over)
        return await self._ledger.expire(leases, now_ms) if leases else 0

    async def revision(self) -> int:
        return await self._database.read(directory.revision)

    async def directory(self) -> Directory:
        return await self._database.read(directory.directory)

    async def add_key(self, key: Key, *, prefix: str, at_ms: int) -> StoredKey:
        return await self._database.write(
            lambda connection: directory.add_key(connection, key, prefix, at_ms)
        )

    async def change_key(self, key: Key) -> StoredKey | None:
        return await self._database.write(lambda connection: directory.change_key(connection, key))

    async def revoke_key(self, key_id: str, at_ms: int) -> StoredKey | None:
        return await self._database.write(lambda connection: directory.revoke_key(connection, key_id, at_ms))

    async def keys(self, *, after: str | None, limit: int) -> list[StoredKey]:
        return await self._database.read(lambda connection: directory.keys(connection, after, limit))

    async def key(self, key_id: str) -> StoredKey | None:
        return await self._database.read(lambda connection: directory.key(connection, key_id))

    async def touch_keys(self, used: dict[str, int]) -> None:
        await self._database.read(lambda connection: directory.touch_keys(connection, used))

    async def add_tenant(self, tenant: Tenant, at_ms: int) -> None:
        await self._database.write(lambda connection: directory.add_tenant(connection, tenant, at_ms))

    async def change_tenant(self, tenant: Tenant) -> bool:
        return await self._database.write(lambda connection: directory.change_tenant(connection, tenant))

    async def credit(
        self, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None = None
    ) -> Money:
        return await self._database.write(
            lambda connection: directory.credit(connection, tenant, amount, note=note, at_ms=at_ms, once=once)
        )

    async def cancel(self, request_id: str) -> bool:
        return await self._database.write(lambda connection: directory.cancel(connection, request_id))

    async def money(self, account_ids: list[str]) -> list[Money]:
        return await self._database.read(lambda connection: reading.money(connection, account_ids))

    async def entries(self, query: EntryQuery) -> EntryPage:
        async def work(connection: Connection) -> EntryPage:
            async with connection.transaction():
                return await reading.entries(connection, query)

        return await self._database.read(work, within=LONG_S)

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        async def work(connection: Connection) -> list[UsageRow]:
            async with connection.transaction():
                return await reading.usage(connection, query)

        return await self._database.read(work, within=LONG_S)

    async def prune(self, attempts_before_ms: int) -> int:
        forgotten = 0
        while True:
            told = await self._database.read(
                lambda connection: connection.execute(
                    _Q["forget_attempts"], attempts_before_ms, _PRUNED_AT_ONCE
                )
            )
            some = int(told.split()[-1])  # "DELETE 12"
            forgotten += some
            if some < _PRUNED_AT_ONCE:
                return forgotten

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        return await self._database.read(lambda connection: names.claim(connection, claims))

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        await self._database.read(lambda connection: names.unclaim(connection, claims))

    async def forget_answers(self, before_ms: int) -> int:
        forgotten = 0
        while True:
            some = await self._database.read(
                lambda connection: names.forget(connection, before_ms, _FORGOTTEN_AT_ONCE)
            )
            forgotten += some
            if some < _FORGOTTEN_AT_ONCE:
                return forgotten

    async def close(self) -> None:
        await self._ledger.drain()
        await self._database.close()

    async def _ahead(self, connection: Connection) -> int:
        """Leases are kept by the database's clock, so that those of several hosts need not agree.

        What is known stays while it is about right: a look over the network is less exact than a clock.
        """
        for _ in range(3):
            before = time.time()
            now: int = await connection.fetchval(_Q["now"])
            after = time.time()
            took_ms = (after - before) * 1000
            ahead_ms = round(now - (before + after) * 500)
            if self._ahead_ms is None or abs(ahead_ms - self._ahead_ms) > took_ms + _NOISE_MS:
                self._ahead_ms = ahead_ms
            if took_ms <= _CLOSE_ENOUGH_MS:
                break
        return self._ahead_ms or 0
