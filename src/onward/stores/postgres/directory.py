"""Keys, tenants and what is paid in, in PostgreSQL. Each function runs within a transaction of its own."""

from pathlib import Path
from typing import Final

import asyncpg

from onward.admission.books import credited_after
from onward.admission.keys import Key, Tenant
from onward.admission.store import Directory, Money, StoredKey
from onward.core.failure import invalid
from onward.stores.postgres.database import Connection
from onward.stores.rows import Row, stored_key, stored_tenant
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "directory.sql")


async def revision(connection: Connection) -> int:
    """See `Store`."""
    return await connection.fetchval(_Q["revision"])


async def directory(connection: Connection) -> Directory:
    """See `Store`. What changes while it is read is told by the next revision."""
    number = await revision(connection)
    return Directory(
        revision=number,
        keys=[_stored(row).key for row in await connection.fetch(_Q["living_keys"])],
        tenants=[_tenant(row) for row in await connection.fetch(_Q["tenants"])],
        cancelled=[row[0] for row in await connection.fetch(_Q["cancelled"])],
    )


async def cancel(connection: Connection, request_id: str) -> bool:
    """See `Store`."""
    if await connection.fetchval(_Q["cancel"], request_id) is None:
        return False
    await connection.execute(_Q["revise"])
    return True


async def keys(connection: Connection, after: str | None, limit: int) -> list[StoredKey]:
    """See `Store`."""
    return [_stored(row) for row in await connection.fetch(_Q["keys_after"], after or "", limit)]


async def key(connection: Connection, key_id: str) -> StoredKey | None:
    """See `Store`."""
    row = await connection.fetchrow(_Q["key"], key_id)
    return None if row is None else _stored(row)


async def add_key(connection: Connection, new: Key, prefix: str, at_ms: int) -> StoredKey:
    """See `Store`."""
    try:
        await connection.execute(
            _Q["add_key"],
            new.id,
            new.name,
            new.sha256,
            new.tenant,
            None if new.models is None else sorted(new.models),
            new.monthly_cap,
            new.requests_per_minute,
            new.tokens_per_minute,
            new.concurrency,
            prefix,
            at_ms,
        )
    except asyncpg.UniqueViolationError as error:
        raise invalid("name", f"There is a key '{new.name}' already. Choose another name.") from error
    await connection.execute(_Q["revise"])
    return StoredKey(key=new, prefix=prefix, created_ms=at_ms, last_used_ms=None, revoked_ms=None)


async def change_key(connection: Connection, changed: Key) -> StoredKey | None:
    """See `Store`."""
    try:
        found = await connection.fetchval(
            _Q["change_key"],
            changed.name,
            changed.tenant,
            None if changed.models is None else sorted(changed.models),
            changed.monthly_cap,
            changed.requests_per_minute,
            changed.tokens_per_minute,
            changed.concurrency,
            changed.id,
        )
    except asyncpg.UniqueViolationError as error:
        raise invalid("name", f"There is a key '{changed.name}' already. Choose another name.") from error
    if found is None:
        return None
    await connection.execute(_Q["revise"])
    return await key(connection, changed.id)


async def revoke_key(connection: Connection, key_id: str, at_ms: int) -> StoredKey | None:
    """See `Store`."""
    if await connection.fetchval(_Q["revoke_key"], at_ms, key_id) is not None:
        await connection.execute(_Q["revise"])
    return await key(connection, key_id)


async def touch_keys(connection: Connection, used: dict[str, int]) -> None:
    """See `Store`."""
    await connection.execute(_Q["touch_keys"], list(used), list(used.values()))


async def add_tenant(connection: Connection, tenant: Tenant, at_ms: int) -> None:
    """See `Store`."""
    added = await connection.fetchval(
        _Q["add_tenant"],
        tenant.name,
        tenant.status.value,
        tenant.prepaid,
        tenant.monthly_budget,
        sorted(tenant.agreements),
        at_ms,
    )
    if added is None:
        raise invalid("name", f"There is a tenant '{tenant.name}' already. Choose another name.")
    await connection.execute(_Q["revise"])


async def change_tenant(connection: Connection, tenant: Tenant) -> bool:
    """See `Store`."""
    changed = await connection.fetchval(
        _Q["change_tenant"],
        tenant.status.value,
        tenant.prepaid,
        tenant.monthly_budget,
        sorted(tenant.agreements),
        tenant.name,
    )
    if changed is None:
        return False
    await connection.execute(_Q["revise"])
    return True


async def credit(
    connection: Connection, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None
) -> Money:
    """See `Store`."""
    account = f"balance:{tenant}"
    await connection.execute(_Q["open_account"], account)
    credited, spent, held = await connection.fetchrow(_Q["lock_account"], account)
    before = Money(id=account, credited=credited, spent=spent, held=held)
    if once is not None and await connection.fetchval(_Q["noted_credit"], tenant, once) is not None:
        return before
    credited = credited_after(before, amount)
    await connection.execute(_Q["note_credit"], tenant, amount, note, at_ms, once)
    await connection.execute(_Q["credit"], account, credited)
    return Money(id=account, credited=credited, spent=spent, held=held)


def _stored(row: Row) -> StoredKey:
    return stored_key(row, frozenset[str])


def _tenant(row: Row) -> Tenant:
    return stored_tenant(row, frozenset[str])
