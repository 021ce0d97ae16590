"""The durable store in one SQLite file: the default."""

from collections.abc import Awaitable, Sequence
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
from onward.stores.batch import GroupCommit, joined, parted
from onward.stores.error import StoreError
from onward.stores.sqlite import claims as names
from onward.stores.sqlite import directory, reading
from onward.stores.sqlite.database import Database, Durability
from onward.stores.sqlite.ledger import Ledger

_FORGOTTEN_AT_ONCE: Final = 100
_JOINED: Final = 64


class SqliteStore:
    """`admission.store.Store` over a file. `open` makes one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ledger = Ledger(database)
        self._calls: GroupCommit[list[Operation], list[Result]] = GroupCommit(self._write, largest=_JOINED)
        """Batches of several processes, which one commit writes together."""

    @classmethod
    async def open(
        cls, path: Path | str, *, durability: Durability = "process", owner: bool = True
    ) -> "SqliteStore":
        """Open the file, or make it, readable by nobody else. Raises `StoreError`.

        `owner`: the one process that admits requests; a second one is refused. Whoever had a lease is dead
        then. A command that looks at the file beside it, or changes keys, is none.
        """
        store = cls(Database.open(Path(path), durability, owner=owner))
        if owner:
            try:
                await store._ledger.forget_leases()
            except BaseException as error:
                await store.close()
                if isinstance(error, Failure):
                    raise StoreError(f"The store {path} cannot be written: {error.__cause__}.") from error
                raise
        return store

    def write(self, operations: list[Operation]) -> list[Result] | Awaitable[list[Result]]:
        """`apply`, which has happened on return where nothing had to be waited for (see `GroupCommit`)."""
        return self._ledger.write(operations)

    async def apply(self, operations: list[Operation]) -> list[Result]:
        return await self._calls.submit(operations)

    async def renew(self, lease: str, until_ms: int) -> None:
        await self._ledger.renew(lease, until_ms)

    async def expire_leases(self, now_ms: int, keep: frozenset[str]) -> int:
        return await self._ledger.expire_leases(now_ms, keep)

    async def revision(self) -> int:
        return await self._database.read(directory.revision)

    async def directory(self) -> Directory:
        return await self._database.read(directory.directory)

    async def add_key(self, key: Key, *, prefix: str, at_ms: int) -> StoredKey:
        return await self._database.write(lambda cursor: directory.add_key(cursor, key, prefix, at_ms))

    async def change_key(self, key: Key) -> StoredKey | None:
        return await self._database.write(lambda cursor: directory.change_key(cursor, key))

    async def revoke_key(self, key_id: str, at_ms: int) -> StoredKey | None:
        return await self._database.write(lambda cursor: directory.revoke_key(cursor, key_id, at_ms))

    async def keys(self, *, after: str | None, limit: int) -> list[StoredKey]:
        return await self._database.read(lambda connection: directory.keys(connection, after, limit))

    async def key(self, key_id: str) -> StoredKey | None:
        return await self._database.read(lambda connection: directory.key(connection, key_id))

    async def touch_keys(self, used: dict[str, int]) -> None:
        await self._database.write(lambda cursor: directory.touch_keys(cursor, used))

    async def add_tenant(self, tenant: Tenant, at_ms: int) -> None:
        await self._database.write(lambda cursor: directory.add_tenant(cursor, tenant, at_ms))

    async def change_tenant(self, tenant: Tenant) -> bool:
        return await self._database.write(lambda cursor: directory.change_tenant(cursor, tenant))

    async def credit(
        self, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None = None
    ) -> Money:
        return await self._ledger.credit(
            lambda cursor: directory.credit(cursor, tenant, amount, note=note, at_ms=at_ms, once=once)
        )

    async def cancel(self, request_id: str) -> bool:
        return await self._database.write(lambda cursor: directory.cancel(cursor, request_id))

    async def money(self, account_ids: list[str]) -> list[Money]:
        return await self._database.read(lambda connection: reading.money(connection, account_ids))

    async def entries(self, query: EntryQuery) -> EntryPage:
        return await self._database.read(lambda connection: reading.entries(connection, query), long=True)

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        return await self._database.read(lambda connection: reading.usage(connection, query), long=True)

    async def prune(self, attempts_before_ms: int) -> int:
        return await self._ledger.prune(attempts_before_ms)

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        return await self._database.write(lambda cursor: names.claim(cursor, claims))

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        await self._database.write(lambda cursor: names.unclaim(cursor, claims))

    async def forget_answers(self, before_ms: int) -> int:
        forgotten = 0
        while True:
            some = await self._database.write(
                lambda cursor: names.forget(cursor, before_ms, _FORGOTTEN_AT_ONCE)
            )
            forgotten += some
            if some < _FORGOTTEN_AT_ONCE:
                return forgotten

    async def close(self) -> None:
        await self._calls.drain()
        await self._database.close()

    def _write(self, calls: list[list[Operation]]) -> list[list[Result]] | Awaitable[list[list[Result]]]:
        results = self._ledger.write(joined(calls))
        return parted(calls, results) if isinstance(results, list) else _later(calls, results)


async def _later(calls: list[list[Operation]], results: Awaitable[list[Result]]) -> list[list[Result]]:
    return parted(calls, await results)


open_store = SqliteStore.open
