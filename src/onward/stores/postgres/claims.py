"""Names of requests in PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onward.admission.books import Ending
from onward.admission.idempotency import Claim, ClaimResult
from onward.stores.postgres.database import Connection
from onward.stores.rows import answer_bytes, claimed
from onward.stores.statements import read_queries

_Q: Final = read_queries(Path(__file__).parent / "queries" / "claims.sql")


async def claim(connection: Connection, claims: Sequence[Claim]) -> list[ClaimResult]:
    """See `Claims.claim`."""
    rows = await connection.fetch(
        _Q["claim"],
        [one.scope for one in claims],
        [one.name for one in claims],
        [one.path for one in claims],
        [one.body_sha256 for one in claims],
        [one.request_id for one in claims],
        [one.lease for one in claims],
        [one.at_ms for one in claims],
    )
    return [claimed(one, tuple(row)) for one, row in zip(claims, rows, strict=True)]


async def unclaim(connection: Connection, claims: Sequence[Claim]) -> None:
    """See `Claims.unclaim`."""
    await connection.execute(
        _Q["unclaim"],
        [one.scope for one in claims],
        [one.name for one in claims],
        [one.request_id for one in claims],
    )


async def bind(connection: Connection, endings: Sequence[Ending]) -> None:
    """Keep the answers of requests that were settled. Within the transaction that settles them."""
    for ending in endings:
        binding = ending.binding
        if binding is not None:
            request_id = ending.hold.reserve.request_id
            answer = answer_bytes(binding.answer)
            await connection.execute(_Q["bind"], answer, binding.scope, binding.name, request_id)


async def drop_leases(connection: Connection, leases: Sequence[str]) -> None:
    """Let go of what processes that are gone had named."""
    await connection.execute(_Q["drop_leases"], leases)


async def forget(connection: Connection, before_ms: int, most: int) -> int:
    """Forget up to `most` old answers; how many."""
    told = await connection.execute(_Q["forget"], before_ms, most)
    return int(told.split()[-1])  # "DELETE 12"
