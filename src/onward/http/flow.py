"""A connection, without what is said on it: who reads too slowly, who is gone, when to read on."""

import asyncio
import enum
import socket
from typing import cast


class Phase(enum.Enum):
    """What a connection is waiting for from its caller."""

    IDLE = enum.auto()
    """The first byte of a request."""
    HEADER = enum.auto()
    BODY = enum.auto()
    LINGER = enum.auto()
    """The end: all that still comes in is thrown away."""


def limit_unsent(transport: asyncio.Transport, limit: int) -> None:
    """Keep the system from holding more than `limit` bytes for a reader that takes none.

    It would hold megabytes, a whole answer mostly, and nobody would learn that it is not read.
    """
    connected: socket.socket = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, option, limit)


class Flow(asyncio.Protocol):
    """A connection to a caller, without what is said on it."""

    _transport: asyncio.Transport
    """From `connection_made` on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.read_paused = False
        self.write_paused = False
        """Whether the caller reads too slowly for more to be written."""
        self._writable: asyncio.Future[None] | None = None
        self._stalled: tuple[float, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def abort(self) -> None:
        """Cut it."""
        self._transport.abort()

    def abort_if_gone(self) -> None:
        """Cut it if the system knows by now that nobody is there."""
        connected: socket.socket = self._transport.get_extra_info("socket")
        if not self._transport.is_closing() and connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()

    def pause_reading(self) -> None:
        """Read no more, until there is room."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Hand bytes on to the caller."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    async def drain(self) -> None:
        """Wait while writing is paused, or until nobody is there."""
        while self.write_paused:
            if self._writable is None:
                self._writable = self.loop.create_future()
            await asyncio.shield(self._writable)

    def stalled(self, now: float, longest_s: float, *, answering: bool) -> bool:
        """Whether the caller has read nothing for too long, of what waits for it."""
        # Nothing is added while writing is paused or the end was written: less means that it is read.
        waiting = self._transport.get_write_buffer_size()
        if not waiting or (answering and not self.write_paused and not self._transport.is_closing()):
            self._stalled = None
            return False
        if self._stalled is None or waiting < self._stalled[1]:
            self._stalled = (now, waiting)
        return now - self._stalled[0] > longest_s
