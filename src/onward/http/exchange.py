"""One request and its answer, as the endpoints see them."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from onward.admission.keys import Key, Tenant
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import Dialect, FailureShape, HeaderValue, Stream, Surface
from onward.http.cycle import Answering, Connection, Cycle, Disconnected, Headers
from onward.http.head import Head
from onward.http.limits import Limits
from onward.http.record import Record
from onward.wire.errors import EncodedFailure, encode_failure, failure_event

__all__ = ["JSON", "Disconnected", "Exchange", "Headers", "HeldBodies"]

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_PLAIN_KEY = re.compile(rb"[!-~](?:[ -~]{0,253}[!-~])?")
JSON: Final = (b"content-type", b"application/json")
_JSON_LINE: Final = b"content-type: application/json\r\n"


class HeldBodies:
    """Bytes of all bodies that are being read, so that many large ones cannot fill the memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    def add(self, size: int) -> None:
        """Raises ENGINE_FULL where there is no room."""
        if self._held + size > self._limit:
            raise Failure(
                FailureKind.ENGINE_FULL, "The server is reading too many large bodies. Try again soon."
            )
        self._held += size

    def remove(self, size: int) -> None:
        self._held -= size


class Labels:
    """What a header calls its request. Requests of one header share it: it is not to be changed."""

    __slots__ = ("label", "values")

    def __init__(self, head: Head, header_values: Mapping[HeaderValue, bytes]) -> None:
        """`header_values`: what headers of dialects hold that is the same for all requests."""
        given = head.fields.get(b"x-request-id")
        self.label = given.decode() if given and _PLAIN_ID.fullmatch(given) else None
        """The caller's own `x-request-id`, if it is plain."""
        self.values = dict(header_values)
        idempotency = head.fields.get(b"idempotency-key")
        if idempotency and _PLAIN_KEY.fullmatch(idempotency):
            self.values[HeaderValue.IDEMPOTENCY_KEY] = idempotency


