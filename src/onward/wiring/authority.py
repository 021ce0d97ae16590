"""What decides about money and limits, once per host: the store and the rate limits of a config.

It lives in the supervisor. HTTP processes of their own reach it over a Unix socket, so that one
process writes a SQLite file and limits in memory hold for all workers of the host.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from pathlib import Path

from onward.admission.ledger import Expire
from onward.admission.limits import RateLimits
from onward.admission.store import Store
from onward.core.failure import Failure
from onward.core.money import parse_amount
from onward.stores.error import StoreError
from onward.stores.limits import MemoryLimits
from onward.stores.remote_server import StoreServer, serve_stores
from onward.stores.sqlite.store import SqliteStore
from onward.wiring import config as settings
from onward.wiring.listen import ServeError

logger = logging.getLogger("onward")
_SWEEP_S = 5.0
_PRUNE_S = 3600.0
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


async def open_store(config: settings.Config, *, owner: bool) -> Store | None:
    """The store of a config; None: it has none. `owner`: the server itself. Raises `ServeError`."""
    url, durability = config.store.url, config.store.durability
    try:
        if url == "none":
            return None
        if url.startswith("sqlite:"):
            file = Path(url.removeprefix("sqlite:"))
            return await SqliteStore.open(file, durability=durability, owner=owner)
        from onward.stores.postgres.store import PostgresStore  # noqa: PLC0415 - its driver is not small

        return await PostgresStore.open(url, durability=durability)
    except (StoreError, Failure) as error:
        raise ServeError(f"the store cannot be opened: {error} Check [store] url") from None


def open_limits(config: settings.Config) -> RateLimits:
    """The rate limits of a config. Raises `ServeError`."""
    if config.store.limits == "memory":
        return MemoryLimits(time.monotonic)
    from onward.stores.redis import RedisLimits  # noqa: PLC0415 - likewise

    try:
        return RedisLimits(config.store.limits)
    except StoreError as error:
        raise ServeError(f"the limits cannot be counted: {error} Check [store] limits") from None


class Authority:
    """The stores of a host, and the care for what dead processes left behind."""

    def __init__(self, config: settings.Config, store: Store | None, limits: RateLimits) -> None:
        self.config = config
        """The one in force."""
        self.store = store
        self.limits = limits
        self._leases: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: StoreServer | None = None

    def new_lease(self) -> str:
        """The lease of a process that is about to start."""
        lease = secrets.token_hex(8)
        self._leases.add(lease)
        return lease

    async def start(self) -> None:
        """Settle what dead processes held, credit opening balances, and watch. Raises `Failure` where the
        store or the limits do not answer.
        """
        await self.limits.drop_lease("")  # nobody's: it only shows that they are there
        if self.store is None:
            return
        await self._expire()
        await self.credit(self.config)
        self._tasks = [
            asyncio.create_task(self._sweep()),
            asyncio.create_task(self._prune()),
        ]

    async def credit(self, config: settings.Config) -> None:
        """Pay in the opening balances of a config's tenants, to each once for ever. Raises `Failure`."""
        if self.store is None:
            return
        for tenant in config.tenants:
            if tenant.balance is not None:
                await self.store.credit(
                    tenant.name,
                    parse_amount(tenant.balance),
                    note="opening balance",
                    at_ms=int(time.time() * 1000),
                    once="opening",
                )

    async def has_keys(self) -> bool:
        """Whether the store has, or ever had, a key. Raises `Failure`."""
        return self.store is not None and bool(await self.store.keys(after=None, limit=1))

    async def listen(self, listening: socket.socket) -> None:
        """Answer HTTP processes on a Unix socket."""
        self._server = await serve_stores(listening, self.store, self.limits)

    async def bury(self, lease: str) -> None:
        """End what a process that is gone had running."""
        self._leases.discard(lease)
        with contextlib.suppress(Failure):
            await self.limits.drop_lease(lease)
            if self.store is not None:
                await self.store.apply([Expire(lease=lease, at_ms=int(time.time() * 1000))])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.close()
        await self.limits.close()
        if self.store is not None:
            await self.store.close()

    async def _expire(self) -> None:
        assert self.store is not None  # noqa: S101 - started with one
        ended = await self.store.expire_leases(int(time.time() * 1000), frozenset(self._leases))
        if ended:
            logger.warning("%d requests of processes that died were ended in the ledger", ended)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self._expire()
            except Failure as failure:
                logger.warning("the store does not answer: %s", failure.message)

    async def _prune(self) -> None:
        assert self.store is not None  # noqa: S101 - started with one
        while True:
            with contextlib.suppress(Failure):
                now, kept = int(time.time() * 1000), self.config.retention
                await self.store.prune(now - kept.request_log_days * _DAY_MS)
                await self.store.forget_answers(now - kept.idempotency_hours * _HOUR_MS)
            await asyncio.sleep(_PRUNE_S)
