"""One request on a connection and its answer, as bytes: what has come of it, what may be sent."""

import asyncio
import http
from collections.abc import Callable
from typing import Any, Protocol

from onward.core.failure import Failure
from onward.http.head import Head

Headers = list[tuple[bytes, bytes]]
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_HELD_BYTES = 64 * 1024
"""Above this much of a body that nobody read, the connection is not read."""


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}


class Disconnected(Exception):  # noqa: N818 - nobody is left to be told
    """The caller went away before the request was read."""


class Connection(Protocol):
    """What a request needs of the connection that it came on."""

    loop: asyncio.AbstractEventLoop
    write_paused: bool
    """Whether the caller reads too slowly for more to be written."""

    @property
    def date(self) -> bytes:
        """The `date` header of an answer, as a line."""
        ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None:
        """Wait while writing is paused."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def answered(self, cycle: "Cycle") -> None:
        """The answer was handed on to its end."""
        ...

    def ended(self, cycle: "Cycle") -> None:
        """Its task is over."""
        ...

    def finish(self) -> None:
        """Close, after what was written; the rest of an unfinished request is thrown away first."""
        ...


class Watcher(Protocol):
    """Who has to be told when a request is to end before its answer does."""

    def leave(self) -> None:
        """The caller went away."""
        ...

    def check(self, now: float) -> None:
        """Some time has passed; `now` is monotonic."""
        ...


class Answering(Protocol):
    """Who answers a request."""

    async def answer(self, exchange: Any, /) -> None:
        """Answer it, in a task of its own. Raises nothing; the last thing is `Cycle.over`."""
        ...

    def drop(self, exchange: Any, /) -> None:
        """It will not be asked to answer this one."""
        ...


class Cycle:
    """A request that comes in, and the answer that goes out. Its connection feeds it."""

    __slots__ = (
        "_arrived",
        "_begun",
        "_chunked",
        "_connection",
        "_expected",
        "_expects",
        "_failure",
        "_pieces",
        "_prefix",
        "_size",
        "_until_close",
        "_waiter",
        "_whole",
        "answered",
        "answering",
        "app",
        "complete",
        "disconnected",
        "head",
        "keep_alive",
        "length",
        "nudge",
        "task",
        "watches",
    )

    def __init__(
        self, app: Answering, connection: Connection, head: Head, length: int | None, body: bytes | None
    ) -> None:
        """`length`: of the body, as its header says. `body`: where all of it is here already."""
        self.app = app
        self._connection = connection
        self.head = head
        self.length = length
        self.keep_alive = head.keep_alive
        self._pieces: list[bytes] = [] if body is None else [body]
        self._size = 0
        self._whole = self._arrived = body is not None
        self._expects = head.expects
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Failure | None = None
        self.task: asyncio.Task[None] | None = None
        """Where it is answered."""
        self.watches: tuple[Watcher, ...] = ()
        self.nudge: Callable[[], None] = _do_nothing
        """Makes a stream that has begun write something, which shows whether anybody reads it."""
        self.disconnected = False
        self.answering = False
        """Whether the status was sent."""
        self.answered = False
        """Whether the last of the answer was sent."""
        self.complete = False
        """Whether the last of the answer was handed on to the connection."""
        self._begun = False
        self._prefix = b""
        """The answer's head, until the first of its body follows."""
        self._chunked = False
        self._until_close = False
        self._expected = 0

    # The request: the connection's side

    def feed(self, data: bytes) -> None:
        """A piece of the body."""
        if self.complete:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _HELD_BYTES:
            self._connection.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        """All of the body has come."""
        self._whole = True
        self._wake()

    def refuse(self, failure: Failure) -> None:
        """Answer `failure` in place of what the request asks for; what is missing of it never comes."""
        self._failure = failure
        self.keep_alive = False
        self._wake()

    def abandon(self) -> None:
        """Nobody is there any more."""
        self.disconnected = True
        self._wake()
        if not self.answered:
            for watch in self.watches:
                watch.leave()

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody when the caller goes away, which only shows while the connection is read."""
        self.watches = (*self.watches, watcher) if self.watches else (watcher,)
        self._connection.resume_reading()

    def unwatch(self, watcher: Watcher) -> None:
        """Tell it no more."""
        watches = self.watches
        alone = len(watches) == 1 and watches[0] is watcher
        self.watches = () if alone else tuple([one for one in watches if one is not watcher])

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where it is answered. To ask which loop runs costs a system call."""
        return self._connection.loop

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # The request: the reader's side

    async def read(self) -> tuple[bytes, bool]:
        """What has come of the body, and whether that was its last. Raises `Disconnected`, and `Failure`
        where the rest never comes.
        """
        while not (self.disconnected or self._failure or self._whole or self._pieces):
            if self._expects:
                self._expects = False
                self._connection.write(_CONTINUE)
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.disconnected:
            raise Disconnected
        if self._failure is not None:
            raise self._failure
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return data, self._whole

    # The answer

    def begin(self, status: int, headers: Headers) -> None:
        """The status and headers of the answer, which go out with the first of its body."""
        if self.disconnected:
            return
        if self._begun:
            raise RuntimeError("an answer begins once")
        self._begun = True
        self._expects = False
        lines = [STATUS_LINES[status], self._connection.date]
        measured = False
        for name, value in headers:
            if name == b"connection":
                self.keep_alive = self.keep_alive and value != b"close"
                continue
            if name == b"content-length":
                self._expected = int(value)
                measured = True
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            lines.append(_CLOSE)
        if not measured:
            # HTTP/1.0 knows no chunks: a body without a length ends with its connection (RFC 9112 6.1).
            self._until_close = self.head.version == "1.0"
            self._chunked = not self._until_close and self.head.method != "HEAD"
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise RuntimeError("a header of an answer holds a line break")
        self._prefix = head + b"\r\n"

    def begin_chunks(self, status: int, lines: bytes) -> None:
        """As `begin`, of an answer without a length to a caller that knows chunks. `lines` of the head are
        known to be well-formed.
        """
        if self.disconnected:
            return
        if self._begun:
            raise RuntimeError("an answer begins once")
        self._begun = self._chunked = True
        self._expects = False
        self._prefix = b"%b%b%b%btransfer-encoding: chunked\r\n\r\n" % (
            STATUS_LINES[status],
            self._connection.date,
            lines,
            b"" if self.keep_alive else _CLOSE,
        )

    def send(self, body: bytes, *, last: bool) -> None:
        """A piece of the answer's body."""
        if self.disconnected:
            return
        if not self._begun or self.complete:
            raise RuntimeError("a piece of an answer stands between its header and its end")
        if self.head.method == "HEAD":
            data, self._expected = self._prefix, 0
        elif self._chunked:
            chunk = b"%b%x\r\n%b\r\n" % (self._prefix, len(body), body) if body else self._prefix
            data = chunk + b"0\r\n\r\n" if last else chunk
        else:
            if not self._until_close:
                self._expected -= len(body)
                if self._expected < 0:
                    raise RuntimeError("an answer is longer than its content-length")
            data = self._prefix + body
        if last and self._expected:
            raise RuntimeError("an answer is shorter than its content-length")
        self._prefix = b""
        if data:
            self._connection.write(data)
        if last:
            self._end()

    def send_now(self, body: bytes) -> bool:
        """As `send`, of a piece that is not the last. False: the caller reads too slowly, it has to wait."""
        connection = self._connection
        if connection.write_paused and not self.disconnected:
            return False
        if self._chunked and not self._prefix and body and not (self.disconnected or self.complete):
            connection.write(b"%x\r\n%b\r\n" % (len(body), body))  # what `send` comes to, by fewer steps
        else:
            self.send(body, last=False)
        return True

    def send_whole(self, status: int, before: bytes, after: bytes, body: bytes) -> None:
        """The whole answer. `before` and `after` the length stand lines of the head that are known to be
        well-formed.
        """
        if self.disconnected:
            return
        if self._begun:
            raise RuntimeError("an answer begins once")
        self._begun = True
        self._expects = False
        self._connection.write(
            b"%b%b%bcontent-length: %d\r\n%b%b\r\n%b"
            % (
                STATUS_LINES[status],
                self._connection.date,
                before,
                len(body),
                after,
                b"" if self.keep_alive else _CLOSE,
                b"" if self.head.method == "HEAD" else body,
            )
        )
        self._end()

    def over(self) -> None:
        """No more comes of it: an answer that has not come to its end must not look whole."""
        if not self.complete and not self.disconnected:
            self._connection.finish()
        self._connection.ended(self)

    def _end(self) -> None:
        self.complete = True
        if not self.keep_alive:
            self._connection.finish()
        self._connection.answered(self)


def _do_nothing() -> None:
    pass
