"""The ledger in a SQLite file: what is decided is decided in memory, and written in a few statements.

The process that writes knows every reservation that has not ended, and the accounts that it met: it
reads them once, and again when somebody else changed the file (SQLite's `data_version` tells) or a
write failed. So a batch costs no reads.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from onward.admission.books import Books, Changes, Ending, Hold, Tally, decide
from onward.admission.ledger import Account, AccountKind, Expire, Operation, Reserve, Result, Settle
from onward.admission.store import Money
from onward.core.usage import Usage
from onward.stores.rows import STATES
from onward.stores.sqlite import claims
from onward.stores.sqlite.database import Database
from onward.stores.sqlite.inserting import Insert
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "ledger.sql")
_requests: Final = Insert(_Q["add_request"])
_holds: Final = Insert(_Q["hold"])
_labelled_holds: Final = Insert(_Q["hold_labelled"])
_settled: Final = Insert(_Q["add_settled"])
_entries: Final = Insert(_Q["add_entry"])
_attempts: Final = Insert(_Q["add_attempt"])
POSITIONS_PER_MS: Final = 4096
"""A position is at least the time times this, and larger than all before it."""
_MOST_TALLIES: Final = 100_000
_MOST_ORIGINS: Final = 20_000
_PRUNED_AT_ONCE: Final = 1000
_OUT_OF_ORDER: Final = 10_000
"""Attempts lie in the order of their ends: after so many that are young none is old."""

_KINDS: Final = {
    "balance": AccountKind.BALANCE,
    "tenant": AccountKind.TENANT_MONTH,
    "key": AccountKind.KEY_MONTH,
}
_T = TypeVar("_T")
_json = msgspec.json.Encoder().encode
_Shared = tuple[str | None, str | None, str | None, str, str, str]
"""ID and name of the key, tenant, model, surface, version of the config."""
_Origin = tuple[_Shared, tuple[str, ...]]


def text_of(value: object) -> str:
    """`value` as JSON in a column."""
    return _json(value).decode()


class Ledger:
    """Applies batches of operations."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version: int | None = None
        """Of the file that `_books` says. None: it is to be read."""
        self._books = Books()
        self._origins: dict[_Origin, int] = {}
        self._last_origin: tuple[tuple[Account, ...], _Shared, int] | None = None
        self._position = 0
        self._attempt = 0

    def write(self, operations: list[Operation]) -> list[Result] | Awaitable[list[Result]]:
        """Apply a batch: at once where nothing is waited for."""
        try:
            results = self._database.write_now(lambda cursor: self._apply(cursor, operations))
        except sqlite3.IntegrityError:
            self._version = None
            return self._apply_known(operations)
        except BaseException:
            self._version = None
            raise
        return self._apply_later(operations) if results is None else results

    async def expire_leases(self, now_ms: int, keep: frozenset[str]) -> int:
        """See `Store`."""

        def work(cursor: sqlite3.Cursor) -> int:
            self._read(cursor)
            living = {lease for (lease,) in cursor.execute(_Q["living_leases"], (now_ms,))} | keep
            over = {hold.reserve.lease for hold in self._books.holds.values()} - living
            cursor.execute(_Q["forget_leases"], (now_ms, text_of(sorted(keep))))
            _, changes = decide(self._books, [Expire(lease=lease, at_ms=now_ms) for lease in sorted(over)])
            self._record(cursor, changes)
            claims.drop_leases(cursor, claims.running(cursor) - living)
            return len(changes.ended)

        return await self._careful(work)

    async def renew(self, lease: str, until_ms: int) -> None:
        """See `Store`."""
        await self._database.write(lambda cursor: cursor.execute(_Q["renew_lease"], (lease, until_ms)))

    async def forget_leases(self) -> None:
        """See `SqliteStore`."""
        await self._database.write(lambda cursor: cursor.execute(_Q["forget_all_leases"]))

    async def prune(self, before_ms: int) -> int:
        """See `Store`. A little at a time, so that nobody waits long."""
        forgotten, after, young = 0, 0, 0
        while young < _OUT_OF_ORDER:
            rows: list[tuple[int, int]] = await self._database.read(
                partial(_attempts_after, after), long=True
            )
            if not rows:
                break
            old = [number for number, started_ms in rows if started_ms < before_ms]
            if old:
                await self._database.write(partial(_forget, old))
            forgotten += len(old)
            young = 0 if old else young + len(rows)
            after = rows[-1][0]
        return forgotten

    async def credit(self, work: Callable[[sqlite3.Cursor], Money]) -> Money:
        """Do what changes the amount that an account was credited."""

        def credit(cursor: sqlite3.Cursor) -> Money:
            money = work(cursor)
            if money.id in self._books.tallies:
                self._books.tallies[money.id].credited = money.credited
            return money

        return await self._careful(credit)

    async def _apply_later(self, operations: list[Operation]) -> list[Result]:
        try:
            return await self._careful(lambda cursor: self._apply(cursor, operations))
        except sqlite3.IntegrityError:
            return await self._apply_known(operations)

    async def _apply_known(self, operations: list[Operation]) -> list[Result]:
        """Apply a batch in which an ID may be one of a reservation that has ended."""

        def work(cursor: sqlite3.Cursor) -> list[Result]:
            names = [operation.request_id for operation in operations if isinstance(operation, Reserve)]
            rows: Iterable[tuple[str]] = cursor.execute(_Q["known_requests"], (text_of(names),))
            return self._apply(cursor, operations, {name for (name,) in rows})

        return await self._careful(work)

    async def _careful(self, work: Callable[[sqlite3.Cursor], _T]) -> _T:
        """Do `work`; where it fails nobody knows what the books say."""
        try:
            return await self._database.write(work)
        except BaseException:
            self._version = None
            raise

    def _apply(
        self, cursor: sqlite3.Cursor, operations: list[Operation], ended: set[str] | tuple[()] = ()
    ) -> list[Result]:
        self._read(cursor)
        results, changes = decide(self._books, operations, ended)
        self._record(cursor, changes)
        if changes.expired:
            claims.drop_leases(cursor, changes.expired)
        return results

    def _read(self, cursor: sqlite3.Cursor) -> None:
        """Know what the file says."""
        (version,) = cursor.execute("PRAGMA data_version").fetchone()
        if version == self._version and len(self._books.tallies) < _MOST_TALLIES:
            return
        self._books = Books(meet=partial(self._meet_payers, cursor))
        self._origins = {}
        self._last_origin = None
        holds = [_hold(row) for row in cursor.execute(_Q["all_held"])]
        self._meet(cursor, {account.id for hold in holds for account in hold.reserve.accounts})
        for hold in holds:
            self._books.holds[hold.reserve.request_id] = hold
            for account in hold.reserve.accounts:
                self._books.tallies[account.id].held += hold.amount
        (self._position,) = cursor.execute(_Q["last_position"]).fetchone()
        (self._attempt,) = cursor.execute(_Q["last_attempt"]).fetchone()
        self._version = version

    def _meet_payers(self, cursor: sqlite3.Cursor, accounts: tuple[Account, ...]) -> None:
        self._meet(cursor, {account.id for account in accounts})

    def _meet(self, cursor: sqlite3.Cursor, accounts: set[str]) -> None:
        """Read accounts that were not met before. Nothing is held in them: all holds are known."""
        tallies = self._books.tallies
        new = accounts.difference(tallies)
        if new:
            tallies.update((account, Tally()) for account in new)
            for account, credited, spent in cursor.execute(_Q["tallies"], (text_of(sorted(new)),)):
                tallies[account] = Tally(credited, spent)

    def _record(self, cursor: sqlite3.Cursor, changes: Changes) -> None:
        if changes.opened:
            self._record_holds(cursor, changes.opened)
        if changes.ended:
            self._record_endings(cursor, changes.ended)
            tallies = self._books.tallies
            cursor.executemany(
                _Q["spend"], [(account, tallies[account].spent) for account in sorted(changes.charged())]
            )
        if changes.marked:
            cursor.executemany(_Q["mark"], [_mark(hold) for hold in changes.marked.values()])

    def _record_holds(self, cursor: sqlite3.Cursor, opened: list[Hold]) -> None:
        holds = self._books.holds
        requests: list[object] = []
        plain: list[object] = []
        labelled: list[object] = []
        position = self._position
        for hold in opened:
            reserve = hold.reserve
            name, at_ms, label = reserve.request_id, reserve.at_ms, reserve.label
            position = max(position + 1, at_ms * POSITIONS_PER_MS)
            hold.position = position
            hold.origin = origin = self._origin(cursor, reserve)
            requests += (name, position)
            if name in holds:
                if label:
                    labelled += (position, name, label, reserve.lease, origin, hold.amount, at_ms)
                else:
                    plain += (position, name, reserve.lease, origin, hold.amount, at_ms)
        self._position = position
        _requests.write(cursor, requests)
        _holds.write(cursor, plain)
        _labelled_holds.write(cursor, labelled)

    def _record_endings(self, cursor: sqlite3.Cursor, endings: list[Ending]) -> None:
        gone: list[tuple[int]] = []
        settled: list[object] = []
        entries: list[object] = []
        attempts: list[object] = []
        bound: list[Ending] = []
        number = self._attempt
        for ending in endings:
            hold, usage, by = ending.hold, ending.usage, ending.by
            reserve, position, charged, tries = hold.reserve, hold.position, ending.charged, by.attempts
            gone.append((position,))
            if isinstance(by, Settle) and by.outcome == "ok" and charged <= hold.amount and not reserve.label:
                settled += (
                    position,
                    reserve.request_id,
                    hold.origin,
                    hold.amount,
                    charged,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                    1 if by.estimated else 0,  # a bool is adapted at length by `sqlite3`, an int is bound
                    reserve.at_ms,
                    by.at_ms,
                    number + 1,
                    len(tries),
                )
            else:
                entries += (
                    position,
                    reserve.request_id,
                    reserve.label or "",
                    hold.origin,
                    STATES[ending.state],
                    hold.amount,
                    charged,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                    1 if ending.estimated else 0,
                    1 if ending.overdraft else 0,
                    by.outcome,
                    reserve.at_ms,
                    by.at_ms,
                    number + 1,
                    len(tries),
                )
            if isinstance(by, Settle) and by.binding is not None:
                bound.append(ending)
            for one in tries:
                number += 1
                attempts += (
                    number,
                    one.deployment,
                    one.outcome,
                    one.status,
                    one.started_ms,
                    one.first_ms,
                    one.took_ms,
                )
        self._attempt = number
        cursor.executemany(_Q["let_go"], gone)
        _settled.write(cursor, settled)
        _entries.write(cursor, entries)
        _attempts.write(cursor, attempts)
        claims.bind(cursor, bound)

    def _origin(self, cursor: sqlite3.Cursor, reserve: Reserve) -> int:
        """The number of what it shares with many requests, most often with the one before it."""
        shared = (
            reserve.key_id,
            reserve.key_name,
            reserve.tenant,
            reserve.model,
            reserve.surface,
            reserve.config_version,
        )
        last = self._last_origin
        if last is not None and last[0] is reserve.accounts and last[1] == shared:
            return last[2]
        number = self._find_origin(cursor, shared, tuple([account.id for account in reserve.accounts]))
        self._last_origin = reserve.accounts, shared, number
        return number

    def _find_origin(self, cursor: sqlite3.Cursor, shared: _Shared, accounts: tuple[str, ...]) -> int:
        origin = (shared, accounts)
        number = self._origins.get(origin)
        if number is None:
            values = (*shared, text_of(accounts))
            row: tuple[int] | None = cursor.execute(_Q["find_origin"], values).fetchone()
            number = row[0] if row else cursor.execute(_Q["add_origin"], values).lastrowid
            if number is None:
                raise sqlite3.InternalError("an inserted row has no number")
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins.clear()
            self._origins[origin] = number
        return number


