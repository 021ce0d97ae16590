"""One HTTP/1.1 connection to a provider: a request goes out in one piece, its answer comes in."""

import asyncio
import logging
import select
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

from onward.core.failure import Failure
from onward.providers.answer import HttpAnswer
from onward.providers.bounds import Bounds
from onward.providers.failures import broken, too_slow

logger = logging.getLogger("onward")
_JOINED_BYTES = 64 * 1024
_KEEP_MOST_S = 60.0
_NOBODYS: Final = httptools.HttpResponseParser(object())
"""The parser of a connection that is lost."""


class Owner(Protocol):
    """The pool that a connection belongs to."""

    name: str
    bounds: Bounds

    def release(self, connection: "Connection", keep_s: float) -> None:
        """It is free for another request, and may be kept unused for `keep_s` seconds."""
        ...

    def lost(self, connection: "Connection") -> None:
        """It is closed."""
        ...


class _Refused(Exception):  # noqa: N818 - what an answer is, no fault of ours
    """Raised in a callback of the parser: an answer that we do not take, and why."""


class Connection(asyncio.Protocol):
    """A connection, and at most one answer that comes in on it.

    The parser's callbacks for headers and pieces of the body are methods of a dict and a list: the
    hot path runs no Python for them. So bounds are held on the bytes that were fed, after the fact,
    which is exact to one read of the loop (256 KiB).
    """

    __slots__ = (
        "_answer",
        "_buffered",
        "_closed",
        "_complete",
        "_dirty",
        "_interim",
        "_limit",
        "_loop",
        "_moved",
        "_owner",
        "_parser",
        "_paused",
        "_pieces",
        "_poll",
        "_raw",
        "_since",
        "_transport",
        "_unheard_limit",
        "_unheard_since",
        "_unparsed",
        "_until_close",
        "idle_until",
        "on_body",
        "on_header",
    )

    _transport: asyncio.Transport
    """From `connection_made` on."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._raw: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self.on_header = self._raw.__setitem__
        self.on_body = self._pieces.append
        self._parser: httptools.HttpResponseParser = httptools.HttpResponseParser(self)
        self._answer: HttpAnswer | None = None
        self._poll: select.poll | None = None
        self._closed = False
        self.idle_until = 0.0
        self._since = self._unheard_since = 0.0
        self._limit = self._unheard_limit = 0.0
        self._moved = self._paused = self._complete = self._dirty = self._interim = self._until_close = False
        self._buffered = self._unparsed = 0

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._answer is not None:
            self._fail(broken, f"the connection was lost ({exc!r})")
        self._parser = _NOBODYS  # it holds us, and we it
        self._owner.lost(self)

    def eof_received(self) -> None:
        """The provider sends no more. The transport closes itself behind this."""
        self._closed = True
        answer = self._answer
        if answer is not None and self._until_close:
            self._answer = None
            answer.end(self._pieces.copy())
        else:
            self._fail(broken, "it ended before its end")

    def abort(self) -> None:
        """Close it at once. An answer that comes in on it has been told by whoever does this."""
        self._closed = True
        self._answer = None
        self._transport.abort()

    def give_up(self) -> None:
        """Close it at once, and fail the answer that comes in on it."""
        self._fail(broken, "given up")
        self.abort()

    @property
    def usable(self) -> bool:
        """Whether a request can be written on it, as far as the loop knows."""
        return not self._closed and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """Of an unused one: whether the provider has closed it, may soon, or sent what nobody asked for.

        Asks the system too: the end may be there and not have come through the loop yet.
        """
        if self._closed or self._transport.is_closing() or self._loop.time() >= self.idle_until:
            return True
        return self._poll is not None and bool(self._poll.poll(0))

    def keep(self, seconds: float) -> None:
        """It is unused from now on, and good for so long."""
        self.idle_until = self._loop.time() + seconds

    # The request

    def begin(self, head: bytes, body: bytes) -> HttpAnswer | None:
        """Send a request. None: it is closed, and nothing was written."""
        if self._closed or self._transport.is_closing():
            return None
        self._buffered = self._unparsed = 0
        self._until_close = False
        self._moved = False
        self._since = self._unheard_since = self._loop.time()
        self._limit = self._unheard_limit = self._owner.bounds.first_byte_s
        answer = self._answer = HttpAnswer(self, self._pieces, self._loop.create_future())
        if len(body) <= _JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return answer

    # The answer

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.abort()  # nobody asked for anything
            return
        if not answer.status:
            self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._complete:
                self._dirty = True  # what stands behind the answer
            else:
                self._fail(broken, _reason(error))
                return
        if self._complete:
            self._finish(answer)
        elif answer.status and self._pieces:
            self._moved = True
            self._unparsed = 0
            answer.wake()
            if self._pieces:
                answer.held = True
                self._buffered += len(data)
                if self._buffered > self._owner.bounds.buffer_bytes and not self._paused:
                    self._paused = True
                    self._transport.pause_reading()
        else:
            if answer.status:
                self._unparsed += len(data)
            if self._unparsed > self._owner.bounds.header_bytes:
                self._fail(broken, "its header, or what stands between pieces of its body, is too long")

    def taken(self) -> None:
        """All that was held was read."""
        self._buffered = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def on_message_begin(self) -> None:
        if self._complete:
            raise _Refused("more bytes stand behind the answer")

    def on_headers_complete(self) -> None:
        answer = self._answer
        if self._complete or answer is None:
            return
        raw = self._raw
        bounds = self._owner.bounds
        if len(raw) > bounds.header_count:
            raise _Refused("its header has too many fields")
        if self._unparsed > bounds.header_bytes and _size(raw) > bounds.header_bytes:
            raise _Refused("its header is too long")
        status = self._parser.get_status_code()
        if not 200 <= status < 600:
            if status // 100 != 1 or status == 101:
                raise _Refused(f"its status is {status}")
            self._interim = True
            return
        headers = {name.lower(): value for name, value in raw.items()}
        raw.clear()
        coding = headers.get(b"transfer-encoding")
        if coding is None:
            self._until_close = b"content-length" not in headers
        elif coding.lower() != b"chunked":
            raise _Refused("its transfer encoding is not chunked")
        answer.status = status
        answer.headers = headers
        self._unparsed = 0
        if not answer.headed.done():
            answer.headed.set_result(None)
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.lower() != b"identity":
            raise _Refused("its body is compressed, which was not asked for")

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self._raw.clear()
        elif self._answer is not None:
            self._complete = True
            self._dirty = not self._parser.should_keep_alive()  # which the parser forgets behind it

    def _finish(self, answer: HttpAnswer) -> None:
        self._complete = False
        self._answer = None
        pieces = self._pieces
        answer.end(pieces.copy())
        pieces.clear()
        self._raw.clear()  # of trailers
        transport = self._transport
        if self._dirty or self._paused or transport.get_write_buffer_size() or transport.is_closing():
            self.abort()
            return
        keep = answer.headers.get(b"keep-alive")
        bounds = self._owner.bounds
        self._owner.release(self, bounds.keep_s if keep is None else _keep_s(keep, bounds.keep_s))

    def _fail(self, failure: Callable[[], Failure], why: str) -> None:
        answer = self._answer
        if answer is None:
            return
        logger.info("provider=%s: %s", self._owner.name, why)
        answer.fail(failure)
        self.abort()

    # Time

    def check(self, now: float) -> None:
        """One look of the sweep: close what was silent, or unused, for too long."""
        answer = self._answer
        if answer is None:
            if now >= self.idle_until > 0:
                self.abort()
            return
        if self._paused or self._pieces:  # that nobody has read them yet is not the provider's fault
            self._since = self._unheard_since = now
        elif self._moved:
            self._moved = False
            self._since = now
            if answer.heard is None or answer.heard():
                bounds = self._owner.bounds
                self._limit = bounds.idle_s
                self._unheard_since, self._unheard_limit = now, bounds.unheard_s
        if now - self._since > self._limit:
            self._fail(too_slow, f"silent for {self._limit:g} s")
        elif now - self._unheard_since > self._unheard_limit:
            self._fail(too_slow, f"nothing but comments for {self._unheard_limit:g} s")


def _reason(error: httptools.HttpParserError) -> str:
    refused = error.__context__
    return str(refused) if isinstance(refused, _Refused) else f"not HTTP ({error})"


def _size(headers: dict[bytes, bytes]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def _keep_s(value: bytes, usual: float) -> float:
    """What a header such as ``timeout=5, max=100`` allows, less a margin for the way there."""
    for part in value.split(b","):
        name, _, number = part.partition(b"=")
        if name.strip().lower() == b"timeout" and number.strip().isdigit():
            term = int(number[:9])
            return min(max(term - 1.0, term / 2), _KEEP_MOST_S)
    return usual
