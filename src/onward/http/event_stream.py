"""Server-sent events: what is ready goes out in one write, silence is broken, readers may be slow."""

import asyncio
from typing import Self

from onward.http.exchange import Exchange, Headers

_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """The body of a streamed answer.

    A writer task sends what was `put` since its last write, so a burst costs one write. The
    status goes out with the first event, or after `silence_s` seconds without any: until then a
    failure can still be answered with a status of its own. `put` waits while more than
    `buffer_bytes` are unsent: a slow reader slows the engine and fills no memory.
    """

    def __init__(self, exchange: Exchange, *, silence_s: float, comment: bytes, buffer_bytes: int) -> None:
        self._exchange = exchange
        self._silence_s = silence_s
        self._comment = comment
        self._buffer_bytes = buffer_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._last_at = self._loop.time()
        self._timer = self._loop.call_at(self._last_at + self._silence_s, self._break_silence)
        self._writer = self._loop.create_task(self._write())
        self._exchange.nudge = self._nudge
        return self

    async def __aexit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
            await asyncio.wait([self._writer])

    @property
    def started(self) -> bool:
        """Whether something was put or sent: a failure is an event from now on."""
        return self._exchange.answering or bool(self._parts)

    async def put(self, data: bytes) -> None:
        """Send bytes of whole events, soon."""
        if not data:
            return
        self._parts.append(data)
        self._size += len(data)
        self._wake.set()
        if self._size > self._buffer_bytes:
            self._room.clear()
            await self._room.wait()

    async def end(self, data: bytes) -> None:
        """Send the last bytes and wait until everything was handed on."""
        self._parts.append(data)
        self._ended = True
        self._wake.set()
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        exchange = self._exchange
        ended = False
        try:
            while not ended:
                data = await self._next()
                ended = self._ended and not self._parts
                if not exchange.answering:
                    await exchange.start(200, list(_HEADERS))
                await exchange.write(data, last=ended)
                self._room.set()
        finally:
            self._room.set()

    async def _next(self) -> bytes:
        if not self._parts:
            self._wake.clear()
            await self._wake.wait()
            if not self._parts:
                return self._comment
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._last_at = self._loop.time()
        return data

    def _nudge(self) -> None:
        if self._exchange.answering:
            self._wake.set()

    def _break_silence(self) -> None:
        """Wake the writer if nothing was sent for long. One timer, moved on when it was too early."""
        now = self._loop.time()
        due = self._last_at + self._silence_s
        if due <= now:
            self._wake.set()
            self._last_at = now
            due = now + self._silence_s
        self._timer = self._loop.call_at(due, self._break_silence)
