"""Server-sent events: what is ready goes out in one write, silence is broken, readers may be slow."""

import asyncio
from typing import Protocol, Self

from onward.http.exchange import Exchange, Headers
from onward.http.limits import Limits

EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_LINES = b"".join([b"%b: %b\r\n" % header for header in EVENT_STREAM])


class Out(Protocol):
    """Where the events of an answer go."""

    def put_now(self, data: bytes) -> bool:
        """See `EventStream.put_now`."""
        ...

    async def put(self, data: bytes, *, last: bool = False) -> None:
        """See `EventStream.put`."""
        ...


class EventStream:
    """The body of a streamed answer, which one task makes.

    What is `put` first in a step of the loop is sent at once; what follows in the same step, such as
    the rest of a burst, goes out by one more write. The status goes out with the first event, or
    after `silence_s` seconds without any: until then a failure can still be answered with a status
    of its own. `put` waits for a slow reader, and while more than `buffer_bytes` are unsent: this
    slows the engine and fills no memory.
    """

    def __init__(self, exchange: Exchange, *, silence_s: float, comment: bytes, buffer_bytes: int) -> None:
        self._exchange = exchange
        self._silence_s = silence_s
        self._comment = comment
        self._buffer_bytes = buffer_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._busy = False
        """Whether something is being sent, or was in this step of the loop."""
        self._ended = False
        self._room: asyncio.Event | None = None
        """Is set when what waits was sent; None: nobody has waited yet."""
        self._writer: asyncio.Task[None] | None = None
        """Sends what no `put` does: the rest of a burst, and comments."""

    async def __aenter__(self) -> Self:
        self._loop = self._exchange.loop
        self._last_at = self._loop.time()
        self._timer = self._loop.call_at(self._last_at + self._silence_s, self._break_silence)
        self._exchange.nudge = self._nudge
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ended = True
        self._timer.cancel()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    @property
    def started(self) -> bool:
        """Whether something was put or sent: a failure is an event from now on."""
        return self._exchange.answering or bool(self._parts)

    def put_now(self, data: bytes) -> bool:
        """Send bytes of whole events at once. False: that cannot be now, they are to be `put`."""
        if self._busy:
            return False
        exchange = self._exchange
        if not exchange.answering:
            exchange.start_stream(EVENT_STREAM, _LINES)
        if not exchange.send_now(data):
            return False
        self._last_at = self._loop.time()
        return True

    async def put(self, data: bytes, *, last: bool = False) -> None:
        """Send bytes of whole events, soon. `last`: only the end follows, with which they may go out."""
        if not data:
            return
        self._parts.append(data)
        if last and not self._busy:
            self._busy = True
            self._loop.call_soon(self._step_over)
        elif not self._busy:
            await self._send()
            return
        self._size += len(data)
        if self._size > self._buffer_bytes:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    async def end(self, data: bytes) -> None:
        """Send the last bytes and wait until everything was handed on."""
        self._ended = True
        if self._writer is not None:
            await self._writer
        await self._send(data, last=True)

    async def _send(self, data: bytes = b"", *, last: bool = False) -> None:
        """Send the parts, and `data` behind them. Who is cancelled while it waits leaves them here."""
        exchange, parts = self._exchange, self._parts
        count = len(parts)
        self._busy = True
        self._size = 0
        try:
            if not exchange.answering:
                exchange.start_stream(EVENT_STREAM, _LINES)
            await exchange.write(b"".join((*parts, data)), last=last)
            del parts[:count]
            self._last_at = self._loop.time()
        finally:
            if self._room is not None:
                self._room.set()
            if not self._ended:
                self._loop.call_soon(self._step_over)

    def _step_over(self) -> None:
        """The step of the loop is over in which something was sent."""
        self._busy = bool(self._parts) and not self._ended
        if self._busy:
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            await self._send()
        finally:
            self._writer = None

    def _nudge(self) -> None:
        if self._exchange.answering:
            self._say_something()

    def _say_something(self) -> None:
        if not self._busy and not self._ended:
            self._parts.append(self._comment)
            self._step_over()

    def _break_silence(self) -> None:
        """Send a comment if nothing was sent for long. One timer, moved on when it was too early."""
        now = self._loop.time()
        due = self._last_at + self._silence_s
        if due <= now:
            self._say_something()
            self._last_at = now
            due = now + self._silence_s
        self._timer = self._loop.call_at(due, self._break_silence)


def event_stream(exchange: Exchange, limits: Limits) -> EventStream:
    """The streamed answer of an exchange, as its surface breaks silence."""
    rule = exchange.framing
    silence = limits.silence_s or rule.keep_alive_s
    return EventStream(
        exchange, silence_s=silence, comment=rule.keep_alive, buffer_bytes=limits.stream_buffer_bytes
    )
