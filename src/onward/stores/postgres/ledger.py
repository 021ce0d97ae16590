"""The ledger in PostgreSQL: decided here by `admission/books.py`, checked and written there in one go.

This process believes to know its accounts and reservations, since it decided about them last. It decides
a batch on that and hands over, in one statement, what it believed and what is to be written: the
database locks the accounts, compares, and writes all or nothing (`ledger_write`). Where somebody else
changed them meanwhile, or where something is touched that is not known here, the batch is decided
behind locks instead: read and lock (`ledger_load`), decide, write, commit.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec

from onward.admission.books import Books, Changes, Hold, Tally, accounts_of, decide
from onward.admission.ledger import (
    Account,
    AccountKind,
    Expire,
    Operation,
    Progress,
    Reserve,
    Result,
    Settle,
)
from onward.core.usage import Usage
from onward.stores.batch import GroupCommit, joined, parted
from onward.stores.down import down
from onward.stores.postgres import claims
from onward.stores.postgres.arguments import arguments_of
from onward.stores.postgres.database import Connection, Database
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "ledger.sql")
_KINDS: Final = {
    "balance": AccountKind.BALANCE,
    "tenant": AccountKind.TENANT_MONTH,
    "key": AccountKind.KEY_MONTH,
}
_RACES: Final = (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError)
_TRIES: Final = 10
_DOUBTFUL: Final = 8
"""Batches that are decided behind locks after a belief was wrong: others work on the same accounts."""
_MOST_KNOWN: Final = 100_000
"""Accounts, and origins, after which what is known is forgotten."""
_BATCHES: Final = 64
"""Calls that are written together at the most."""

_Origin = tuple[str | None, str | None, str | None, str, str, str, tuple[str, ...]]


class Ledger:
    """Applies batches of operations, one after another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls: GroupCommit[list[Operation], list[Result]] = GroupCommit(self._write, largest=_BATCHES)
        self._tallies: dict[str, Tally] = {}
        self._holds: dict[str, Hold] = {}
        """Of this process, as far as it knows."""
        self._origins: dict[_Origin, int] = {}
        self._doubt = 0

    async def apply(self, operations: list[Operation]) -> list[Result]:
        """See `Store`. What comes while a batch is being written is written together."""
        return await self._calls.submit(operations)

    async def drain(self) -> None:
        """Wait until everything is written."""
        await self._calls.drain()

    async def expire(self, leases: Sequence[str], at_ms: int) -> int:
        """End what leases hold; how many."""
        operations: list[Operation] = [Expire(lease=lease, at_ms=at_ms) for lease in leases]
        _, changes = await self._database.read(lambda connection: self._behind_locks(connection, operations))
        return len(changes.ended)

    async def _write(self, calls: list[list[Operation]]) -> list[list[Result]]:
        operations = joined(calls)
        results = await self._database.ledger(lambda connection: self._apply(connection, operations))
        return parted(calls, results)

    async def _apply(self, connection: Connection, operations: list[Operation]) -> list[Result]:
        if self._doubt:
            self._doubt -= 1
        else:
            believed = self._believed(operations)
            if believed is not None:
                origins = await self._origins_of(connection, operations)
                results, changes = decide(believed.books, operations)
                with suppress(*_RACES):
                    if await _record(connection, believed, changes, origins):
                        self._learn(believed.books, changes)
                        return results
                self._doubt = _DOUBTFUL
        results, _ = await self._behind_locks(connection, operations)
        return results

    def _believed(self, operations: list[Operation]) -> "_Basis | None":
        """What a batch touches, as far as it is known here. None: not all of it is."""
        mine, opened, accounts = self._holds, set[str](), set[str]()
        holds: dict[str, Hold] = {}
        for operation in operations:
            if isinstance(operation, Expire) or (isinstance(operation, Settle) and operation.binding):
                return None  # what else belongs to it is written in the same transaction
            name = operation.request_id
            if isinstance(operation, Reserve):
                if name in mine or name in opened:
                    return None
                opened.add(name)
                accounts.update([account.id for account in operation.accounts])
            elif name not in holds and name not in opened:
                hold = mine.get(name)
                if hold is None:
                    return None
                holds[name] = hold.copy() if isinstance(operation, Progress) else hold
                accounts.update([account.id for account in hold.reserve.accounts])
        known = self._tallies
        try:
            before = {account: known[account] for account in accounts}
        except KeyError:
            return None
        return _basis(before, holds)

    async def _behind_locks(
        self, connection: Connection, operations: list[Operation]
    ) -> tuple[list[Result], Changes]:
        origins = await self._origins_of(connection, operations)
        for _ in range(_TRIES):
            try:
                async with connection.transaction():
                    basis, ended = await _load(connection, operations)
                    results, changes = decide(basis.books, operations, ended)
                    await _record_behind_locks(connection, basis, changes, origins)
                    await claims.bind(connection, changes.ended)
                    over = [one.lease for one in operations if isinstance(one, Expire)]
                    if over:
                        await claims.drop_leases(connection, over)
            except _Missing as missing:
                if missing.accounts:
                    await connection.execute(_Q["add_accounts"], missing.accounts)
            except _RACES:
                pass
            else:
                self._learn(basis.books, changes)
                return results, changes
        raise down()

    def _learn(self, books: Books, changes: Changes) -> None:
        """It is written: so it is from now on."""
        if len(self._tallies) > _MOST_KNOWN:
            self._tallies = {}
        self._tallies.update(books.tallies)
        for hold in changes.opened:
            self._holds[hold.reserve.request_id] = hold
        for ending in changes.ended:
            self._holds.pop(ending.hold.reserve.request_id, None)

    async def _origins_of(self, connection: Connection, operations: list[Operation]) -> dict[str, int]:
        """The origin of each request that a batch asks for. New ones are written apart, before anything is
        locked.
        """
        origins: dict[str, int] = {}
        for operation in operations:
            if isinstance(operation, Reserve):
                origin = _origin(operation)
                number = self._origins.get(origin)
                if number is None:
                    digest = hashlib.sha256(msgspec.msgpack.encode(origin)).digest()
                    number = await connection.fetchval(_Q["origin"], digest, *origin)
                    if len(self._origins) >= _MOST_KNOWN:
                        self._origins = {}
                    self._origins[origin] = number
                origins[operation.request_id] = number
        return origins


