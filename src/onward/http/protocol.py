"""HTTP/1.1 on one connection, over httptools: reading, the order of answers, and the bounds of both.

Every phase of a connection has a bound (`Limits`), held by one sweep over all connections
(`HttpProtocol.check`) rather than by a timer for each request. What is refused here is answered in the
shape of the API's errors. A request is a `Cycle`: made when its header has come, fed with its body,
answered in a task of its own.
"""

import asyncio
from collections import deque
from typing import Final
from urllib.parse import unquote

import httptools

from onward.core.failure import Failure, FailureKind
from onward.http.cycle import Cycle
from onward.http.flow import Flow, Phase, limit_unsent
from onward.http.head import Head, KnownHead, learn
from onward.http.header import check_header, framing, not_http
from onward.http.refusal import Refused, headers_too_large, refusal_bytes, too_slow
from onward.http.shared import Shared

_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBED_S = (0.02, 0.1)  # then with every sweep
_IDLE, _HEADER, _BODY, _LINGER = Phase
_NOBODYS: Final = httptools.HttpRequestParser(object())  # of a connection that is lost


class HttpProtocol(Flow):
    """One connection."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self._shared = shared
        self._limits = shared.limits
        self._parser: httptools.HttpRequestParser = _parser(self)
        self._known: KnownHead | None = None
        self._method = self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._phase = Phase.IDLE
        self._since = self._last_data = self._checked = self.loop.time()
        self._served = False
        self._reading: Cycle | None = None
        """The request whose body comes in, or came last."""
        self._running: Cycle | None = None
        """The one that is being answered."""
        self._waiting: deque[Cycle] = deque()
        """Those behind it."""
        self._stopped = False
        self._half_closed = False
        self._continuing = False
        self._body_bytes = self._header_bytes = 0
        self._unparsed = 0
        self._moved = False
        self._fresh = False
        self._alone = False
        self._lingered = 0

    # The connection

    @property
    def is_new(self) -> bool:
        """See `Caller`."""
        return not self._served

    @property
    def date(self) -> bytes:
        """See `Connection`."""
        return self._shared.date

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connections = self._shared.connections
        connections.add(self)
        limit_unsent(self._transport, self._limits.unsent_bytes)
        if len(connections) > 2 * self._limits.connections:
            self.abort()
        elif len(connections) > self._limits.connections:
            self._refuse(Failure(FailureKind.ENGINE_FULL, "Too many open connections. Try again soon."))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._shared.connections.discard(self)
        for cycle in self._waiting:
            cycle.app.drop(cycle)
        self._waiting.clear()
        running, reading, self._reading = self._running, self._reading, None
        if running is not None:
            running.abandon()
        if reading is not None and reading is not running and not reading.complete:
            reading.abandon()
        self.resume_writing()
        self._parser = _NOBODYS  # it holds us, and we it

    def eof_received(self) -> bool:
        """The caller sends no more: it closed one half of the connection, or all of it.

        Both look the same until something is written, which somebody who is gone refuses: before an answer
        an interim one (RFC 9110 15.2; HTTP/1.0 has none), within one whatever it finds to write.
        """
        running = self._running
        if self._half_closed:
            return True
        if self._phase is not _IDLE or running is None:
            return False
        if running.answering:
            running.nudge()
        elif running.head.version == "1.0":
            return False
        else:
            self._transport.write(_PROBE)
        self._half_closed = True
        for pause in _PROBED_S:
            self.loop.call_later(pause, self.abort_if_gone)
        self.stop()
        return True

    def finish(self) -> None:
        """Close, after what was written; the rest of an unfinished request is thrown away first."""
        if self._transport.is_closing() or self._phase is _LINGER:
            return
        if not self._half_closed and (self._stopped or self._phase is not _IDLE):
            self._linger()
        else:
            self._transport.close()

    def _linger(self) -> None:
        # Closing with unread input resets the connection, and the answer may be lost with it.
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._phase = Phase.LINGER
        self._since = self.loop.time()
        self._transport.write_eof()
        self.resume_reading()

    # Reading

    def data_received(self, data: bytes) -> None:
        known = self._known
        if known is not None and self._running is None and self._phase is _IDLE and not self._stopped:
            body = known.body(data)
            if body is not None:
                self._start(self._shared.app.open(self, known.head, len(body), body))
                return
        if self._phase is _LINGER:
            self._lingered += len(data)
            if self._lingered > self._limits.linger_bytes:
                self._transport.close()
            return
        if self._stopped:
            return
        self._last_data = self.loop.time()
        self._moved = self._fresh = self._alone = False
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            refused = error.__context__
            if not isinstance(refused, Refused):
                refused, line = not_http(error, data)
                self._method, self._url = line or (self._method, self._url)
            self._refuse(refused.failure, refused.status)
        else:
            self._bound_unparsed(len(data))
            reading = self._reading
            if self._alone and self._phase is _IDLE and reading is not None and reading.length is not None:
                self._known = learn(data, reading.length, reading.head)

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser leaves HTTP behind such a header. We do not (RFC 9110 7.8).
                data = data[upgrade.args[0] :]
                self._continue_behind_header()
            else:
                return

    def _continue_behind_header(self) -> None:
        self._parser = _parser(self)
        self._alone = False
        self._continuing = True
        self._parser.feed_data(framing(self._fields))
        self._continuing = False

    def _bound_unparsed(self, size: int) -> None:
        # The parser keeps half a header field, a trailer or a chunk's extensions; bound what it may hold.
        if self._phase is _IDLE or (self._moved and not self._fresh):
            self._unparsed = 0
            return
        self._unparsed += size
        if self._unparsed > self._limits.header_bytes + self._limits.url_bytes:
            self._refuse(headers_too_large(self._limits))

    def on_message_begin(self) -> None:
        if self._continuing:
            return
        self._method = self._url = b""
        self._fields = []
        # Whether it begins where this piece does.
        self._fresh = self._alone = self._phase is _IDLE and not self._moved
        self._phase = _HEADER
        self._since = self._last_data
        self._header_bytes = 0
        self._moved = True

    def on_url(self, url: bytes) -> None:
        if self._continuing:
            return
        self._url += url
        if len(self._url) > self._limits.url_bytes:
            message = f"The URL is too long: at most {self._limits.url_bytes} bytes are read."
            raise Refused(Failure(FailureKind.HEADERS_TOO_LARGE, message), 414)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._continuing:
            return
        limits, fields = self._limits, self._fields
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > limits.header_bytes or len(fields) >= limits.header_count:
            raise Refused(headers_too_large(limits))
        if self._phase is not _BODY:  # a trailer is counted, not kept
            fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._moved = True
        self._fresh = False
        if self._continuing:
            return
        parser = self._parser
        version = parser.get_http_version()
        self._method = parser.get_method()
        check_header(self._method, version, self._fields)
        if len(self._waiting) >= self._limits.pipelined:
            raise Refused(Failure(FailureKind.RATE_LIMITED, "Too many requests wait on this connection."))
        method = self._method.decode("ascii")
        head = Head(method, self._url, version, self._fields, keep_alive=parser.should_keep_alive())
        length = head.fields.pop(b"content-length", None)
        cycle = self._shared.app.open(self, head, None if length is None else int(length), None)
        self._reading = cycle
        self._phase = _BODY
        self._since = self._last_data
        self._body_bytes = 0
        if self._running is None:
            self._start(cycle)
        else:
            self.pause_reading()
            self._waiting.append(cycle)

    def on_chunk_header(self) -> None:
        self._moved = True

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._body_bytes += len(body)
        assert self._reading is not None  # noqa: S101 - its header came
        self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # only its header is: see _parse
        if self._reading is not None:
            self._reading.feed_end()
        self._phase = _IDLE
        self._since = self._last_data
        self._moved = True

    # Answering

    def _start(self, cycle: Cycle) -> None:
        self._running = cycle
        self._served = True
        self._shared.running.add(cycle)
        cycle.task = self.loop.create_task(cycle.app.answer(cycle))

    def ended(self, cycle: Cycle) -> None:
        """The task of a request is over."""
        self._shared.running.discard(cycle)
        cycle.task = None
        if self._running is cycle and cycle.disconnected:
            self._running = None

    def answered(self, cycle: Cycle) -> None:
        """An answer was handed on to its end: now the next."""
        self._running = None
        if self._transport.is_closing() or self._phase is _LINGER:
            return
        if self._phase is _BODY and cycle is self._reading:
            self.finish()
            return
        if self.read_paused and not self._stopped:
            self.resume_reading()
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self._phase is _IDLE:
            self._reading = None
            self._since = self.loop.time()

    def stop(self) -> None:
        """Read no more requests; the connection ends with the last one that was read whole."""
        self._stopped = True
        last = self._waiting[-1] if self._waiting else self._running
        if last is None:
            self.finish()
        else:
            last.keep_alive = False

    def shutdown(self) -> None:
        """The server ends: close, after the answer that is being made."""
        last = self._waiting[-1] if self._waiting else self._running
        if last is None:
            self._transport.close()
        else:
            last.keep_alive = False

    def _refuse(self, failure: Failure, status: int | None = None) -> None:
        """Answer a request that is not whole with a failure, and close.

        One whose body is read is answered by the application, which knows what it is; behind an
        answer that still runs, a request that is none is not answered at all.
        """
        if self._stopped or self._transport.is_closing():
            return
        running, reading = self._running, self._reading
        if self._phase is _BODY and reading is not None:
            self._stopped = True
            if running is not None and reading is running and running.answering:
                running.abandon()
                self._transport.close()
            else:
                reading.refuse(failure)
        elif running is not None:
            self._phase = Phase.IDLE
            self.stop()
        else:
            self._stopped = True
            path = unquote(self._url.split(b"?", 1)[0].decode("latin-1")) or None
            method = self._method or (self._parser.get_method() if path else b"")
            refusal = self._shared.refuse(
                failure,
                method=method.decode("latin-1") or None,
                path=path,
                status=status,
                waited=self.loop.time() - self._since,
            )
            self._transport.write(refusal_bytes(refusal, self._shared.date))
            self._linger()

    # Time

    def check(self, now: float) -> None:
        """Hold the bounds on time; called for every connection, about once a second."""
        limits = self._limits
        since_checked, self._checked = now - self._checked, now
        running = self._running
        if running is not None:
            for watch in running.watches:
                watch.check(now)
        if self._half_closed:
            self.abort_if_gone()
        if self.stalled(now, limits.write_stall_s, answering=running is not None):
            self._transport.abort()
        elif self._transport.is_closing():
            return
        elif self._phase is _LINGER:
            if now - self._since > limits.linger_s:
                self._transport.close()
        elif self._phase is _HEADER:
            if now - self._since > limits.header_s:
                self._refuse(too_slow(f"The header was not complete after {limits.header_s:g} s."))
        elif self._phase is _BODY:
            self._check_body(now, since_checked)
        elif running is None:
            bound = limits.keep_alive_s if self._served else limits.header_s
            if now - self._since > bound:
                self._transport.close()

    def _check_body(self, now: float, since_checked: float) -> None:
        limits = self._limits
        if self.read_paused:  # we are the slow side: its clocks stand still
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


def _parser(protocol: HttpProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # requests may stand behind such a one
    return parser