def _hold(row: tuple[Any, ...]) -> Hold:
    position, origin, request_id, label, lease, amount, at_ms, charge, *usage = row[:11]
    key_id, key_name, tenant, model, surface, config_version, accounts = row[11:]
    reserve = Reserve(
        request_id=request_id,
        lease=lease,
        key_id=key_id,
        key_name=key_name,
        tenant=tenant,
        model=model,
        surface=surface,
        at_ms=at_ms,
        amount=amount,
        accounts=tuple(
            Account(account, _KINDS[account.partition(":")[0]]) for account in msgspec.json.decode(accounts)
        ),
        label=label,
        config_version=config_version,
    )
    hold = Hold(reserve, amount)
    hold.charge = charge
    hold.usage = None if usage[0] is None else Usage(*usage)
    hold.position = position
    hold.origin = origin
    return hold


def _mark(hold: Hold) -> tuple[object, ...]:
    usage = hold.usage or Usage()
    return hold.charge, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, hold.position


def _attempts_after(after: int, connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Numbers and starts of the next ones."""
    return connection.execute(_Q["attempts_after"], (after, _PRUNED_AT_ONCE)).fetchall()


def _forget(numbers: list[int], cursor: sqlite3.Cursor) -> None:
    cursor.executemany(_Q["forget_attempt"], [(number,) for number in numbers])
    cursor.execute(_Q["note_forgotten_attempts"], (max(numbers),))
