"""What the ledger in PostgreSQL shows: entries, sums, accounts."""

import re
from pathlib import Path
from typing import Final

from onward.admission.ledger import State
from onward.admission.store import EntryPage, EntryQuery, Money, UsageQuery, UsageRow
from onward.core.attempt import Attempt
from onward.core.failure import invalid
from onward.core.usage import Usage
from onward.stores.postgres.database import LONG_S, Connection
from onward.stores.rows import STATES, Row, stored_attempt, stored_entry
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "reading.sql")
_MOST: Final = 2**62
_CURSOR: Final = re.compile(r"([0-9]{1,18})_([0-9]{1,18})")
"""When an entry was admitted, and its position."""
_GROUPS: Final = {
    "model": "o.model",
    "key": "o.key_name",
    "tenant": "o.tenant",
    "surface": "o.surface",
    "day": "to_char(to_timestamp(e.at_ms / 1000), 'YYYY-MM-DD')",
    "month": "to_char(to_timestamp(e.at_ms / 1000), 'YYYY-MM')",
}


async def money(connection: Connection, accounts: list[str]) -> list[Money]:
    """Accounts as they are, in this order; zeros for those that do not exist."""
    rows: list[Row] = await connection.fetch(_Q["money"], accounts)
    found = {account: (credited, spent, held) for account, credited, spent, held in rows}
    known = [(account, *found.get(account, (0, 0, 0))) for account in accounts]
    return [
        Money(id=account, credited=credited, spent=spent, held=held)
        for account, credited, spent, held in known
    ]


async def entries(connection: Connection, query: EntryQuery) -> EntryPage:
    """A page of entries, newest first. Raises `Failure` for a cursor that is none."""
    values = (
        *_cursor(query.cursor),
        query.request_id,
        query.tenant,
        query.key_id,
        query.model,
        _time(query.from_ms, -_MOST),
        _time(query.before_ms, _MOST),
        query.limit + 1,
    )
    rows: list[Row] = []
    # One view of both tables: what ends between two views would be in both, or in none.
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    await _take_long(connection)
    if query.state in {None, State.HELD}:
        rows += await connection.fetch(_Q["held_entries"], *values)
    if query.state is not State.HELD:
        state = None if query.state is None else STATES[query.state]
        rows += await connection.fetch(_Q["ended_entries"], *values, state)
    rows.sort(key=lambda row: (row[18], row[0]), reverse=True)
    shown = rows[: query.limit]
    attempts: dict[int, list[Attempt]] = {row[0]: [] for row in shown}
    for row in await connection.fetch(_Q["attempts"], list(attempts)):
        attempts[row[0]].append(stored_attempt(row[1:]))
    more = len(rows) > query.limit
    return EntryPage(
        entries=[stored_entry(row, attempts[row[0]]) for row in shown],
        cursor=f"{shown[-1][18]}_{shown[-1][0]}" if more else None,
    )


async def usage(connection: Connection, query: UsageQuery) -> list[UsageRow]:
    """Sums by the groups, in their order. Raises `Failure` for a group that is none."""
    columns = [_group(name) for name in query.group_by]
    sql = _Q["usage"]
    if columns:
        names = ", ".join(columns)
        order = ", ".join(f"{column} NULLS FIRST" for column in columns)
        sql = sql.replace("SELECT", f"SELECT {names},", 1) + f" GROUP BY {names} ORDER BY {order}"
    await _take_long(connection)
    rows: list[Row] = await connection.fetch(
        sql,
        _time(query.from_ms, -_MOST),
        _time(query.before_ms, _MOST),
        query.tenant,
        query.key_id,
        query.model,
    )
    found: list[UsageRow] = []
    for row in rows:
        group, sums = row[: len(columns)], row[len(columns) :]
        requests, prompt, completion, cached, charged, estimated = sums
        if not requests:
            continue
        found.append(
            UsageRow(
                group=dict(zip(query.group_by, group, strict=True)),
                requests=requests,
                usage=Usage(int(prompt), int(completion), int(cached)),
                charged=int(charged),
                estimated=estimated,
            )
        )
    return found


async def _take_long(connection: Connection) -> None:
    await connection.execute(f"SET LOCAL statement_timeout = {int(LONG_S * 1000)}")


def _group(name: str) -> str:
    if name not in _GROUPS:
        raise invalid("group_by", f"'{name[:40]}' is no group. Choose from {', '.join(_GROUPS)}.")
    return _GROUPS[name]


def _cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return _MOST, _MOST
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise invalid("cursor", "This cursor is none of ours. Use the one that the page before gave.")
    return int(match[1]), int(match[2])


def _time(at_ms: int | None, otherwise: int) -> int:
    return otherwise if at_ms is None else max(-_MOST, min(at_ms, _MOST))
