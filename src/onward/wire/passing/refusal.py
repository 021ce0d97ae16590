"""What a provider's refusals and errors become: a failure in our own words (K-7).

What the provider itself says never reaches a caller: it may hold names, addresses, keys.
"""

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

from onward.core.failure import Failure, FailureKind
from onward.wire.passing import rejection, too_long
from onward.wire.passing.rejection import content_rejected, rejects
from onward.wire.passing.said import said_by, said_in
from onward.wire.passing.too_long import context_exceeded, says_too_long

_LONGEST_WAIT: Final = 24 * 3600
"""Seconds in a `Retry-After` that are believed."""
_LONGEST_HEADER: Final = 64
_INVALID: Final = frozenset({400, 413, 422})
_OUR_FAULT: Final = frozenset({401, 402, 403, 407})
"""Our key, our bill, our proxy."""
_SLOW: Final = frozenset({408, 504})
_RATE_WORDS: Final = ("rate_limit", "too_many_requests", "tokens_exceeded")


def refusal(status: int, headers: Mapping[bytes, bytes], now: float, body: bytes = b"") -> Failure:
    """The failure that an answer of any other status than 2xx is. `now`: Unix seconds. `body`: as much of it
    as has come; of it shows only whether the content was refused, or its length.
    """
    if body and (status in rejection.STATUSES or status in too_long.STATUSES):
        said = said_in(body)
        if status in rejection.STATUSES and rejects(said):
            return content_rejected(status)
        if status in too_long.STATUSES and says_too_long(said):
            return context_exceeded(status)
    wait = retry_after(headers.get(b"retry-after"), now)
    if status in _INVALID:
        return Failure(
            FailureKind.INVALID_REQUEST,
            "The model's provider refused the request: a field is wrong or not taken by this model, or the"
            " prompt is too long. Change the request.",
            upstream_status=status,
        )
    if status == 404:
        return Failure(
            FailureKind.UNKNOWN_MODEL,
            "The model's provider does not serve this model on this route. Use another model or route.",
            param="model",
            upstream_status=status,
        )
    if status == 429:
        return Failure(
            FailureKind.UPSTREAM_RATE_LIMITED,
            "The model's provider takes no more requests at the moment. Wait and try again.",
            retry_after=wait,
            upstream_status=status,
        )
    if status in _SLOW:
        return Failure(
            FailureKind.UPSTREAM_TIMEOUT,
            "The model's provider took too long. Try again.",
            retry_after=wait,
            upstream_status=status,
        )
    shown = status if 400 <= status < 600 and status not in _OUR_FAULT else None
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider could not answer. Try again later.",
        retry_after=wait,
        upstream_status=shown,
    )


def stream_error(error: Any) -> Failure:
    """The failure that an error in a stream is, or in an answer that claims to be good."""
    said = said_by(error)
    if rejects(said):
        return content_rejected()
    if says_too_long(said):
        return context_exceeded()
    fields = cast("dict[str, Any]", error) if type(error) is dict else {}
    codes = [fields.get(name) for name in ("code", "status", "type")]
    known = {str(code) for code in codes if type(code) is int or type(code) is str}
    if "429" in known or any(code.startswith(_RATE_WORDS) for code in known):
        return refusal(429, {}, 0)
    for status in _INVALID:
        if str(status) in known:
            return refusal(status, {}, 0)
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider failed while it answered. Send the request again.",
    )


def retry_after(value: bytes | None, now: float) -> int | None:
    """Whole seconds to wait, of a header that holds seconds or a date; None where it says nothing."""
    if value is None or len(value) > _LONGEST_HEADER:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        seconds = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now
    return min(max(-int(-seconds // 1), 0), _LONGEST_WAIT)
