"""Names of requests: gathered into few calls of a store, or kept in this process alone."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from onward.admission.idempotency import (
    Binding,
    Claim,
    Claimed,
    ClaimResult,
    Claims,
    KeptAnswer,
    claim_result,
)
from onward.core.clock import Clock
from onward.core.failure import Failure
from onward.stores.batch import GroupCommit

MOST_LEFT: Final = 50_000
"""Names that are still to be let go while the store is down. The lease's end frees the rest."""
_AT_ONCE: Final = 1000
_CLAIMS_AT_ONCE: Final = 16
"""Each may be answered by a whole kept answer, and all of a call are in memory at once."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of the answers that a process keeps where there is no store."""
_NAME_BYTES: Final = 1024
"""What a name takes besides its answer."""


class GatheredClaims:
    """What comes in one turn of the event loop is one call of the store.

    A name that nobody answers for is let go, if not at once then by `retry`.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._asked = GroupCommit(claims.claim, largest=_CLAIMS_AT_ONCE)
        self._ended = GroupCommit(self._unclaim)
        self._left: dict[str, Claim] = {}
        """Those to be let go, by request ID."""

    async def claim(self, claim: Claim) -> ClaimResult:
        """Raises STORE_DOWN. Who is cancelled, or fails, has no name in the end."""
        asked = self._asked.submit(claim)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda _: self._leave(claim))
            raise
        except Exception:
            self._leave(claim)  # nobody knows whether it was written
            raise

    async def let_go(self, claim: Claim) -> None:
        """Its request ended, and no answer is kept."""
        self._leave(claim)
        try:
            await self._ended.submit(claim)
        except Failure:
            return  # by `retry`, then

    async def retry(self) -> None:
        """Let go of what could not be let go yet. To be called about once a second. Raises STORE_DOWN."""
        left = list(self._left.values())
        for start in range(0, len(left), _AT_ONCE):
            await self._unclaim(left[start : start + _AT_ONCE])

    def _leave(self, claim: Claim) -> None:
        if len(self._left) < MOST_LEFT:
            self._left[claim.request_id] = claim

    async def _unclaim(self, claims: list[Claim]) -> list[None]:
        await self._claims.unclaim(claims)
        for claim in claims:
            self._left.pop(claim.request_id, None)
        return [None] * len(claims)


class _Held(msgspec.Struct):
    """What stands under a name."""

    claim: Claim
    answer: KeptAnswer | None = None


class MemoryClaims:
    """`Claims` where there is no store: names hold within this process, and as long as it lives."""

    def __init__(self, clock: Clock, *, keep_ms: int, most_bytes: int = _MOST_BYTES) -> None:
        """Answers are kept for `keep_ms`, the oldest of them for less where there is no room."""
        self._clock = clock
        self._keep_ms = keep_ms
        self._most_bytes = most_bytes
        self._names: dict[tuple[str, str], _Held] = {}
        self._answered: dict[tuple[str, str], int] = {}
        """The size of each answer, by its name; the oldest first."""
        self._bytes = 0

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        await self.forget_answers(int(self._clock.unix() * 1000) - self._keep_ms)
        return [self._claim(one) for one in claims]

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            place = (claim.scope, claim.name)
            held = self._names.get(place)
            if held is not None and held.answer is None and held.claim.request_id == claim.request_id:
                del self._names[place]

    async def forget_answers(self, before_ms: int) -> int:
        forgotten = 0
        while self._answered and self._oldest().claim.at_ms < before_ms:
            self._forget()
            forgotten += 1
        return forgotten

    def bind(self, request_id: str, binding: Binding) -> None:
        """Keep the answer of a request that has ended."""
        place = (binding.scope, binding.name)
        held = self._names.get(place)
        if held is None or held.answer is not None or held.claim.request_id != request_id:
            return
        held.answer = binding.answer
        self._answered[place] = _NAME_BYTES + len(binding.answer.body)
        self._bytes += self._answered[place]
        while self._bytes > self._most_bytes:
            self._forget()

    def _claim(self, claim: Claim) -> ClaimResult:
        place = (claim.scope, claim.name)
        held = self._names.get(place)
        if held is None:
            self._names[place] = _Held(claim)
            return Claimed()
        first = held.claim
        return claim_result(
            claim,
            path=first.path,
            body_sha256=first.body_sha256,
            request_id=first.request_id,
            lease=first.lease,
            answer=held.answer,
        )

    def _oldest(self) -> _Held:
        return self._names[next(iter(self._answered))]

    def _forget(self) -> None:
        """Of the answers, the oldest."""
        place = next(iter(self._answered))
        self._bytes -= self._answered.pop(place)
        del self._names[place]
