"""Failures as a dialect shows them: a status, headers and a body, or an event of a stream."""

from typing import Any, Final

import msgspec

from onward.core.failure import Failure
from onward.dialects.schema import Dialect, ErrorRow, FailureShape

_RETRIED: Final = frozenset({429, 503})
_JSON: Final[tuple[bytes, bytes]] = (b"content-type", b"application/json")


class EncodedFailure(msgspec.Struct, frozen=True):
    """A response that says what went wrong."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def encode_failure(
    dialect: Dialect, failure: Failure, shape: FailureShape | None = None, request_id: str = ""
) -> EncodedFailure:
    """The response of a failure that happened before the first byte. `shape`: the surface's own."""
    row = dialect.errors[failure.kind]
    status = (failure.upstream_status if row.passes_status else None) or row.status
    headers: list[tuple[bytes, bytes]] = [_JSON]
    if status in _RETRIED:
        seconds = dialect.retry_after if failure.retry_after is None else failure.retry_after
        headers.append((b"retry-after", b"%d" % seconds))
    elif status == 409 and failure.retry_after is not None:  # what it conflicts with will be over
        headers.append((b"retry-after", b"%d" % failure.retry_after))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    body: dict[str, Any] = (
        {"error": _error(row, failure, dialect.response.error_keys)}
        if shape is None
        else _shaped(shape, row, status, failure, request_id)
    )
    return EncodedFailure(status, headers, msgspec.json.encode(body))


def failure_event(
    dialect: Dialect, failure: Failure, shape: FailureShape | None = None, request_id: str = ""
) -> bytes:
    """The event of a failure in the middle of a stream. Nothing follows it (TH-12)."""
    row = dialect.errors[failure.kind]
    if shape is not None:
        shaped = _shaped(shape, row, row.status, failure, request_id)
        return b"event: error\ndata: " + msgspec.json.encode(shaped) + b"\n\n"
    error = _error(row, failure, dialect.stream.error_keys)
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


def _shaped(
    shape: FailureShape, row: ErrorRow, status: int, failure: Failure, request_id: str
) -> dict[str, Any]:
    error = {"type": shape.type_of(status), "message": row.message or failure.message}
    return {"type": "error", "error": error, "request_id": request_id}


def _error(row: ErrorRow, failure: Failure, keys: tuple[str, ...]) -> dict[str, Any]:
    every = {
        "message": row.message or failure.message,
        "type": row.type,
        "param": failure.param,
        "code": row.code,
    }
    return {key: every[key] for key in keys}
