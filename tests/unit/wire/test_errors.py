"""Failures as a dialect shows them."""

import json

import msgspec
import pytest

from onward.core.failure import Failure, FailureKind
from onward.dialects.openai import OPENAI
from onward.dialects.schema import ErrorRow
from onward.wire.errors import encode_failure, failure_event


@pytest.mark.covers("O-5")
@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_has_openais_shape(kind: FailureKind) -> None:
    encoded = encode_failure(OPENAI, Failure(kind, "what to change", param="prompt"))
    row = OPENAI.errors[kind]
    assert encoded.status == row.status
    assert json.loads(encoded.body) == {
        "error": {"message": "what to change", "type": row.type, "param": "prompt", "code": row.code}
    }
    headers = dict(encoded.headers)
    assert headers[b"content-type"] == b"application/json"
    assert (b"retry-after" in headers) == (encoded.status in (429, 503))
    assert (b"www-authenticate" in headers) == (encoded.status == 401)


def test_the_seconds_to_wait_are_the_failures_own() -> None:
    failure = Failure(FailureKind.RATE_LIMITED, "slow down", retry_after=17)
    assert (b"retry-after", b"17") in encode_failure(OPENAI, failure).headers


def test_a_row_may_keep_the_message_to_itself() -> None:
    rows = {
        **OPENAI.errors,
        FailureKind.UPSTREAM_UNAVAILABLE: ErrorRow(502, "server_error", "x", "It failed."),
    }
    dialect = msgspec.structs.replace(OPENAI, errors=rows)
    body = encode_failure(dialect, Failure(FailureKind.UPSTREAM_UNAVAILABLE, "secret host")).body
    assert json.loads(body)["error"]["message"] == "It failed."
    assert b"secret" not in failure_event(dialect, Failure(FailureKind.UPSTREAM_UNAVAILABLE, "secret host"))
