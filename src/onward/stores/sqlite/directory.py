"""Keys, tenants and what is paid in, in a SQLite file."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from onward.admission.books import credited_after
from onward.admission.keys import Key, Tenant
from onward.admission.store import Directory, Money, StoredKey
from onward.core.failure import invalid
from onward.stores.rows import Row, stored_key, stored_tenant
from onward.stores.sqlite.ledger import text_of
from onward.stores.sqlite.reading import money
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "directory.sql")
_Names = frozenset[str]


def revision(connection: sqlite3.Connection) -> int:
    """See `Store`."""
    return connection.execute(_Q["revision"]).fetchone()[0]


def directory(connection: sqlite3.Connection) -> Directory:
    """See `Store`."""
    return Directory(
        revision=revision(connection),
        keys=[_stored(row).key for row in connection.execute(_Q["living_keys"])],
        tenants=[_tenant(row) for row in connection.execute(_Q["tenants"])],
        cancelled=[row[0] for row in connection.execute(_Q["cancelled"])],
    )


def cancel(cursor: sqlite3.Cursor, request_id: str) -> bool:
    """See `Store`."""
    cursor.execute(_Q["cancel"], (request_id,))
    if not cursor.rowcount:
        return False
    cursor.execute(_Q["revise"])
    return True


def keys(connection: sqlite3.Connection, after: str | None, limit: int) -> list[StoredKey]:
    """See `Store`."""
    return [_stored(row) for row in connection.execute(_Q["keys_after"], (after or "", limit))]


def key(connection: sqlite3.Connection | sqlite3.Cursor, key_id: str) -> StoredKey | None:
    """See `Store`."""
    row: Row | None = connection.execute(_Q["key"], (key_id,)).fetchone()
    return None if row is None else _stored(row)


def add_key(cursor: sqlite3.Cursor, new: Key, prefix: str, at_ms: int) -> StoredKey:
    """See `Store`."""
    try:
        cursor.execute(
            _Q["add_key"],
            (
                new.id,
                new.name,
                new.sha256,
                new.tenant,
                _names(new.models),
                new.monthly_cap,
                new.requests_per_minute,
                new.tokens_per_minute,
                new.concurrency,
                prefix,
                at_ms,
            ),
        )
    except sqlite3.IntegrityError as error:
        raise invalid("name", f"There is a key '{new.name}' already. Choose another name.") from error
    cursor.execute(_Q["revise"])
    return StoredKey(key=new, prefix=prefix, created_ms=at_ms, last_used_ms=None, revoked_ms=None)


def change_key(cursor: sqlite3.Cursor, changed: Key) -> StoredKey | None:
    """See `Store`."""
    try:
        cursor.execute(
            _Q["change_key"],
            (
                changed.name,
                changed.tenant,
                _names(changed.models),
                changed.monthly_cap,
                changed.requests_per_minute,
                changed.tokens_per_minute,
                changed.concurrency,
                changed.id,
            ),
        )
    except sqlite3.IntegrityError as error:
        raise invalid("name", f"There is a key '{changed.name}' already. Choose another name.") from error
    if not cursor.rowcount:
        return None
    cursor.execute(_Q["revise"])
    return key(cursor, changed.id)


def revoke_key(cursor: sqlite3.Cursor, key_id: str, at_ms: int) -> StoredKey | None:
    """See `Store`."""
    cursor.execute(_Q["revoke_key"], (at_ms, key_id))
    if cursor.rowcount:
        cursor.execute(_Q["revise"])
    return key(cursor, key_id)


def touch_keys(cursor: sqlite3.Cursor, used: dict[str, int]) -> None:
    """See `Store`."""
    cursor.executemany(_Q["touch_key"], [(at_ms, key_id) for key_id, at_ms in used.items()])


def add_tenant(cursor: sqlite3.Cursor, tenant: Tenant, at_ms: int) -> None:
    """See `Store`."""
    cursor.execute(
        _Q["add_tenant"],
        (
            tenant.name,
            tenant.status.value,
            tenant.prepaid,
            tenant.monthly_budget,
            _names(tenant.agreements),
            at_ms,
        ),
    )
    if not cursor.rowcount:
        raise invalid("name", f"There is a tenant '{tenant.name}' already. Choose another name.")
    cursor.execute(_Q["revise"])


def change_tenant(cursor: sqlite3.Cursor, tenant: Tenant) -> bool:
    """See `Store`."""
    cursor.execute(
        _Q["change_tenant"],
        (
            tenant.status.value,
            tenant.prepaid,
            tenant.monthly_budget,
            _names(tenant.agreements),
            tenant.name,
        ),
    )
    if not cursor.rowcount:
        return False
    cursor.execute(_Q["revise"])
    return True


def credit(
    cursor: sqlite3.Cursor, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None
) -> Money:
    """See `Store`."""
    account = f"balance:{tenant}"
    (before,) = money(cursor, [account])
    if once is not None and cursor.execute(_Q["noted_credit"], (tenant, once)).fetchone():
        return before
    credited = credited_after(before, amount)
    cursor.execute(_Q["note_credit"], (tenant, amount, note, at_ms, once))
    cursor.execute(_Q["credit"], (account, credited))
    return msgspec.structs.replace(before, credited=credited)


def _names(names: Iterable[str] | None) -> str | None:
    return None if names is None else text_of(sorted(names))


def _read_names(text: str) -> _Names:
    return msgspec.json.decode(text, type=_Names)


def _stored(row: Row) -> StoredKey:
    return stored_key(row, _read_names)


def _tenant(row: Row) -> Tenant:
    return stored_tenant(row, _read_names)
