"""Calls of Mistral's models: a list of objects, or a name and its arguments."""

import json
from typing import Final

from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools, loads, name_of, object_text
from onward.rendering.codecs.json_call import members

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = " \t\r\n"


def call(body: Body, _: Tools) -> list[Call]:
    """``[{"name": …, "arguments": {…}, "id": …}]``, or ``f[ARGS]{…}``, or ``f[CALL_ID]i[ARGS]{…}``."""
    pieces = list(body.pieces)
    if len(pieces) == 1 and not isinstance(pieces[0], Mark):
        return _listed(pieces[0])
    texts = [piece for piece in pieces if not isinstance(piece, Mark)]
    marks = [str(piece) for piece in pieces if isinstance(piece, Mark)]
    if marks not in (["[ARGS]"], ["[CALL_ID]", "[ARGS]"]) or isinstance(pieces[0], Mark):
        raise CodecError("no call of either form")
    if len(texts) != len(marks) + 1:
        raise CodecError("nothing between two marks")
    identity = texts[1] if len(texts) == 3 else None
    return [Call(name_of(texts[0]), object_text(texts[-1]), identity)]


def _listed(text: str) -> list[Call]:
    if not isinstance(loads(text), list):
        raise CodecError("no list of calls")
    calls: list[Call] = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise CodecError("not JSON") from None
        calls.append(_one(text[at:end]))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    if not calls:
        raise CodecError("an empty list of calls")
    return calls


def _one(text: str) -> Call:
    slices = dict(members(text))
    identity = loads(slices.pop("id", "null"))
    if set(slices) != {"name", "arguments"} or not (identity is None or isinstance(identity, str)):
        raise CodecError("an object that is no call")
    return Call(name_of(loads(slices["name"])), object_text(slices["arguments"]), identity or None)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
