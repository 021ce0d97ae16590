"""What the ledger in a SQLite file shows: entries, sums, accounts. Read in a thread."""

import json
import sqlite3
from pathlib import Path
from typing import Final

from onward.admission.ledger import Entry, State
from onward.admission.store import EntryPage, EntryQuery, Money, UsageQuery, UsageRow
from onward.core.failure import invalid
from onward.core.money import NANO
from onward.core.usage import Usage
from onward.stores.rows import STATES, Row, stored_attempt, stored_entry
from onward.stores.sqlite.ledger import POSITIONS_PER_MS
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "reading.sql")
_PAST_ALL: Final = 2**63 - 1
_MOST_TIME: Final = 2**50
"""Milliseconds: times from outside are kept in a range that can be counted with."""
_GROUPS: Final = {
    "model": "o.model",
    "key": "o.key_name",
    "tenant": "o.tenant",
    "surface": "o.surface",
    "day": "strftime('%Y-%m-%d', e.at_ms / 1000, 'unixepoch')",
    "month": "strftime('%Y-%m', e.at_ms / 1000, 'unixepoch')",
}


def money(connection: sqlite3.Connection | sqlite3.Cursor, accounts: list[str]) -> list[Money]:
    """Accounts as they are, in the order of the list."""
    ids = json.dumps(accounts)
    own = {row[0]: row[1:] for row in connection.execute(_Q["own_amounts"], (ids,))}
    held = dict(connection.execute(_Q["held_amounts"], (ids,)).fetchall())
    return [
        Money(id=account, credited=credited, spent=spent, held=held.get(account, 0))
        for account in accounts
        for credited, spent in [own.get(account, (0, 0))]
    ]


def entries(connection: sqlite3.Connection, query: EntryQuery) -> EntryPage:
    """A page of entries, newest first. Raises `Failure` for a cursor that is none."""
    values = {
        "before": _position(query.cursor),
        "after": _first_position(query.from_ms),
        "request_id": query.request_id,
        "state": None if query.state is None else STATES[query.state],
        "tenant": query.tenant,
        "key_id": query.key_id,
        "model": query.model,
        "from_ms": _time(query.from_ms),
        "before_ms": _time(query.before_ms),
        "limit": query.limit + 1,
    }
    rows: list[Row] = []
    if query.state in {None, State.HELD}:
        rows += connection.execute(_Q["held_entries"], values)
    if query.state is not State.HELD:
        name = "ended_entries" if query.request_id is None else "ended_entries_of_request"
        rows += connection.execute(_Q[name], values)
    rows.sort(key=lambda row: row[0], reverse=True)
    shown = rows[: query.limit]
    more = len(rows) > query.limit
    return EntryPage(
        entries=[_entry(connection, row) for row in shown], cursor=str(shown[-1][0]) if more else None
    )


def usage(connection: sqlite3.Connection, query: UsageQuery) -> list[UsageRow]:
    """Sums by the groups, in their order. Raises `Failure` for a group that is none."""
    columns = [_group(name) for name in query.group_by]
    values = {
        "after": _first_position(query.from_ms),
        "tenant": query.tenant,
        "key_id": query.key_id,
        "model": query.model,
        "from_ms": _time(query.from_ms),
        "before_ms": _time(query.before_ms),
    }
    sql = _Q["usage"]
    if columns:
        names = ", ".join(columns)
        sql = sql.replace("SELECT", f"SELECT {names},", 1) + f" GROUP BY {names} ORDER BY {names}"
    found: list[UsageRow] = []
    for row in connection.execute(sql, values):
        group, (requests, prompt, completion, cached, whole, rest, estimated) = (
            row[: len(columns)],
            row[len(columns) :],
        )
        if not requests:
            continue
        found.append(
            UsageRow(
                group=dict(zip(query.group_by, group, strict=True)),
                requests=requests,
                usage=Usage(prompt, completion, cached),
                charged=whole * NANO + rest,
                estimated=estimated,
            )
        )
    return found


def _group(name: str) -> str:
    if name not in _GROUPS:
        raise invalid("group_by", f"'{name[:40]}' is no group. Choose from {', '.join(_GROUPS)}.")
    return _GROUPS[name]


def _position(cursor: str | None) -> int:
    if cursor is None:
        return _PAST_ALL
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise invalid("cursor", "This cursor is none of ours. Use the one that the page before gave.")
    return int(cursor)


def _time(at_ms: int | None) -> int | None:
    return None if at_ms is None else max(-_MOST_TIME, min(at_ms, _MOST_TIME))


def _first_position(from_ms: int | None) -> int:
    """Nothing that was admitted then or later lies before it."""
    return 0 if from_ms is None else max(_time(from_ms) or 0, 0) * POSITIONS_PER_MS


def _entry(connection: sqlite3.Connection, row: Row) -> Entry:
    first, count = row[20:]
    attempts = connection.execute(_Q["attempts_of"], (first, first + count))
    return stored_entry(row, map(stored_attempt, attempts))
