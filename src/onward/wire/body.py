"""Bytes of a request to a JSON object, or a failure in our own words (1.11).

Duplicate keys: the last one counts. No message holds a piece of the body, nor the JSON library's
own words.
"""

import re
from typing import Any, Final, cast

import msgspec

from onward.core.failure import Failure, excerpt, invalid
from onward.dialects.values import json_type

DEEPEST: Final = 64
"""Arrays and objects inside each other."""
MOST_CONTAINERS: Final = 100_000
"""Arrays and objects of a body, all together."""

_decode = msgspec.json.Decoder().decode
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_PLACE: Final = re.compile(r"\(byte (\d+)\)")
_CONSTANT: Final = re.compile(rb"\b(NaN|Infinity)\b")
_HIGH_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_LOW_SURROGATE: Final = re.compile(
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def check_body_headers(
    content_type: str | None, content_encoding: str | None, untyped_lacks: str | None = None
) -> None:
    """Refuse a body by what its header says of it. Raises `Failure` (INVALID_REQUEST).

    `untyped_lacks` is `Dialect.untyped_body_lacks`.
    """
    if content_type != "application/json":
        try:
            _check_content_type(content_type)
        except Failure as failure:
            if untyped_lacks is None:
                raise
            raise invalid(
                untyped_lacks, f"'{untyped_lacks}' is missing, as the body was not read. {failure.message}"
            ) from None
    if content_encoding is not None and content_encoding.strip().lower() not in ("", "identity"):
        raise invalid(
            None,
            f"Content-Encoding '{excerpt(content_encoding, 40)}' is not taken: send the body uncompressed.",
        )


def decode_body(raw: bytes) -> dict[str, Any]:
    """The object that a request's body holds. Raises `Failure` (INVALID_REQUEST)."""
    # no bracket opens deeper than there are brackets: most bodies need no closer look
    if raw.count(b"[") + raw.count(b"{") > DEEPEST:
        _check_shape(raw)
    try:
        body = _decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid(None, _why(raw, str(error))) from None
    if type(body) is not dict:
        raise invalid(None, f"The body must be a JSON object, not {json_type(body)}.")
    return cast("dict[str, Any]", body)


def _check_content_type(content_type: str | None) -> None:
    if not content_type:
        raise _bad_content_type("it is missing")
    kind, _, rest = content_type.partition(";")
    if kind.strip().lower() != "application/json":
        raise _bad_content_type(f"this one is '{excerpt(content_type, 60)}'")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise _bad_content_type(f"this one names the charset '{excerpt(value.strip(), 40)}'")


def _bad_content_type(what: str) -> Failure:
    return invalid(None, f"The header 'Content-Type: application/json' is required; {what}.")


def _check_shape(raw: bytes) -> None:
    """Refuse deep or teeming nesting. Levels are peeled off from the inside, each in C."""
    brackets = _STRING.sub(b"", raw).translate(_SQUARE, _NOT_BRACKETS)
    opened = brackets.count(b"[")
    if opened > MOST_CONTAINERS:
        raise invalid(
            None, f"The body holds {opened} arrays and objects; at most {MOST_CONTAINERS} are taken."
        )
    for _ in range(DEEPEST):
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == size:
            break
    if b"[]" in brackets or brackets.count(b"[") > DEEPEST:
        raise invalid(None, f"The body is nested too deep: at most {DEEPEST} levels are taken.")


def _why(raw: bytes, error: str) -> str:
    """What is wrong with a body that does not decode, for its sender."""
    if not raw.strip():
        return "The body is empty: send a JSON object."
    if raw.startswith(_MARKS) or b"\x00" in raw:
        return "The body must be UTF-8 without a byte order mark."
    try:
        raw.decode()
    except UnicodeDecodeError as fault:
        return f"The body is not valid UTF-8 at byte {fault.start}."
    if "out of range" in error:
        return "The body holds a number that is too large."
    outside = _STRING.sub(b'""', raw)
    constant = _CONSTANT.search(outside)
    if constant:
        return f"The body is not valid JSON: {constant[1].decode()} is no JSON number."
    surrogate = _HIGH_SURROGATE.search(raw) or _LOW_SURROGATE.search(raw)
    if surrogate:
        return f"The body holds half of a surrogate pair at byte {surrogate.start()}: that is no character."
    place = _PLACE.search(error)
    if place:
        return f"The body is not valid JSON: unexpected input at byte {place[1]}."
    return "The body is not valid JSON: it ends too early."
