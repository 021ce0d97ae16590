"""HTTP/1.1 on one connection: uvicorn's protocol over httptools, with the bounds it lacks.

uvicorn reads headers of any number and up to 8 MiB, and waits for ever on a silent connection, on
half a header and on a reader that stopped reading. Here every phase of a connection has a bound
(`Limits`), held by one sweep over all connections (`HttpProtocol.check`) rather than by a timer
for each request. What is refused here is answered in the shape of the API's errors.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from onward.core.failure import Failure, FailureKind
from onward.http.limits import Limits

Refusal = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body of an answer that the application never sees."""


class Phase(enum.Enum):
    """What a connection is waiting for from its caller."""

    IDLE = enum.auto()
    """The first byte of a request."""
    HEADER = enum.auto()
    BODY = enum.auto()
    LINGER = enum.auto()
    """The end: all that still comes in is thrown away."""


class Refused(Exception):  # noqa: N818 - raised inside a parser callback and caught around the parser
    """The request being read goes over a bound."""

    def __init__(self, failure: Failure, status: int | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.status = status


class _Transport:
    """The transport as a request sees it.

    What is written in one step of the loop, such as a header and its body, goes out in one system
    call; closing lets an early answer arrive.
    """

    __slots__ = ("_loop", "_pending", "_transport", "close", "get_extra_info", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.close = close

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def flush(self) -> None:
        """Hand on what was written so far."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            if not self._transport.is_closing():
                self._transport.write(data)


class HttpProtocol(HttpToolsProtocol):
    """One connection. `refusal` gives the answer to a failure for a path (None: not known yet)."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: Limits,
        refusal: Callable[[Failure, str | None, int | None], Refusal],
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.access_log = False
        self._limits = limits
        self.url = b""
        self._refusal = refusal
        self._phase = Phase.IDLE
        self._since = self._last_data = self.loop.time()
        self._answered = False
        self._running: RequestResponseCycle | None = None
        self._stopped = False
        self._header_bytes = 0
        self._unparsed = 0
        self._moved = False
        self._fresh = False
        self._lingered = 0
        self._stalled: tuple[float, int] | None = None
        self.raw: asyncio.Transport = None  # pyright: ignore[reportAttributeAccessIssue] - until connected

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.raw = transport
        self._gathering = _Transport(transport, self.loop, self.finish)
        self.transport = self._gathering  # pyright: ignore[reportAttributeAccessIssue]
        if len(self.connections) > 2 * self._limits.connections:
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self._refuse(Failure(FailureKind.ENGINE_FULL, "Too many open connections. Try again soon."))

    def connection_lost(self, exc: Exception | None) -> None:
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def finish(self) -> None:
        """Close, after what was written; the rest of an unfinished request is thrown away first."""
        if self.raw.is_closing() or self._phase is Phase.LINGER:
            return
        self._gathering.flush()
        if (self._stopped or self._phase is not Phase.IDLE) and self.raw.can_write_eof():
            self._linger()
        else:
            self.raw.close()

    def _linger(self) -> None:
        # Closing with unread input resets the connection, and the answer may be lost with it.
        self._phase = Phase.LINGER
        self._since = self.loop.time()
        self.raw.write_eof()
        self.flow.resume_reading()

    # Reading

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.LINGER:
            self._lingered += len(data)
            if self._lingered > self._limits.linger_bytes:
                self.raw.close()
            return
        if self._stopped:
            return
        self._last_data = self.loop.time()
        self._moved = False
        self._fresh = False
        try:
            self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess] - until the end
        except httptools.HttpParserUpgrade:
            # We speak nothing else: the request is answered as it is, and the connection ends.
            self._stop()
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, Refused):
                self._refuse(cause.failure, cause.status)
            else:
                self._refuse(Failure(FailureKind.INVALID_REQUEST, "This is not a well-formed HTTP request."))
        else:
            self._bound_unparsed(len(data))

    def _bound_unparsed(self, size: int) -> None:
        # The parser keeps half a header field, a trailer or a chunk's extensions; bound what it may hold.
        if self._phase is Phase.IDLE or (self._moved and not self._fresh):
            self._unparsed = 0
            return
        self._unparsed += size
        if self._unparsed > self._limits.header_bytes + self._limits.url_bytes:
            self._refuse(self._headers_too_large())

    def _headers_too_large(self) -> Failure:
        return Failure(
            FailureKind.HEADERS_TOO_LARGE,
            f"The header is too large: at most {self._limits.header_count} fields"
            f" and {self._limits.header_bytes} bytes are read.",
        )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fresh = self._phase is Phase.IDLE and not self._moved  # it begins where this piece does
        self._phase = Phase.HEADER
        self._since = self._last_data
        self._header_bytes = 0
        self._moved = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._limits.url_bytes:
            message = f"The URL is too long: at most {self._limits.url_bytes} bytes are read."
            raise Refused(Failure(FailureKind.HEADERS_TOO_LARGE, message), 414)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._limits.header_bytes or len(self.headers) >= self._limits.header_count:
            raise Refused(self._headers_too_large())
        if self._phase is Phase.BODY:
            return  # a trailer: counted, not kept
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._moved = True
        self._fresh = False
        if len(self.pipeline) >= self._limits.pipelined:
            raise Refused(Failure(FailureKind.RATE_LIMITED, "Too many requests wait on this connection."))
        super().on_headers_complete()
        self._phase = Phase.BODY
        self._since = self._last_data

    def on_chunk_header(self) -> None:
        self._moved = True

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = Phase.IDLE
        self._since = self._last_data
        self._moved = True

    # Answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._answered = True
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.raw.is_closing() or self._phase is Phase.LINGER:
            return
        if self._phase is Phase.BODY and self._running is self.cycle:
            self.finish()
            return
        if not self._stopped:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._phase is Phase.IDLE:
            self._since = self.loop.time()

    def _stop(self) -> None:
        """Read no more requests; the connection ends with the last one that was read whole."""
        self._stopped = True
        last = self.pipeline[0][0] if self.pipeline else self._running
        if last is None or last.response_complete:
            self.finish()
        else:
            last.keep_alive = False

    def _refuse(self, failure: Failure, status: int | None = None) -> None:
        if self.raw.is_closing() or self._phase is Phase.LINGER:
            return
        self._stopped = True
        running = self._running
        if self._phase is Phase.BODY:
            unread = self.cycle
            if unread is running:
                unread.disconnected = True
                unread.message_event.set()
                if unread.response_started:
                    self._gathering.flush()
                    self.raw.close()
                    return
                running = None
            else:
                self.pipeline.popleft()
        if running is not None and not running.response_complete:
            # Its answer must not be cut by ours: end after it, without one.
            self._phase = Phase.IDLE
            self._stop()
            return
        self.pipeline.clear()
        self._gathering.flush()
        path = self.url.split(b"?", 1)[0].decode("latin-1") or None
        self._write_refusal(*self._refusal(failure, path, status))
        if self.raw.can_write_eof():
            self._linger()
        else:
            self.raw.close()

    def _write_refusal(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        lines = [STATUS_LINE[status]]
        for name, value in (
            *self.server_state.default_headers,
            *headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ):
            lines += [name, b": ", value, b"\r\n"]
        self.raw.write(b"".join([*lines, b"\r\n", body]))

    # Time

    def check(self, now: float) -> None:
        """Hold the bounds on time; called for every connection, about once a second."""
        limits = self._limits
        if self._write_stalled(now):
            self.raw.abort()
        elif self.raw.is_closing():
            return
        elif self._phase is Phase.LINGER:
            if now - self._since > limits.linger_s:
                self.raw.close()
        elif self._phase is Phase.HEADER:
            if now - self._since > limits.header_s:
                self._refuse(_too_slow(f"The header was not complete after {limits.header_s:g} s."))
        elif self._phase is Phase.BODY:
            self._check_body(now)
        elif self._running is None or self._running.response_complete:
            bound = limits.keep_alive_s if self._answered else limits.header_s
            if now - self._since > bound:
                self.raw.close()

    def _check_body(self, now: float) -> None:
        limits = self._limits
        if self.flow.read_paused:
            self._last_data = now  # we are the slow side
        elif now - self._last_data > limits.body_idle_s:
            self._refuse(_too_slow(f"No more of the body came within {limits.body_idle_s:g} s."))
        elif now - self._since > limits.body_s:
            self._refuse(_too_slow(f"The body was not complete after {limits.body_s:g} s."))

    def _write_stalled(self, now: float) -> bool:
        # Nothing is added while writing is paused or the end was written: less means that it is read.
        waiting = self.raw.get_write_buffer_size()
        answering = self._running is not None and not self._running.response_complete
        if not waiting or (answering and not self.flow.write_paused and not self.raw.is_closing()):
            self._stalled = None
            return False
        if self._stalled is None or waiting < self._stalled[1]:
            self._stalled = (now, waiting)
        return now - self._stalled[0] > self._limits.write_stall_s


def _too_slow(message: str) -> Failure:
    return Failure(FailureKind.REQUEST_TIMEOUT, message)
