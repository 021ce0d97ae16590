"""Names of requests in a SQLite file."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from onward.admission.books import Ending
from onward.admission.idempotency import Claim, ClaimResult
from onward.stores.rows import answer_bytes, claimed
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "claims.sql")


def claim(cursor: sqlite3.Cursor, claims: Iterable[Claim]) -> list[ClaimResult]:
    """See `Claims.claim`."""
    results: list[ClaimResult] = []
    for one in claims:
        place = (one.scope, one.name)
        row = (*place, one.path, one.body_sha256, one.request_id, one.lease, one.at_ms)
        cursor.execute(_Q["claim"], row)
        results.append(claimed(one, cursor.execute(_Q["claimed"], place).fetchone()))
    return results


def unclaim(cursor: sqlite3.Cursor, claims: Iterable[Claim]) -> None:
    """See `Claims.unclaim`."""
    cursor.executemany(_Q["unclaim"], [(one.scope, one.name, one.request_id) for one in claims])


def bind(cursor: sqlite3.Cursor, endings: Sequence[Ending]) -> None:
    """Keep the answers of requests that were settled."""
    for ending in endings:
        binding = ending.binding
        if binding is not None:
            request_id = ending.hold.reserve.request_id
            answer = answer_bytes(binding.answer)
            cursor.execute(_Q["bind"], (answer, binding.scope, binding.name, request_id))


def running(cursor: sqlite3.Cursor) -> set[str]:
    """Leases whose requests have names."""
    return {lease for (lease,) in cursor.execute(_Q["running"])}


def drop_leases(cursor: sqlite3.Cursor, leases: Iterable[str]) -> None:
    """Let go of what processes that are gone had named."""
    cursor.executemany(_Q["drop_lease"], [(lease,) for lease in leases])


def forget(cursor: sqlite3.Cursor, before_ms: int, most: int) -> int:
    """Forget up to `most` old answers; how many."""
    return cursor.execute(_Q["forget"], (before_ms, most)).rowcount
