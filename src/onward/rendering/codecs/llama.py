"""Calls of Llama 3.1 and later: JSON, or the built-in tools' own syntax."""

import json
import re
from typing import Any, Final

from onward.rendering.codecs.call import Body, Call, CodecError, Tools, dumps, loads, name_of
from onward.rendering.codecs.json_call import members

TAGGED: Final = "tagged"
"""The state behind ``<|python_tag|>``."""

_DECODER: Final = json.JSONDecoder()
_BUILT_IN: Final = re.compile(r"\s*(\w+)\.call\((.*)\)\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r'(\w+)="(.*?)"(?:, (?=\w+=")|\Z)', re.DOTALL)


def call(body: Body, _: Tools) -> list[Call]:
    """The codec: objects with a name and parameters, a semicolon between two of them."""
    text = body.text.strip()
    if body.state == TAGGED and (found := _BUILT_IN.fullmatch(text)):
        return [Call(found.group(1), dumps(_arguments(found.group(2))))]
    calls: list[Call] = []
    at = 0
    while True:
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise CodecError("not JSON") from None
        calls.append(_one(text[at:end]))
        rest = text[end:].lstrip()
        if not rest:
            return calls
        if not rest.startswith(";"):
            raise CodecError("text behind a call")
        at = len(text) - len(rest[1:].lstrip())


def _one(text: str) -> Call:
    slices = dict(members(text))
    if "type" in slices and loads(slices.pop("type")) != "function":
        raise CodecError("a type that is no function")
    given = slices.pop("parameters", None)
    if given is None or set(slices) != {"name"} or not isinstance(loads(given), dict):
        raise CodecError("an object that is no call")
    return Call(name_of(loads(slices["name"])), given)


def _arguments(text: str) -> dict[str, Any]:
    """``query="a", k="b"``: values are written without escapes."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(text):
        match = _ARGUMENT.match(text, at)
        if match is None or match.group(1) in found:
            raise CodecError("no arguments of a built-in tool")
        found[match.group(1)] = match.group(2)
        at = match.end()
    return found
