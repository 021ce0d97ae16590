"""Rate limits for the contract suite: every sort of them, under a clock that the tests set."""

import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from onward.admission.limits import Exceeded, GiveBack, RateLimits, Take
from onward.stores.limits import MemoryLimits
from onward.stores.redis import RedisLimits
from onward.stores.remote import RemoteLimits, StoreConnection
from onward.stores.remote_server import serve_stores
from tests.conftest import missing


class HeldClock:
    """Time goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.25

    def read(self) -> float:
        return self.now


class Bench:
    """Limits as one gateway sees them, and as a second one does that shares them."""

    def __init__(self, clock: HeldClock, limits: RateLimits, other: RateLimits) -> None:
        self.clock = clock
        self.limits = limits
        self.other = other
        self._number = 0

    async def take(
        self,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        concurrency: int | None = None,
        cost: int = 0,
        subject: str = "key",
        lease: str = "lease",
        limits: RateLimits | None = None,
        request_id: str | None = None,
    ) -> str | Exceeded:
        """One request: its ID if it was let in."""
        self._number += 1
        request_id = request_id or f"request-{self._number}"
        [exceeded] = await (limits or self.limits).take(
            [
                Take(
                    request_id=request_id,
                    lease=lease,
                    subject=subject,
                    tokens=cost,
                    requests_per_minute=requests,
                    tokens_per_minute=tokens,
                    concurrency=concurrency,
                )
            ]
        )
        return exceeded or request_id

    async def end(self, request_id: str | Exceeded, used: int = 0, *, counts: bool = True) -> None:
        assert isinstance(request_id, str)
        await self.limits.give_back(
            [GiveBack(request_id=request_id, subject="key", tokens=used, counts=counts)]
        )


def listen(path: Path) -> socket.socket:
    """A listening Unix socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Bench]:
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    yield Bench(clock, limits, limits)
    await limits.close()


@asynccontextmanager
async def remote(folder: Path) -> AsyncIterator[Bench]:
    """Two connections to limits in memory, as two workers have them."""
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    path = folder / "stores.sock"
    server = await serve_stores(listen(path), None, limits)
    async with AsyncExitStack() as stack:
        connections = [StoreConnection(str(path)) for _ in range(2)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        yield Bench(clock, *(RemoteLimits(connection) for connection in connections))
    await server.close()


REDIS = os.environ.get("ONWARD_TEST_REDIS", "redis://127.0.0.1:6379/0")


async def clear(url: str, prefix: str) -> None:
    """Forget what a test left in Redis, or say that there is none."""
    async with Redis.from_url(url, socket_connect_timeout=5) as client:
        try:
            keys = [key async for key in client.scan_iter(prefix + "*", count=1000)]
        except RedisError as error:
            missing(f"Redis at {url} ({error})")
        if keys:
            await client.delete(*keys)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Bench]:
    clock = HeldClock()
    prefix = f"onward:test:{secrets.token_hex(8)}:"
    both = [RedisLimits(REDIS, prefix=prefix, clock=clock.read) for _ in range(2)]
    await clear(REDIS, prefix)
    try:
        yield Bench(clock, *both)
    finally:
        for limits in both:
            await limits.close()
        await clear(REDIS, prefix)


BENCHES: dict[str, Callable[[Path], AbstractAsyncContextManager[Bench]]] = {
    "memory": memory,
    "remote": remote,
    "redis": redis,
}
