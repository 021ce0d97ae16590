"""Admission in one HTTP process: the gate over the host's stores, and what has to be done every second."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from onward.admission.gate import Gate
from onward.admission.keyring import Keys
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Operation, Result
from onward.admission.limits import RateLimits
from onward.admission.store import Store
from onward.core.clock import SystemClock
from onward.core.failure import Failure
from onward.http.idempotent import Recordings
from onward.stores.batch import GroupCommit
from onward.stores.claims import GatheredClaims, MemoryClaims
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite.store import SqliteStore
from onward.stores.takes import GatheredLimits, direct
from onward.wiring import config as settings
from onward.wiring.directory import keys_of, tenants_of

logger = logging.getLogger("onward")
MARK_S = 0.9
"""Progress is written this often: after a crash what is charged is at most a second old."""
REFRESH_S = 1.0
"""How often it is asked whether keys changed: a revoked key is refused everywhere within 5 s."""
RECHECK_S = 0.2
"""How long keys count as fresh for a key that is not known."""
STALE_S = 5.0
"""Keys that could not be checked for so long are not trusted any more."""
RENEW_S = 5.0
COUNT_S = 0.8
"""How often it is found out whether the limits can be counted, so that `/readyz` tells within a second."""
LEASE_S = 30.0
"""A process that has not been heard of for so long is taken for dead."""
_WRITTEN = "the store cannot be written"
_READ = "the store cannot be read"
_COUNTED = "the limits cannot be counted: Redis does not answer"
Work = Callable[[], Awaitable[None]]
_HOUR_MS = 3_600_000


class Admission:
    """`store` None: nothing is written, and only keys of the config exist."""

    def __init__(
        self, config: settings.Config, store: Store | None, limits: RateLimits, *, lease: str
    ) -> None:
        self._store = store
        self._limits = limits
        self._config_keys: list[Key] = keys_of(config)
        self._config_tenants: list[Tenant] = tenants_of(config)
        self.keys = Keys(self._config_keys, self._config_tenants)
        self.lease = lease
        clock = SystemClock()
        own = MemoryClaims(clock, keep_ms=config.retention.idempotency_hours * _HOUR_MS)
        self.names = GatheredClaims(own if store is None else store)
        self.recordings: Recordings = {}
        self._ledger = None if store is None else GroupCommit(_writer(store))
        self._gathered = None if isinstance(limits, MemoryLimits) else GatheredLimits(limits)
        self.gate = Gate(
            write=None if self._ledger is None else self._ledger.submit,
            limits=self._gathered.takes if self._gathered else direct(limits),  # pyright: ignore[reportArgumentType]
            lease=lease,
            clock=clock,
            currency=config.billing.currency,
            bind=own.bind,
        )
        self._store_keys: list[Key] = []
        self._store_tenants: list[Tenant] = []
        self._closed = False
        self._troubles: dict[str, None] = {}
        self._revision: int | None = None
        self._fresh_at = float("-inf")
        self._leased = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read the keys and begin to keep everything fresh.

        Where the store or the limits do not answer, requests are refused until they do: a process that
        takes the place of a dead one says so to callers, who would find nobody else at the port.
        """
        work: list[tuple[float, Work, str]] = [(COUNT_S, self._renew_places, _COUNTED)]
        if self._store is not None:
            self.keys.available = False
            work += [(RENEW_S, self._renew_lease, _WRITTEN), (REFRESH_S, self.refresh, _READ)]
        for _, one, trouble in work:
            await self._do(one, trouble)
        if self._store is not None:
            work.append((MARK_S, self.gate.mark, ""))
        work.append((MARK_S, self.names.retry, ""))
        self._tasks = [asyncio.create_task(self._every(*one)) for one in work]

    async def stop(self) -> None:
        """Write what is left. All requests have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._gathered is not None:
            await self._gathered.close()
        if self._ledger is not None:
            with contextlib.suppress(Failure):
                await self.gate.mark()
                await self.names.retry()
                await self._ledger.drain()
                await self._touch()

    def troubles(self) -> list[str]:
        """Why nothing can be admitted now, in words."""
        return [*([] if self.keys.available else ["the store does not answer"]), *sorted(self._troubles)]

    def take_up(self, config: settings.Config) -> None:
        """The keys and tenants of another config, from this moment on."""
        self._config_keys, self._config_tenants = keys_of(config), tenants_of(config)
        self._replace_keys()

    def _replace_keys(self) -> None:
        self.keys.replace(
            [*self._store_keys, *self._config_keys],
            [*self._store_tenants, *self._config_tenants],
            closed=self._closed,
        )

    async def _do(self, work: Work, trouble: str) -> None:
        """Do what has to be done again and again; where it fails, `trouble` says what that means."""
        try:
            await work()
        except Failure as failure:
            logger.warning("%s: %s", trouble or _WRITTEN, failure.message)
            if trouble:
                self._troubles[trouble] = None
        except Exception:
            logger.exception("a task of the store failed")
        else:
            self._troubles.pop(trouble, None)

    async def _every(self, seconds: float, work: Work, trouble: str) -> None:
        while True:
            await asyncio.sleep(min(seconds, REFRESH_S) if trouble in self._troubles else seconds)
            await self._do(work, trouble)
            if self._store is not None:
                self.keys.available = time.monotonic() - self._fresh_at < STALE_S

    async def refresh(self) -> None:
        """Read keys and tenants again if they changed. Raises `Failure` if the store is down."""
        if self._store is None:
            return
        if not self._leased:
            await self._renew_lease()
        if await self._store.revision() != self._revision:
            directory = await self._store.directory()
            for request_id in directory.cancelled:
                self.gate.cancel(request_id)
            self._closed = bool(await self._store.keys(after=None, limit=1))
            self._store_keys, self._store_tenants = directory.keys, directory.tenants
            self._replace_keys()
            self._revision = directory.revision
        self._fresh_at = time.monotonic()
        self.keys.available = True

    async def recheck(self) -> None:
        """The same for a key that is not known: it may be new. Not often, so that nobody can wear us out."""
        if time.monotonic() - self._fresh_at > RECHECK_S:
            await self.refresh()

    async def _renew_places(self) -> None:
        """Say that this process lives: its places are kept."""
        await self._limits.renew(self.lease)

    async def _renew_lease(self) -> None:
        """The same for its holds."""
        if self._store is not None:
            await self._store.renew(self.lease, int((time.time() + LEASE_S) * 1000))
            self._leased = True
            await self._touch()

    async def _touch(self) -> None:
        used, self.gate.used = self.gate.used, {}
        if used and self._store is not None:
            await self._store.touch_keys(used)


def _writer(store: Store) -> Callable[[list[Operation]], list[Result] | Awaitable[list[Result]]]:
    """How batches are written: in this very step where the store can."""
    return store.write if isinstance(store, SqliteStore) else store.apply
