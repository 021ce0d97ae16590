"""Calls as ``f<arg_key>k</arg_key><arg_value>v</arg_value>`` (GLM-4.5 and later)."""

from typing import Final

from onward.rendering.codecs.bare import BareCall
from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools

MARKS: Final = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


def arg_key(body: Body, tools: Tools) -> list[Call]:
    """One call. White space around the names and between the marks is the format's own."""
    pieces = list(body.pieces)
    name = pieces.pop(0) if pieces and not isinstance(pieces[0], Mark) else ""
    call = BareCall(name.strip(), tools)
    at = 0
    while at < len(pieces):
        found: list[str] = []
        for opening, closing in (MARKS[:2], MARKS[2:]):
            at = _mark(pieces, at, opening)
            text = pieces[at] if at < len(pieces) and not isinstance(pieces[at], Mark) else ""
            at = _mark(pieces, at + bool(text), closing)
            found.append(text)
            if at < len(pieces) and not isinstance(pieces[at], Mark) and not pieces[at].strip():
                at += 1
        call.add(found[0].strip(), found[1])
    return [call.call()]


def _mark(pieces: list[str], at: int, mark: str) -> int:
    """The place behind a mark that must be at `at`. Raises `CodecError`."""
    if at >= len(pieces) or not isinstance(pieces[at], Mark) or pieces[at] != mark:
        raise CodecError(f"no {mark}")
    return at + 1
