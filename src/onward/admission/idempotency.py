"""Idempotency keys: which request an answer belongs to, and what its replay gets (P-8, O-6).

A caller names its request by an `Idempotency-Key`. The first one with a name *claims* it, and runs. A
later one with the same path and body is answered by the answer of the first; with another path or
body it is refused. A claim is bound by `Settle`, which keeps the answer in the same transaction as
the charge: billed once and answered the same for as long as answers are kept. A request that ends
uncharged lets its claim go, and so does a process that dies: the next try runs anew.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A request that wants a name."""

    scope: str
    """ID of the API key it came with; empty where no key is needed."""
    name: str
    """The `Idempotency-Key`."""
    path: str
    body_sha256: bytes
    request_id: str
    """Ours; of the request that would run."""
    lease: str
    """Whose process would run it. Its running claims end with it (`Expire`, `expire_leases`)."""
    at_ms: int


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer as it was given."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    """Those that belong to the answer: content type, provider class. None of one request or connection."""
    body: bytes
    """Streamed ones too: every event, comments left out."""


class Claimed(msgspec.Struct, frozen=True, tag="claimed"):
    """The name is the request's: it runs."""


class Running(msgspec.Struct, frozen=True, tag="running"):
    """A request with this name, path and body runs."""

    request_id: str
    lease: str


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """A request with this name, path and body was answered."""

    request_id: str
    answer: KeptAnswer


class Conflict(msgspec.Struct, frozen=True, tag="conflict"):
    """The name belongs to a request of another path or body."""


ClaimResult = Claimed | Running | Kept | Conflict


def claim_result(
    claim: Claim,
    *,
    path: str,
    body_sha256: bytes,
    request_id: str,
    lease: str | None,
    answer: KeptAnswer | None,
) -> ClaimResult:
    """What a claim gets, by what stands under its name once it was tried to be written there."""
    if path != claim.path or body_sha256 != claim.body_sha256:
        return Conflict()
    if answer is not None:
        return Kept(request_id, answer)
    return Claimed() if request_id == claim.request_id else Running(request_id, lease or "")


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What `Settle` writes beside the charge: the claim of its request gets this answer.

    Nothing is bound where the claim is not that request's any more.
    """

    scope: str
    name: str
    answer: KeptAnswer


class Claims(Protocol):
    """Names of requests, durably. Part of every store; raises as the others of its methods do."""

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        """Claim names in order, atomically, over all processes; one result for each.

        A claim that is repeated with its own `request_id` is `Claimed` again.
        """
        ...

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        """Let go of names that are still those requests' and were not bound."""
        ...

    async def forget_answers(self, before_ms: int) -> int:
        """Forget names that were claimed before and do not run any more; how many."""
        ...
