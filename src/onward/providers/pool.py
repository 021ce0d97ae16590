"""The connections to one provider: opened when needed, kept for a while, never more than allowed."""

import asyncio
import logging
import ssl
from collections import deque
from typing import Final

from onward.providers.connection import Connection, Timeouts, slow, unavailable
from onward.providers.protocol import ProviderStatus

logger = logging.getLogger("onward")
_WAITING: Final = 10_000
"""Requests that may wait for a connection."""
_KEPT: Final = 256
"""Idle connections."""


class Pool:
    """Connections to one address. The one that was used last is used next, so that few stay open."""

    def __init__(
        self,
        provider: str,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        timeouts: Timeouts,
        most: int,
    ) -> None:
        """`provider`: its name, for the log."""
        self._provider = provider
        self._host = host
        self._port = port
        self._tls = tls
        self._timeouts = timeouts
        self._most = most
        self._open: set[Connection] = set()
        self._opening = 0
        self._idle: list[Connection] = []
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._interval = max(0.02, min(1.0, timeouts.first_byte / 5, timeouts.idle / 5))

    def status(self) -> ProviderStatus:
        """A look at it."""
        return ProviderStatus(
            open=len(self._open), busy=len(self._open) - len(self._idle), waiting=len(self._waiting)
        )

    async def take(self) -> Connection:
        """A connection that nothing was written on since its last answer. Raises `Failure`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        if len(self._open) + self._opening < self._most:
            return await self._connect()
        if len(self._waiting) >= _WAITING:
            raise unavailable("Too many requests wait for the model's provider. Try again soon.")
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._timeouts.first_byte):
                found = await waiter
        except TimeoutError:
            raise slow("no connection was free") from None
        except asyncio.CancelledError:
            self._hand_back(waiter)
            raise
        finally:
            if not waiter.done():
                waiter.cancel()
        return found if found is not None and found.usable else await self.take()

    def close(self) -> None:
        """Cut everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._open):
            connection.abort()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        self._opening += 1
        try:
            async with asyncio.timeout(self._timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._timeouts, self._freed, self._lost),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls is not None else None,
                )
        except TimeoutError:
            self._log("no connection in time")
            raise slow("it could not be connected to in time") from None
        except (OSError, ssl.SSLError, UnicodeError) as error:
            self._log(f"no connection: {type(error).__name__}")
            raise unavailable("The model's provider could not be reached. Try again later.") from None
        finally:
            self._opening -= 1
        self._open.add(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._interval, self._sweep)
        return connection

    def _freed(self, connection: Connection) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if len(self._idle) < _KEPT:
            self._idle.append(connection)
        else:
            connection.abort()

    def _lost(self, connection: Connection, reason: str) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if reason:
            self._log(reason)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)  # there is room to connect
                return

    def _hand_back(self, waiter: asyncio.Future[Connection | None]) -> None:
        """A request that was given a connection has gone before it used it."""
        if waiter.done() and not waiter.cancelled() and (found := waiter.result()) is not None:
            self._freed(found)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            connection.check(now)
        for connection in [one for one in self._idle if one.idle_until < now]:
            connection.abort()
        self._sweeper = loop.call_later(self._interval, self._sweep) if self._open else None

    def _log(self, reason: str) -> None:
        logger.info("provider=%s %s", self._provider, reason)
