"""HTTP/1.1 on one connection: uvicorn's protocol over httptools, with the bounds it lacks.

uvicorn reads headers of any number and up to 8 MiB, and waits for ever on a silent connection, on
half a header and on a reader that stopped reading. Here every phase of a connection has a bound
(`Limits`), held by one sweep over all connections (`HttpProtocol.check`) rather than by a timer
for each request. What is refused here is answered in the shape of the API's errors.
"""

import asyncio
import enum
import socket
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from onward.core.failure import Failure, FailureKind
from onward.http.cycle import Cycle, GatheringTransport, limit_unsent
from onward.http.header import (
    check_header,
    find_unknown_method,
    framing,
    target,
    unknown_method,
    waits_for_100,
)
from onward.http.limits import Limits
from onward.http.refusal import Refuse, Refused, headers_too_large, malformed, refusal_bytes, too_slow

_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBED_S = (0.02, 0.1)  # then with every sweep


class Phase(enum.Enum):
    """What a connection is waiting for from its caller."""

    IDLE = enum.auto()
    """The first byte of a request."""
    HEADER = enum.auto()
    BODY = enum.auto()
    LINGER = enum.auto()
    """The end: all that still comes in is thrown away."""


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    app: Any

    def __init__(self, config: Config, state: ServerState, limits: Limits, refuse: Refuse) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._limits = limits
        self._method = self.url = b""
        self._refused_as = refuse
        self._phase = Phase.IDLE
        self._since = self._last_data = self.loop.time()
        self._answered = False
        self._running: Cycle | None = None
        self._stopped = False
        self._half_closed = False
        self._continuing = False
        self._checked = self._since
        self._body_bytes = self._header_bytes = 0
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
        limit_unsent(transport.get_extra_info("socket"), self._limits.unsent_bytes)
        self._gathering = GatheringTransport(transport, self.loop, self.finish)
        self.transport = self._gathering  # pyright: ignore[reportAttributeAccessIssue]
        if len(self.connections) > 2 * self._limits.connections:
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self._refuse(Failure(FailureKind.ENGINE_FULL, "Too many open connections. Try again soon."))

    def connection_lost(self, exc: Exception | None) -> None:
        running = self._running
        if running is not None and not running.response_complete:
            running.abandon()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The caller sends no more: it closed one half of the connection, or all of it.

        Both look the same until something is written, which somebody who is gone refuses: before an answer
        an interim one (RFC 9110 15.2; HTTP/1.0 has none), within one whatever it finds to write (`Watch`).
        """
        running = self._running
        if self._half_closed:
            return True
        if self._phase is not Phase.IDLE or running is None or running.response_complete:
            return False
        if not running.response_started:
            if running.scope["http_version"] == "1.0":
                return False
            self._gathering.write(_PROBE)
        else:
            running.message_event.set()
        self._half_closed = True
        for pause in _PROBED_S:
            self.loop.call_later(pause, self._abort_if_gone)
        self._stop()
        return True

    def _abort_if_gone(self) -> None:
        connected: socket.socket = self.raw.get_extra_info("socket")
        if not self.raw.is_closing() and connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.raw.abort()

    def finish(self) -> None:
        """Close, after what was written; the rest of an unfinished request is thrown away first."""
        if self.raw.is_closing() or self._phase is Phase.LINGER:
            return
        self._gathering.flush()
        if not self._half_closed and (self._stopped or self._phase is not Phase.IDLE):
            self._linger()
        else:
            self.raw.close()

    def _linger(self) -> None:
        # Closing with unread input resets the connection, and the answer may be lost with it.
        if not self.raw.can_write_eof():
            self.raw.close()
            return
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
            self._parse(data)
        except httptools.HttpParserError as error:
            refused = error.__context__
            if not isinstance(refused, Refused):
                refused = self._malformed(error, data)
            self._refuse(refused.failure, refused.status)
        else:
            self._bound_unparsed(len(data))

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser leaves HTTP behind such a header. We do not (RFC 9110 7.8).
                data = data[upgrade.args[0] :]
                self._continue_behind_header()
            else:
                return

    def _continue_behind_header(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._continuing = True
        self.parser.feed_data(framing(self.headers))
        self._continuing = False

    def _malformed(self, error: httptools.HttpParserError, data: bytes) -> Refused:
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            line = find_unknown_method(data)
            if line is not None:
                self._method, self.url = line
                return unknown_method(self._method)
        return malformed("This is not a well-formed HTTP request.")

    def _bound_unparsed(self, size: int) -> None:
        # The parser keeps half a header field, a trailer or a chunk's extensions; bound what it may hold.
        if self._phase is Phase.IDLE or (self._moved and not self._fresh):
            self._unparsed = 0
            return
        self._unparsed += size
        if self._unparsed > self._limits.header_bytes + self._limits.url_bytes:
            self._refuse(headers_too_large(self._limits))

    def on_message_begin(self) -> None:
        if self._continuing:
            return
        super().on_message_begin()
        self._method = b""
        self._fresh = self._phase is Phase.IDLE and not self._moved  # it begins where this piece does
        self._phase = Phase.HEADER
        self._since = self._last_data
        self._header_bytes = 0
        self._moved = True

    def on_url(self, url: bytes) -> None:
        if self._continuing:
            return
        self.url += url
        if len(self.url) > self._limits.url_bytes:
            message = f"The URL is too long: at most {self._limits.url_bytes} bytes are read."
            raise Refused(Failure(FailureKind.HEADERS_TOO_LARGE, message), 414)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._continuing:
            return
        limits, headers = self._limits, self.headers
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > limits.header_bytes or len(headers) >= limits.header_count:
            raise Refused(headers_too_large(limits))
        if self._phase is not Phase.BODY:  # a trailer is counted, not kept
            headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._moved = True
        self._fresh = False
        if self._continuing:
            return
        parser = self.parser
        version = parser.get_http_version()
        self._method = parser.get_method()
        check_header(self._method, version, self.headers)
        if len(self.pipeline) >= self._limits.pipelined:
            raise Refused(Failure(FailureKind.RATE_LIMITED, "Too many requests wait on this connection."))
        self.scope["method"] = self._method.decode("ascii")
        self.scope["http_version"] = version
        self.scope.update(target(self.url))  # pyright: ignore[reportCallIssue, reportArgumentType] - of its keys
        waits = self._running is not None and not self._running.response_complete
        self.cycle = Cycle(
            scope=self.scope,
            transport=self._gathering,  # pyright: ignore[reportArgumentType] - what it uses of one
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=version == "1.1" and waits_for_100(self.headers),
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._phase = Phase.BODY
        self._since = self._last_data
        self._body_bytes = 0
        if waits:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def on_chunk_header(self) -> None:
        self._moved = True

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # only its header is: see _parse
        super().on_message_complete()
        self._phase = Phase.IDLE
        self._since = self._last_data
        self._moved = True

    # Answering

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
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
        """Answer a request that is not whole with a failure, and close.

        One whose body is read is answered by the application, which knows what it is; behind an
        answer that still runs, a request that is none is not answered at all.
        """
        if self._stopped or self.raw.is_closing():
            return
        running = self._running
        if self._phase is Phase.BODY:
            self._stopped = True
            if running is not None and self.cycle is running and running.response_started:
                running.abandon()
                self._gathering.flush()
                self.raw.close()
            else:
                self.cycle.refuse(failure)  # pyright: ignore[reportAttributeAccessIssue] - a Cycle
        elif running is not None and not running.response_complete:
            self._phase = Phase.IDLE
            self._stop()
        else:
            self._stopped = True
            self._gathering.flush()
            path = unquote(self.url.split(b"?", 1)[0].decode("latin-1")) or None
            method = self._method or (self.parser.get_method() if path else b"")
            refusal = self._refused_as(
                failure,
                method=method.decode("latin-1") or None,
                path=path,
                status=status,
                waited=self.loop.time() - self._since,
            )
            self.raw.write(refusal_bytes(refusal, self.server_state.default_headers))
            self._linger()

    # Time

    def check(self, now: float) -> None:
        """Hold the bounds on time; called for every connection, about once a second."""
        limits = self._limits
        since_checked, self._checked = now - self._checked, now
        if self._half_closed:
            self._abort_if_gone()
        if self._write_stalled(now):
            self.raw.abort()
        elif self.raw.is_closing():
            return
        elif self._phase is Phase.LINGER:
            if now - self._since > limits.linger_s:
                self.raw.close()
        elif self._phase is Phase.HEADER:
            if now - self._since > limits.header_s:
                self._refuse(too_slow(f"The header was not complete after {limits.header_s:g} s."))
        elif self._phase is Phase.BODY:
            self._check_body(now, since_checked)
        elif self._running is None or self._running.response_complete:
            bound = limits.keep_alive_s if self._answered else limits.header_s
            if now - self._since > bound:
                self.raw.close()

    def _check_body(self, now: float, since_checked: float) -> None:
        limits = self._limits
        if self.flow.read_paused:  # we are the slow side: its clocks stand still
            self._last_data = now
            self._since += since_checked
        elif now - self._last_data > limits.body_idle_s:
            self._refuse(too_slow(f"No more of the body came within {limits.body_idle_s:g} s."))
        elif now - self._since > limits.body_s + self._body_bytes / limits.body_bytes_per_s:
            self._refuse(
                too_slow(
                    f"The body came too slowly: {self._body_bytes} bytes in {now - self._since:.0f} s. "
                    f"Send at least {limits.body_bytes_per_s} bytes per second."
                )
            )

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
