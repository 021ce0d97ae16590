"""A provider's refusals, in our own words."""

import json
from typing import Any

import pytest

from onward.core.failure import FailureKind as Kind
from onward.dialects import DIALECTS
from onward.wire.errors import encode_failure
from onward.wire.passing.refusal import refusal, retry_after, stream_error

NOW = 1_790_000_000.0
STATUSES = [
    # status, kind, shown by tokens, by openai
    (400, Kind.INVALID_REQUEST, 400, 400),
    (413, Kind.INVALID_REQUEST, 413, 400),
    (422, Kind.INVALID_REQUEST, 422, 400),
    (404, Kind.UNKNOWN_MODEL, 404, 404),
    (429, Kind.UPSTREAM_RATE_LIMITED, 429, 429),
    (401, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (402, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (403, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (407, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (405, Kind.UPSTREAM_UNAVAILABLE, 405, 503),
    (408, Kind.UPSTREAM_TIMEOUT, 408, 504),
    (504, Kind.UPSTREAM_TIMEOUT, 504, 504),
    (500, Kind.UPSTREAM_UNAVAILABLE, 500, 503),
    (502, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (503, Kind.UPSTREAM_UNAVAILABLE, 503, 503),
    (529, Kind.UPSTREAM_UNAVAILABLE, 529, 503),
    (302, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (100, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
    (999, Kind.UPSTREAM_UNAVAILABLE, 502, 503),
]


@pytest.mark.covers("K-7", "K-12")
@pytest.mark.parametrize(("status", "kind", "tokens", "openai"), STATUSES)
def test_each_status_has_its_failure(status: int, kind: Kind, tokens: int, openai: int) -> None:
    failure = refusal(status, {}, NOW)
    assert failure.kind is kind
    for name, shown in (("tokens", tokens), ("openai", openai)):
        encoded = encode_failure(DIALECTS[name], failure)
        assert encoded.status == shown
        assert (b"retry-after" in dict(encoded.headers)) == (shown in (429, 503))


@pytest.mark.parametrize("status", [400, 413, 451, 500])
def test_a_body_is_read_once_whatever_it_may_mean(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    loads = json.loads

    def counted(body: bytes) -> Any:
        read.append(body)
        return loads(body)

    monkeypatch.setattr(json, "loads", counted)
    refusal(status, {}, NOW, b'{"error": {"message": "no", "code": "unknown"}}')
    assert len(read) == (status < 500)


@pytest.mark.covers("K-7")
@pytest.mark.parametrize("status", [429, 503])
def test_g17_the_wait_is_the_providers(status: int) -> None:
    encoded = encode_failure(DIALECTS["tokens"], refusal(status, {b"retry-after": b"17"}, NOW))
    assert dict(encoded.headers)[b"retry-after"] == b"17"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"", None),
        (b"5", 5),
        (b" 5 ", 5),
        (b"0", 0),
        (b"1.2", 2),
        (b"-5", None),
        (b"soon", None),
        (b"1e9", None),
        (b"999999999999", 86_400),
        (b"9" * 100, None),
        (b"Mon, 21 Sep 2026 14:13:30 GMT", 10),
        (b"Mon, 21 Sep 2026 14:13:10 GMT", 0),
        (b"Mon, 21 Sep 2026 14:13:30 -0000", 10),
        (b"Mon, 99 Sep 2026 14:13:30 GMT", None),
        (b"\xff\xfe", None),
        ("٣".encode(), None),
    ],
)
def test_a_wait_is_whole_seconds_within_bounds(value: bytes | None, seconds: int | None) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, Kind.UPSTREAM_UNAVAILABLE),
        ("x", Kind.UPSTREAM_UNAVAILABLE),
        ({"code": None, "type": []}, Kind.UPSTREAM_UNAVAILABLE),
        ({"code": 429}, Kind.UPSTREAM_RATE_LIMITED),
        ({"code": "rate_limit_exceeded"}, Kind.UPSTREAM_RATE_LIMITED),
        ({"status": 422}, Kind.INVALID_REQUEST),
    ],
)
def test_errors_of_streams(error: object, kind: Kind) -> None:
    assert stream_error(error).kind is kind
