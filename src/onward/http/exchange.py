"""One request and its answer, over plain ASGI."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from onward.admission.keys import Key, Tenant
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import Dialect, FailureShape, HeaderValue, Stream, Surface
from onward.http.cycle import REFUSED
from onward.http.limits import Limits
from onward.http.record import Record
from onward.wire.errors import EncodedFailure, encode_failure, failure_event

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_PLAIN_KEY = re.compile(rb"[!-~](?:[ -~]{0,253}[!-~])?")
_NOTHING: Mapping[HeaderValue, bytes] = {}
Headers = list[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")


class Disconnected(Exception):  # noqa: N818 - nobody is left to be told
    """The caller went away before the request was read."""


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


class Exchange:
    """A request as the endpoints see it.

    `request_id` is ours; `shown_id` is what `x-request-id` answers: the caller's own if it sent a
    plain one.
    """

    def __init__(
        self,
        scope: Any,
        receive: Any,
        send: Any,
        *,
        dialect: Dialect,
        request_id: str,
        started: float,
        header_values: Mapping[HeaderValue, bytes] = _NOTHING,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.dialect = dialect
        self.table: Surface | None = None
        """The dialect's surface that answers, once it is known."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id
        given = self.headers.get(b"x-request-id")
        label = given.decode() if given and _PLAIN_ID.fullmatch(given) else None
        self.shown_id = label or request_id
        self.record = Record(
            request_id=request_id, label=label, method=self.method, path=self.path, started=started
        )
        self.header_values: dict[HeaderValue, bytes] = {
            **header_values,
            HeaderValue.REQUEST_ID: self.shown_id.encode(),
        }
        """What the dialect's own headers can hold."""
        idempotency = self.headers.get(b"idempotency-key")
        if idempotency and _PLAIN_KEY.fullmatch(idempotency):
            self.header_values[HeaderValue.IDEMPOTENCY_KEY] = idempotency
        self.key: Key | None = None
        self.tenant: Tenant | None = None
        """Who pays for the key."""
        self.tail = ""
        """What the route's last part stands for: a model's ID."""
        self.closes = False
        """Whether the connection ends with this answer."""
        self.answering = False
        """Whether the status was sent."""
        self.answered = False
        """Whether the last of the answer was sent."""
        self.nudge: Callable[[], None] = _do_nothing
        """Makes a stream that has begun write something, which shows whether anybody reads it."""
        self._unread = self.method not in ("GET", "HEAD")

    def header(self, name: bytes) -> str | None:
        """The value of a header field, None where it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read_body(self, limits: Limits, held: HeldBodies) -> bytes:
        """The whole body. Raises BODY_TOO_LARGE, ENGINE_FULL, REQUEST_TIMEOUT, INVALID_REQUEST where it
        is broken off by what is no HTTP, and `Disconnected`.
        """
        limit = limits.body_bytes
        if int(self.headers.get(b"content-length", b"0") or b"0") > limit:
            raise _too_large(limit)
        message = await self._receive()
        body: bytes = message["body"]
        if message["more_body"]:
            body = await self._read_more(body, limit, held)
        if len(body) > limit:
            raise _too_large(limit)
        self._unread = False
        return body

    async def _receive(self) -> Any:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        if message["type"] == REFUSED:
            raise message["failure"]
        return message

    async def _read_more(self, first: bytes, limit: int, held: HeldBodies) -> bytes:
        pieces = [first]
        counted = 0
        size = len(first)
        try:
            more = True
            while more:
                held.add(size - counted)
                counted = size
                message = await self._receive()
                pieces.append(message["body"])
                size += len(message["body"])
                if size > limit:
                    raise _too_large(limit)
                more = message["more_body"]
        finally:
            held.remove(counted)
        return b"".join(pieces)

    async def respond(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        """The whole answer; JSON unless `headers` say otherwise."""
        await self.start(status, [*(headers or [JSON]), (b"content-length", b"%d" % len(body))])
        await self.write(body, last=True)

    async def write(self, body: bytes, *, last: bool) -> None:
        """A piece of the answer's body, after `start`. Waits while the caller reads too slowly."""
        self.answered = last
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})

    async def start(self, status: int, headers: Headers) -> None:
        """The status and headers of an answer whose body follows."""
        self.answering = True
        self.record.status = status
        if self._unread or self.closes:
            headers.append((b"connection", b"close"))
        headers += dialect_headers(self.dialect, self.header_values, failed=status >= 400)
        if self.failures is not None:
            headers.append((self.failures.header.encode(), self.shown_id.encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

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


def dialect_headers(dialect: Dialect, values: Mapping[HeaderValue, bytes], *, failed: bool) -> Headers:
    """`x-request-id`, and the headers that a dialect adds, as far as there is something to say in them."""
    headers = [(b"x-request-id", values[HeaderValue.REQUEST_ID])]
    for name, kind, on_failures in _own_headers(dialect):
        value = values.get(kind)
        if value is not None and (on_failures or not failed):
            headers.append((name, value))
    return headers


@cache
def _own_headers(dialect: Dialect) -> list[tuple[bytes, HeaderValue, bool]]:
    """The headers of a dialect besides `x-request-id`: name, content, whether failures have it."""
    named = [(one.name.lower().encode(), one.value, one.on_failures) for one in dialect.headers]
    return [one for one in named if one[0] != b"x-request-id"]


def _do_nothing() -> None:
    pass


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
