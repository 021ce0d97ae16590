"""What a request's header says, and headers that are known from the request before."""

import re
from typing import Any, Final
from urllib.parse import unquote

import httptools

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})\r\n", re.IGNORECASE)
_NAME: Final = b"idempotency-key"
_LONGEST_KNOWN: Final = 4096
"""Bytes of a header that is remembered."""


class Head:
    """What a header says, apart from the length of the body. Requests share it: it is not to be changed."""

    __slots__ = ("checked", "expects", "fields", "keep_alive", "known", "method", "path", "query", "version")

    def __init__(
        self, method: str, url: bytes, version: str, fields: list[tuple[bytes, bytes]], *, keep_alive: bool
    ) -> None:
        """`fields`: names in lower case. `keep_alive`: whether the caller leaves the connection open."""
        target: Any = httptools.parse_url(url)  # its stubs know of no None
        path = target.path.decode("ascii")
        self.method = method
        self.path = unquote(path) if "%" in path else path
        self.query: bytes = target.query or b""
        self.version = version
        """``1.0`` or ``1.1``."""
        self.fields = dict(fields)
        """By name; of repeated ones the last. Two different names for a request are none: `b""`."""
        if len(self.fields) != len(fields) and len({value for name, value in fields if name == _NAME}) > 1:
            self.fields[_NAME] = b""
        self.keep_alive = keep_alive and version == "1.1"
        self.expects = version == "1.1" and _waits_for_100(fields)
        """Whether the caller waits to be asked for its body."""
        self.checked: Any = None
        """By which rules a body with this header was found to be taken."""
        self.known: Any = None
        """What the application has found out about requests of this header."""


class KnownHead:
    """A header as bytes, around the digits of the length of the body.

    Callers send the same header with each request of a connection, but for that number. Such a request is
    not parsed again: bytes that are the same mean the same.
    """

    __slots__ = ("_after", "_before", "head")

    def __init__(self, before: bytes, after: bytes, head: Head) -> None:
        self._before = before
        self._after = after
        self.head = head

    def body(self, data: bytes) -> bytes | None:
        """The body of the request that `data` is; None: it is not one whole request with this header."""
        if not data.startswith(self._before):
            return None
        start = len(self._before)
        end = data.find(b"\r", start, start + 10)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._after, end):
            return None
        body = data[end + len(self._after) :]
        return body if len(body) == int(digits) else None


def learn(data: bytes, length: int, head: Head) -> KnownHead | None:
    """The header of the one request that `data` is, whose body has `length` bytes; None: not worth it."""
    raw = data[: len(data) - length]
    if len(raw) > _LONGEST_KNOWN or head.expects or raw.find(b"\r\n\r\n") != len(raw) - 4:
        return None
    place = _LENGTH.search(raw)
    if place is None or int(place[1]) != length or raw.lower().count(b"content-length") != 1:
        return None
    return KnownHead(raw[: place.start(1)], raw[place.end(1) :], head)


def _waits_for_100(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the caller wants to be asked for its body (RFC 9110 10.1.1)."""
    return b"100-continue" in [value.lower() for name, value in headers if name == b"expect"]