class Exchange(Cycle):
    """A request as the endpoints see it.

    `request_id` is ours; `shown_id` is what `x-request-id` answers: the caller's own if it sent a
    plain one.
    """

    __slots__ = (
        "_unread",
        "dialect",
        "header_values",
        "headers",
        "key",
        "method",
        "path",
        "record",
        "request_id",
        "shown_id",
        "table",
        "tail",
        "tenant",
    )

    def __init__(  # noqa: PLR0917 - keywords take a dict, and this is made for every request
        self,
        app: Answering,
        connection: Connection,
        head: Head,
        length: int | None,
        body: bytes | None,
        labels: Labels,
        dialect: Dialect,
        request_id: str,
        started: float,
    ) -> None:
        Cycle.__init__(self, app, connection, head, length, body)
        self.dialect = dialect
        self.table: Surface | None = None
        """The dialect's surface that answers, once it is known."""
        self.method = head.method
        self.path = head.path
        self.headers: Mapping[bytes, bytes] = head.fields
        self.request_id = request_id
        self.shown_id = labels.label or request_id
        self.record = Record(
            request_id=request_id, label=labels.label, method=head.method, path=head.path, started=started
        )
        self.header_values = labels.values.copy()
        """What the dialect's own headers can hold, beside the request's ID."""
        self.key: Key | None = None
        self.tenant: Tenant | None = None
        """Who pays for the key."""
        self.tail = ""
        """What the route's last part stands for: a model's ID."""
        self._unread = head.method not in ("GET", "HEAD")

    def header(self, name: bytes) -> str | None:
        """The value of a header field, None where it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read_body(self, limits: Limits, held: HeldBodies) -> bytes:
        """The whole body. Raises BODY_TOO_LARGE, ENGINE_FULL, REQUEST_TIMEOUT, INVALID_REQUEST where it
        is broken off by what is no HTTP, and `Disconnected`.
        """
        limit = limits.body_bytes
        if self.length is not None and self.length > limit:
            raise _too_large(limit)
        body = self.take_body(limit)
        if body is not None:
            return body
        body, whole = await self.read()
        if not whole:
            body = await self._read_more(body, limit, held)
        if len(body) > limit:
            raise _too_large(limit)
        self._unread = False
        return body

    def take_body(self, limit: int) -> bytes | None:
        """The whole body, where it came with its header and has at most `limit` bytes; None: `read_body`
        gives it.
        """
        if not self._arrived or len(self._pieces[0]) > limit:
            return None
        self._arrived = self._unread = False
        return self._pieces.pop()

    async def _read_more(self, first: bytes, limit: int, held: HeldBodies) -> bytes:
        pieces = [first]
        counted = 0
        size = len(first)
        whole = False
        try:
            while not whole:
                held.add(size - counted)
                counted = size
                piece, whole = await self.read()
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
        finally:
            held.remove(counted)
        return b"".join(pieces)

    async def respond(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        """The whole answer; JSON unless `headers` say otherwise."""
        if (
            headers is None
            and not self._unread
            and _is_plain(self.dialect)
            and HeaderValue.IDEMPOTENCY_KEY not in self.header_values
            and self.failures is None
        ):
            self.answering = self.answered = True
            self.record.status = status
            if self._connection.write_paused:
                await self._connection.drain()
            self.send_whole(status, _JSON_LINE, b"x-request-id: %b\r\n" % self.shown_id.encode(), body)
            return
        await self.start(status, [*(headers or [JSON]), (b"content-length", b"%d" % len(body))])
        await self.write(body, last=True)

    async def write(self, body: bytes, *, last: bool) -> None:
        """A piece of the answer's body, after `start`. Waits while the caller reads too slowly."""
        self.answered = last
        if self._connection.write_paused and not self.disconnected:
            await self._connection.drain()
        self.send(body, last=last)

    async def start(self, status: int, headers: Headers) -> None:
        """The status and headers of an answer whose body follows."""
        self.start_now(status, headers)

    def start_stream(self, headers: Headers, lines: bytes) -> None:
        """As `start`, of a streamed answer. `lines`: the same headers as they are sent."""
        if (
            not self._unread
            and _is_plain(self.dialect)
            and HeaderValue.IDEMPOTENCY_KEY not in self.header_values
            and self.failures is None
            and self.head.version != "1.0"
        ):
            self.answering = True
            self.record.status = 200
            self.begin_chunks(200, b"%bx-request-id: %b\r\n" % (lines, self.shown_id.encode()))
        else:
            self.start_now(200, list(headers))

    def start_now(self, status: int, headers: Headers) -> None:
        """As `start`, which never waits."""
        self.answering = True
        self.record.status = status
        if self._unread:
            headers.append((b"connection", b"close"))
        headers += dialect_headers(self.dialect, self.header_values, self.shown_id, failed=status >= 400)
        if self.failures is not None:
            headers.append((self.failures.header.encode(), self.shown_id.encode()))
        self.begin(status, headers)

    async def fail(self, failure: Failure, headers: Headers | None = None) -> None:
        """A failure as the dialect shows it."""
        self.record.failure = failure.kind
        encoded = self.failure_answer(failure)
        await self.respond(encoded.status, encoded.body, [*encoded.headers, *(headers or [])])

    def failure_answer(self, failure: Failure) -> EncodedFailure:
        """A failure as an answer of its own."""
        return encode_failure(self.dialect, failure, self.failures, self.shown_id)

    def failure_event(self, failure: Failure) -> bytes:
        """A failure as the event that ends a stream."""
        return failure_event(self.dialect, failure, self.failures, self.shown_id)

    @property
    def failures(self) -> FailureShape | None:
        """How the surface writes failures, where that is not the dialect's way."""
        return self.table.failures if self.table is not None else None

    @property
    def framing(self) -> Stream:
        """How events are framed."""
        own = self.table.stream if self.table is not None else None
        return own or self.dialect.stream


def dialect_headers(
    dialect: Dialect, values: Mapping[HeaderValue, bytes], shown_id: str, *, failed: bool
) -> Headers:
    """`x-request-id`, and the headers that a dialect adds, as far as there is something to say in them."""
    shown = shown_id.encode()
    headers = [(b"x-request-id", shown)]
    for name, kind, on_failures in _own_headers(dialect):
        value = shown if kind is HeaderValue.REQUEST_ID else values.get(kind)
        if value is not None and (on_failures or not failed):
            headers.append((name, value))
    return headers


@cache
def _own_headers(dialect: Dialect) -> list[tuple[bytes, HeaderValue, bool]]:
    """The headers of a dialect besides `x-request-id`: name, content, whether failures have it."""
    named = [(one.name.lower().encode(), one.value, one.on_failures) for one in dialect.headers]
    return [one for one in named if one[0] != b"x-request-id"]


@cache
def _is_plain(dialect: Dialect) -> bool:
    """Whether its answers to requests without a name have no header of its own."""
    return all(kind is HeaderValue.IDEMPOTENCY_KEY for _, kind, _ in _own_headers(dialect))


def shutting_down() -> Failure:
    """The failure of what still runs when the server ends at once."""
    return Failure(FailureKind.ENGINE_FAILED, "The server is shutting down. Send the request again.")


def went_wrong(exchange: Exchange) -> Failure:
    """The failure of what is a fault of ours. The log has the reason."""
    return Failure(
        FailureKind.INTERNAL,
        f"Something is wrong on our side. The log knows more under request {exchange.shown_id}.",
    )


def _too_large(limit: int) -> Failure:
    return Failure(
        FailureKind.BODY_TOO_LARGE, f"The request body is larger than {limit} bytes. Send a smaller one."
    )
