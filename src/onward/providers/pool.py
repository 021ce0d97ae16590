"""The connections to one provider: the one that was used last is used next, and a bound holds."""

import asyncio
import logging
import ssl
from collections import deque

from onward.providers.address import Lookup
from onward.providers.bounds import Bounds
from onward.providers.connect import connect
from onward.providers.connection import Connection
from onward.providers.failures import no_turn, overloaded, unconnected, unreachable
from onward.providers.protocol import ProviderStatus

logger = logging.getLogger("onward")


class Pool:
    """Connections of one provider, in one event loop.

    Time is kept by one sweep over all of them, which runs while there are any.
    """

    def __init__(self, name: str, bounds: Bounds, lookup: Lookup, tls: ssl.SSLContext | None) -> None:
        """`name` is the provider's, for the log; `tls` is None for plain TCP."""
        self.name = name
        self.bounds = bounds
        self._lookup = lookup
        self._tls = tls
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    def status(self) -> ProviderStatus:
        """See `Provider.status`."""
        busy = len(self._all) - len(self._idle)
        return ProviderStatus(open=len(self._all), busy=busy, waiting=len(self._waiters))

    def take(self) -> Connection | None:
        """A connection that waits unused, the most recent one; None: there is none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if not connection.is_stale():
                return connection
            connection.abort()
        return None

    async def obtain(self) -> Connection:
        """A new connection, or one whose turn it is. Raises `Unsent`."""
        if self._closed:
            raise unreachable()
        in_line = False
        try:
            async with asyncio.timeout(self.bounds.connect_s):
                if len(self._all) + self._opening >= self.bounds.connections:
                    in_line = True
                    connection = await self._turn()
                    in_line = False
                    if connection is not None:
                        return connection
                else:
                    self._opening += 1
                return await self._open()
        except TimeoutError:
            self._lookup.forget()
            logger.info("provider=%s: no connection within %g s", self.name, self.bounds.connect_s)
            raise (no_turn() if in_line else unconnected()) from None
        except OSError as error:
            self._lookup.forget()
            logger.info("provider=%s: no connection (%s: %s)", self.name, type(error).__name__, error)
            raise unreachable() from None

    async def _turn(self) -> Connection | None:
        """Wait until one is free. None: one was closed, and its place is kept for the caller (`_opening`)."""
        if len(self._waiters) >= self.bounds.waiting:
            logger.info("provider=%s: %d requests wait for a connection", self.name, len(self._waiters))
            raise overloaded()
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiters.remove(waiter)
            elif waiter.exception() is None:
                self._pass_on(waiter.result())
            raise

    def _pass_on(self, connection: Connection | None) -> None:
        """What was meant for somebody who has left."""
        if connection is None:
            self._opening -= 1
            self._place_free()
        else:
            self.release(connection, self.bounds.keep_s)

    async def _open(self) -> Connection:
        """Connect, in a place that is kept."""
        loop = asyncio.get_running_loop()
        try:
            connection = await connect(self._lookup, lambda: Connection(self, loop), self._tls)
        except BaseException:
            self._opening -= 1
            self._place_free()
            raise
        self._opening -= 1
        if not connection.usable:
            self._place_free()
            raise ConnectionResetError("closed as soon as it was open")
        if self._closed:
            connection.abort()
            raise unreachable()
        self._all.add(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self.bounds.sweep_s, self._sweep)
        return connection

    def _place_free(self) -> None:
        while self._waiters and len(self._all) + self._opening < self.bounds.connections:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._opening += 1
                waiter.set_result(None)

    def release(self, connection: Connection, keep_s: float) -> None:
        """A connection is free: for whoever waits longest, or to be kept for `keep_s` seconds."""
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        connection.keep(keep_s)
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._place_free()
        if self._emptied is not None and not self._all and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        self._sweeper = None
        if not self._all:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._all):
            connection.check(now)
        self._sweeper = loop.call_later(self.bounds.sweep_s, self._sweep)

    async def close(self) -> None:
        """Close every connection; requests on them fail."""
        self._closed = True
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(unreachable())
        for connection in list(self._all):
            connection.give_up()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if self._all:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied
