"""Listening sockets and what is served on them: accepts, sweeps over connections, drains."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence, Sized
from email.utils import formatdate

from onward.http.limits import Limits
from onward.http.protocol import HttpProtocol
from onward.http.refusal import Refuse
from onward.http.shared import Application, Shared

_FORCED_S = 2.0
"""How long cancelled requests may take to say so before their connections are cut."""
_FIRST_S = 1.0
"""How long a new connection may take, when we end, to ask for something."""
_SWEEP_S = 1.0


class Server:
    """Serves one application; `start`, then `drain`."""

    def __init__(self, app: Application, limits: Limits, refuse: Refuse) -> None:
        self._shared = Shared(app, limits, refuse)
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        bounds = (
            limits.header_s,
            limits.body_idle_s,
            limits.body_s,
            limits.keep_alive_s,
            limits.write_stall_s,
            limits.linger_s,
            limits.request_s,
        )
        self._interval = max(0.01, min(_SWEEP_S, *(bound / 4 for bound in bounds)))
        self._date_at = 0.0

    @property
    def limits(self) -> Limits:
        """Of the connections that come from now on."""
        return self._shared.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._shared.limits = limits

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._shared.connections)

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        return len(self._shared.running)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on bound sockets."""
        loop = asyncio.get_running_loop()
        self._sweep()
        for listening in sockets:
            self._listeners.append(await loop.create_server(self.connection, sock=listening, backlog=2048))

    def connection(self) -> HttpProtocol:
        """A new connection, which somebody has to connect."""
        return HttpProtocol(self._shared)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._date_at >= 1.0:
            self._date_at = now
            self._shared.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        for connection in list(self._shared.connections):
            connection.check(now)
        for cycle in [one for one in self._shared.running if one.disconnected]:  # which outlives its caller
            for watch in cycle.watches:
                watch.check(now)
        self._sweeper = loop.call_later(self._interval, self._sweep)

    async def drain(self, grace_s: float, hurry: asyncio.Event | None = None) -> None:
        """Let running requests end, for `grace_s` seconds or until `hurry`; then end them.

        Whoever asks meanwhile is still answered, by an application that takes no more work: that we end shows
        in its answers, not in a port that is closed. Those that are ended are told so; only a connection that
        does not end even then is cut.
        """
        loop = asyncio.get_running_loop()
        until, hurry = loop.time() + grace_s, hurry or asyncio.Event()
        running, connections = self._shared.running, self._shared.connections
        self._shut_down(new=False)
        try:
            await self._ended(until - loop.time(), hurry, running)
            for listener in self._listeners:
                listener.close()
            await self._heard(min(until - loop.time(), _FIRST_S), hurry)
            self._shut_down()
            await self._ended(until - loop.time(), hurry, running, connections)
            for cycle in list(running):
                if cycle.task is not None:
                    cycle.task.cancel()
            await self._ended(_FORCED_S, asyncio.Event(), running, connections)
        finally:
            for listener in self._listeners:
                listener.close()
            for connection in list(connections):
                connection.abort()
            if self._sweeper is not None:
                self._sweeper.cancel()

    def _shut_down(self, *, new: bool = True) -> None:
        """Let every connection end with what runs on it. `new`: also those that wait for a first request."""
        for connection in list(self._shared.connections):
            if new or not connection.is_new:
                connection.shutdown()

    async def _heard(self, within_s: float, hurry: asyncio.Event) -> None:
        """Wait until whoever was let in just now has asked for something, and so learns that we end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (  # noqa: ASYNC110
                    any(one.is_new for one in self._shared.connections) and not hurry.is_set()
                ):
                    await asyncio.sleep(0.02)

    @staticmethod
    async def _ended(within_s: float, hurry: asyncio.Event, *left: Sized) -> None:
        """Wait until these are empty."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any(map(len, left)) and not hurry.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
