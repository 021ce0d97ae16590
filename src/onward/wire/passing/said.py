"""What a provider says of an error: its codes and its sentences, wherever providers put them.

The one reading of it. What it means stands in `rejection` and `too_long`.
"""

import json
import re
from typing import Any, Final, NamedTuple, cast

_INSIDE: Final = ("error", "innererror", "inner_error", "base_resp", "metadata")
"""Objects within an error, or beside it, that say more."""
_PLACES: Final = ("code", "type", "status", "reason", "status_code")
_SIGN: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 400
"""Letters of a code, or of a sentence, that are looked at."""


class Said(NamedTuple):
    """An error, as far as it is looked at. The outer objects come first."""

    codes: list[str]
    """Codes, types and statuses, in small letters and without signs."""
    sentences: list[str]
    """Messages, in small letters."""
    fields: set[str]
    """The names of all members."""


NOTHING: Final = Said([], [], set())


def said_in(body: bytes) -> Said:
    """What the body of a refusal says. Google writes its errors into a list."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return NOTHING
    listed = cast("list[Any]", value) if type(value) is list else [value]
    return said_by(listed[0]) if listed else NOTHING


def said_by(error: Any) -> Said:
    """What an error says, or the object around it."""
    outer = _fields(error)
    said = Said([], [], set())
    _hear(outer, said)
    for name in _INSIDE:
        _hear(_fields(outer.get(name)), said)
    inner = _fields(outer.get("error"))
    for name in _INSIDE:
        _hear(_fields(inner.get(name)), said)
    return said


def _hear(fields: dict[str, Any], said: Said) -> None:
    said.fields.update(fields)
    for name in _PLACES:
        code = fields.get(name)
        if type(code) is int or type(code) is str:
            said.codes.append(_SIGN.sub("", str(code)[:_LONGEST].lower()))
    message = fields.get("message")
    if type(message) is str:
        said.sentences.append(message[:_LONGEST].strip().lower())


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}