class _Basis(NamedTuple):
    """What a batch is decided on."""

    before: dict[str, Tally]
    """Every account that is looked at."""
    known: list[str]
    """Every reservation that is there."""
    books: Books
    """Both of them, to be changed."""


def _basis(before: dict[str, Tally], holds: dict[str, Hold]) -> _Basis:
    tallies = {account: Tally(one.credited, one.spent, one.held) for account, one in before.items()}
    return _Basis(before, [*holds], Books(tallies, holds))


class _Missing(Exception):  # noqa: N818 - nothing is wrong
    """Accounts are to be added first."""

    def __init__(self, accounts: list[str]) -> None:
        super().__init__()
        self.accounts = accounts


async def _load(connection: Connection, operations: list[Operation]) -> tuple[_Basis, frozenset[str]]:
    """Lock and read what a batch touches, and which of its reservations have ended. Raises `_Missing`."""
    names: list[str] = []
    reserves: list[str] = []
    leases: list[str] = []
    for operation in operations:
        if isinstance(operation, Expire):
            leases.append(operation.lease)
        else:
            names.append(operation.request_id)
            if isinstance(operation, Reserve):
                reserves.append(operation.request_id)
    row = await connection.fetchrow(_Q["load"], sorted(accounts_of(operations)), names, leases, reserves)
    if row["missing"]:
        raise _Missing(row["missing"])
    columns = [row[name] or () for name in ("ids", "credited", "spent", "held")]
    before = {
        account: Tally(credited, spent, held) for account, credited, spent, held in zip(*columns, strict=True)
    }
    columns = [row[name] or () for name in _HOLD]
    holds = {values[0]: _hold(values) for values in zip(*columns, strict=True)}
    return _basis(before, holds), frozenset(row["ended"] or ())


_HOLD: Final = (
    "holds",
    "leases",
    "amounts",
    "charges",
    "prompts",
    "completions",
    "cached",
    "paid_from",
)


def _hold(values: tuple[Any, ...]) -> Hold:
    """A hold with as much of its reservation as decisions need."""
    request_id, lease, amount, charge, prompt, completion, cached, paid_from = values
    accounts: list[str] = msgspec.json.decode(paid_from)
    reserve = Reserve(
        request_id=request_id,
        lease=lease,
        key_id=None,
        key_name=None,
        tenant=None,
        model="",
        surface="",
        at_ms=0,
        amount=amount,
        accounts=tuple([Account(account, _KINDS[account.partition(":")[0]]) for account in accounts]),
    )
    hold = Hold(reserve, amount)
    hold.charge = charge
    hold.usage = None if prompt is None else Usage(prompt, completion, cached)
    return hold


async def _record(connection: Connection, basis: _Basis, changes: Changes, origins: dict[str, int]) -> bool:
    """Write what was decided; False: it was decided on what does not hold, and nothing is written."""
    arguments = arguments_of(basis.before, basis.books.tallies, basis.known, changes, origins)
    return await connection.fetchval(_Q["write"], *arguments)


async def _record_behind_locks(
    connection: Connection, basis: _Basis, changes: Changes, origins: dict[str, int]
) -> None:
    if not await _record(connection, basis, changes, origins):
        raise _Missing([])  # a reservation of one of its IDs has come meanwhile


def _origin(reserve: Reserve) -> _Origin:
    return (
        reserve.key_id,
        reserve.key_name,
        reserve.tenant,
        reserve.model,
        reserve.surface,
        reserve.config_version,
        tuple([account.id for account in reserve.accounts]),
    )
