"""One HTTP/1.1 connection to a provider, and the answer that comes over it.

asyncio's protocol over httptools: an answer costs no task and no timer of its own. Silence is
noticed by one sweep over the connections that work (`Connection.check`), as in our own server.
"""

import asyncio
import enum
import math
from collections.abc import Callable
from typing import Any, Final

import httptools

from onward.core.failure import Failure, FailureKind

_HEADER_BYTES: Final = 64 * 1024
_HEADER_COUNT: Final = 200
_BUFFERED: Final = 256 * 1024
"""Bytes of a body that wait to be read before the provider has to wait as well."""
_LARGE_BODY: Final = 64 * 1024
"""Bytes from which a body is not copied to stand behind its header."""
_NO_BODY: Final = frozenset({204, 205, 304})


class _Phase(enum.Enum):
    """What a connection does."""

    IDLE = enum.auto()
    HEADER = enum.auto()
    """A request was written; its answer's header has not come."""
    BODY = enum.auto()
    LOST = enum.auto()


class Timeouts:
    """How long a provider may take, in seconds."""

    __slots__ = ("connect", "first_byte", "idle")

    def __init__(self, connect: float, first_byte: float, idle: float) -> None:
        self.connect = connect
        self.first_byte = first_byte
        self.idle = idle


class HttpAnswer:
    """`providers.protocol.Answer` over a connection."""

    __slots__ = ("_chunks", "_connection", "_ended", "_failure", "_size", "_waiter", "headers", "status")

    def __init__(self, connection: "Connection") -> None:
        self._connection: Connection | None = connection
        self._chunks: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}

    async def read(self) -> bytes:
        """The next bytes of the body: all that came; b"" at its end."""
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._size = 0
        if self._connection is not None:
            self._connection.drained()
        return data

    async def read_all(self, limit: int) -> bytes:
        """The whole body; UPSTREAM_UNAVAILABLE where it is longer than `limit`."""
        data = await self.read()
        if not data or (self._ended and not self._chunks and self._failure is None and len(data) <= limit):
            return data
        pieces, size = [data], len(data)
        while size <= limit and (data := await self.read()):
            pieces.append(data)
            size += len(data)
        if size > limit:
            self.close()
            raise unavailable("The model's provider answered with more than is taken.")
        return b"".join(pieces)

    def close(self) -> None:
        """Let go of it: what has not come yet never will."""
        connection, self._connection = self._connection, None
        if connection is not None and not self._ended:
            connection.abort()
        self._chunks.clear()
        if not self._ended:
            self._failure = self._failure or unavailable("The answer was let go of.")

    def add(self, data: bytes) -> int:
        """Bytes of the body came; how many wait to be read."""
        self._chunks.append(data)
        self._size += len(data)
        self._wake()
        return self._size

    def end(self, failure: Failure | None = None) -> None:
        """All of it came, or never will."""
        if self._ended or self._failure is not None:
            return
        self._failure = failure
        self._ended = failure is None
        self._connection = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """Carries one request at a time. `freed` is told when it can take another one, `lost` when it is gone."""

    def __init__(
        self,
        timeouts: Timeouts,
        freed: "Callable[[Connection], None]",
        lost: "Callable[[Connection, str], None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._freed = freed
        self._lost = lost
        self._transport: asyncio.Transport = None  # pyright: ignore[reportAttributeAccessIssue] - until connected
        self._parser: Any = None
        self._phase = _Phase.IDLE
        self._due = math.inf
        self._answer: HttpAnswer | None = None
        self._header: asyncio.Future[HttpAnswer] | None = None
        self._header_bytes = self._header_count = 0
        self._until_close = False
        self._paused = False
        self._reason = "closed by the provider"
        self.idle_until = math.inf
        """When the provider may close it, by its own `Keep-Alive`; else by what is usual."""

    # What the pool asks

    @property
    def usable(self) -> bool:
        """Whether a request can be written on it, as far as is known."""
        return self._phase is _Phase.IDLE and not self._transport.is_closing()

    async def request(self, head: bytes, body: bytes) -> HttpAnswer:
        """Write a request and wait for the header of its answer. Raises `Failure`."""
        self._phase = _Phase.HEADER
        self._due = self._loop.time() + self._timeouts.first_byte
        self._answer = HttpAnswer(self)
        self._parser = httptools.HttpResponseParser(self)
        self._header_bytes = self._header_count = 0
        header = self._header = self._loop.create_future()
        if len(body) < _LARGE_BODY:
            self._transport.write(head + body)
        else:
            self._transport.writelines([head, body])
        try:
            return await header
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._header = None

    def check(self, now: float) -> None:
        """End what has been silent for too long."""
        if now < self._due:
            return
        if self._phase is _Phase.HEADER:
            self._break(slow(f"no answer for {self._timeouts.first_byte:g} s"), "no first byte in time")
        elif self._phase is _Phase.BODY:
            self._break(slow(f"silent for {self._timeouts.idle:g} s"), "silent for too long")

    def drained(self) -> None:
        """Everything that came was read."""
        if self._phase is _Phase.BODY:
            self._due = self._loop.time() + self._timeouts.idle
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut it: the provider is told to stop."""
        self._reason = "cut by us"
        self._transport.abort()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a connected stream

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.IDLE:
            self.abort()  # nobody asked for anything
            return
        if self._phase is _Phase.BODY:
            self._due = self._loop.time() + self._timeouts.idle
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break(unavailable(_BROKEN), "it wants another protocol")
        except httptools.HttpParserError as error:
            if self._phase is not _Phase.LOST:
                self._break(unavailable(_BROKEN), f"no HTTP: {type(error).__name__}")
        if self._header_bytes > _HEADER_BYTES and self._phase is _Phase.HEADER:
            self._break(unavailable(_BROKEN), "its header is too large")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        phase, self._phase = self._phase, _Phase.LOST
        if exc is not None:
            self._reason = type(exc).__name__
        if phase is _Phase.BODY and self._until_close and exc is None:
            self._finish(None)
        elif phase in (_Phase.HEADER, _Phase.BODY):
            self._finish(
                unavailable("The connection to the model's provider was lost. Send the request again.")
            )
        self._lost(self, self._reason if phase in (_Phase.HEADER, _Phase.BODY) else "")

    # What the parser tells

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise httptools.HttpParserError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        self._header_count += 1
        if self._header_count > _HEADER_COUNT or self._header_bytes > _HEADER_BYTES:
            raise httptools.HttpParserError("too many headers")
        if self._answer is not None:
            self._answer.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        answer = self._answer
        if answer is None:
            return
        status: int = self._parser.get_status_code()
        if status < 200:
            answer.headers.clear()
            return
        answer.status = status
        headers = answer.headers
        if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
            raise httptools.HttpParserError("a compressed body")
        self._until_close = (
            b"content-length" not in headers
            and b"chunked" not in headers.get(b"transfer-encoding", b"").lower()
            and status not in _NO_BODY
        )
        self._phase = _Phase.BODY
        self._due = self._loop.time() + self._timeouts.idle
        if self._header is not None and not self._header.done():
            self._header.set_result(answer)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None and self._answer.add(data) > _BUFFERED and not self._paused:
            self._paused = True
            self._due = math.inf
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._phase is not _Phase.BODY:
            return  # an interim answer
        again: bool = self._parser.should_keep_alive() and not self._until_close
        keep_alive = self._answer.headers.get(b"keep-alive") if self._answer is not None else None
        self._finish(None)
        if not again or self._transport.is_closing():
            self._phase = _Phase.LOST
            self._transport.close()
            return
        self._phase = _Phase.IDLE
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self.idle_until = self._loop.time() + idle_seconds(keep_alive)
        self._freed(self)

    def _finish(self, failure: Failure | None) -> None:
        answer, self._answer = self._answer, None
        self._due = math.inf
        if answer is not None:
            answer.end(failure)
        if failure is not None and self._header is not None and not self._header.done():
            self._header.set_exception(failure)

    def _break(self, failure: Failure, reason: str) -> None:
        self._reason = reason
        self._finish(failure)
        self._transport.abort()


_BROKEN: Final = "The model's provider gave a broken answer. Send the request again."
_IDLE_S: Final = 4.0
"""Servers commonly close after five seconds; a connection that just closes under a request loses it."""
_LONGEST_IDLE_S: Final = 60.0


def idle_seconds(keep_alive: bytes | None) -> float:
    """How long a connection may wait for its next request, by the provider's `Keep-Alive`."""
    if keep_alive is not None:
        for parameter in keep_alive.split(b","):
            name, _, value = parameter.strip().partition(b"=")
            if name.lower() == b"timeout" and value.isdigit():
                return max(0.0, min(float(value[:6]) - 1.0, _LONGEST_IDLE_S))
    return _IDLE_S


def unavailable(message: str) -> Failure:
    """No usable answer came."""
    return Failure(FailureKind.UPSTREAM_UNAVAILABLE, message)


def slow(what: str) -> Failure:
    """It took too long."""
    return Failure(FailureKind.UPSTREAM_TIMEOUT, f"The model's provider was too slow: {what}. Try again.")
