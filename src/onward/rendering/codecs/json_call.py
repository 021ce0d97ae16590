"""Calls that are a JSON object with a name and arguments (Qwen3, Hermes, SmolLM3)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from onward.rendering.codecs.call import Body, Call, Codec, CodecError, Tools, loads, name_of

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = " \t\r\n"


def json_call(arguments: str = "arguments", *, name: str = "name") -> Codec:
    """A codec for one object with these two members; others say nothing that a caller could use."""

    def read(body: Body, _: Tools) -> list[Call]:
        slices = members(body.text)
        if not {name, arguments} <= set(slices):
            raise CodecError("an object without a name and arguments")
        given = slices[arguments]
        if not isinstance(loads(given), dict):
            raise CodecError("the arguments are no object")
        return [Call(name_of(loads(slices[name])), given)]

    return read


def members(text: str) -> Mapping[str, str]:
    """The members of a JSON object, each value as it is written. Raises `CodecError`."""
    if not isinstance(loads(text), dict):
        raise CodecError("no object")
    # It is valid JSON: what is left is to find where each value begins and ends.
    at = _skip(text, 0) + 1
    found: dict[str, str] = {}
    while text[at := _skip(text, at)] != "}":
        key, at = _value(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _value(text, start)
        if key in found:
            raise CodecError("a member twice")
        found[key] = text[start:at]
        at = _skip(text, at)
        at += text[at] == ","
    return found


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise CodecError("not JSON") from None


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
