"""Refusing a request before it is whole: what is raised, who is asked, what is written."""

from collections.abc import Iterable
from typing import Protocol

from onward.core.failure import Failure, FailureKind
from onward.http.cycle import STATUS_LINES
from onward.http.limits import Limits

Headers = Iterable[tuple[bytes, bytes]]
Refusal = tuple[int, Headers, bytes]
"""Status, headers and body of an answer that no endpoint makes."""


class Refused(Exception):  # noqa: N818 - raised inside a parser callback and caught around the parser
    """The request being read is not taken. `status` stands in place of the failure's own."""

    def __init__(self, failure: Failure, status: int | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.status = status


class Refuse(Protocol):
    """Logs and counts a refused request, and says what it is answered.

    `method` and `path` are None where they are not known; `status` stands in place of the failure's
    own; `waited` is the request's age in seconds.
    """

    def __call__(
        self, failure: Failure, *, method: str | None, path: str | None, status: int | None, waited: float
    ) -> Refusal: ...


def malformed(message: str, status: int | None = None) -> Refused:
    """The refusal of what is no request."""
    return Refused(Failure(FailureKind.INVALID_REQUEST, message), status)


def headers_too_large(limits: Limits) -> Failure:
    """The failure of a header, or a trailer, over its bounds."""
    return Failure(
        FailureKind.HEADERS_TOO_LARGE,
        f"The header is too large: at most {limits.header_count} fields"
        f" and {limits.header_bytes} bytes are read.",
    )


def too_slow(message: str) -> Failure:
    """The failure of a caller that does not send in time."""
    return Failure(FailureKind.REQUEST_TIMEOUT, message)


def refusal_bytes(refusal: Refusal, date: bytes) -> bytes:
    """A whole HTTP/1.1 answer, after which the connection ends. `date`: its line."""
    status, headers, body = refusal
    lines = [STATUS_LINES[status], date]
    for name, value in (
        *headers,
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ):
        lines += [name, b": ", value, b"\r\n"]
    return b"".join([*lines, b"\r\n", body])
