"""The port of rate limits: requests and tokens per minute, requests at once. Memory and Redis behind it.

A window is the last 60 seconds, sliding: no 60 seconds ever see more than the limit. It is counted
in slices of a second, and a slice counts whole until all of it is past. A request takes its place and
its worst tokens when it is admitted; what it did not use is given back when it ends.
"""

from enum import StrEnum
from typing import Protocol

import msgspec

WINDOW_S = 60


class LimitKind(StrEnum):
    """What ran out."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """A request asks for its place. Limits that are None are not counted."""

    request_id: str
    lease: str
    subject: str
    """Whose limits: a key's ID."""
    tokens: int
    """The most that it can use."""
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrency: int | None


class Exceeded(msgspec.Struct, frozen=True, kw_only=True):
    """There is no room; nothing was taken."""

    kind: LimitKind
    limit: int
    retry_after_s: int
    """Whole seconds until it may pass, at least 1. 0: it never can, it asks for more than the limit."""


class GiveBack(msgspec.Struct, frozen=True, kw_only=True):
    """A request has ended: its place is free, and what it did not use comes back."""

    request_id: str
    subject: str
    tokens: int
    """What it used; may be more than it took."""
    counts: bool
    """False: it was refused, so that it costs neither a request nor tokens."""


class RateLimits(Protocol):
    """Counted exactly over everybody who shares it. Raises `Failure` (STORE_DOWN) if it does not answer."""

    async def take(self, takes: list[Take]) -> list[Exceeded | None]:
        """Take places, in order, each all or nothing; None: granted. A request ID holds one place at most."""
        ...

    async def give_back(self, ends: list[GiveBack]) -> None:
        """End requests. Ending twice, or one that took nothing, changes nothing."""
        ...

    async def renew(self, lease: str) -> None:
        """Say that a lease's process lives: its places are kept for another minute."""
        ...

    async def drop_lease(self, lease: str) -> None:
        """Free the places of a process that is gone."""
        ...

    async def close(self) -> None: ...
