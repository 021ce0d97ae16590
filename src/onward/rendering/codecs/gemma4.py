"""Gemma 4's calls: ``call:f{k:<|"|>v<|"|>,n:1}``, values in a notation of their own."""

import re
from collections.abc import Sequence
from typing import Final

from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools, dumps, name_of

QUOTE: Final = '<|"|>'

_DEEPEST: Final = 64
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD: Final = re.compile(r"true|false|null")
_KEY: Final = re.compile(r"[^\s:,{}\[\]][^:,{}\[\]]*")
_START: Final = re.compile(r"call:([^{}]+)(?={)")
_SPACE: Final = " \t\r\n"


def call(body: Body, _: Tools) -> list[Call]:
    """The codec of one call."""
    reader = _Reader(body.pieces)
    name = reader.match(_START)
    if name is None:
        raise CodecError("no call")
    arguments = reader.mapping(0)
    reader.skip()
    if not reader.done:
        raise CodecError("text behind a call")
    return [Call(name_of(name.removeprefix("call:")), arguments)]


class _Reader:
    """Reads text and quotes one after the other, and gives JSON."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces: Final = pieces
        self._place = 0
        self._at = 0

    @property
    def done(self) -> bool:
        return self._place == len(self._pieces)

    def mapping(self, depth: int) -> str:
        self._expect("{")
        members: dict[str, str] = {}
        while not self._takes("}"):
            if members:
                self._expect(",")
            key = self._key()
            self._expect(":")
            if key in members:
                raise CodecError("a member twice")
            members[key] = self._value(depth + 1)
        return "{" + ", ".join([f"{dumps(key)}: {value}" for key, value in members.items()]) + "}"

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Take what matches here."""
        found = pattern.match(self._text(), self._at)
        if found is None:
            return None
        self._move(found.end() - found.start())
        return found.group()

    def skip(self) -> None:
        """Go over white space."""
        text = self._text()
        at = self._at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self._move(at - self._at)

    def _value(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise CodecError("values too deep in each other")
        self.skip()
        if self._quoted():
            return dumps(self._string())
        text = self._text()
        first = text[self._at] if self._at < len(text) else ""
        if first == "{":
            return self.mapping(depth)
        if first == "[":
            return self._list(depth)
        plain = self.match(_WORD) or self.match(_NUMBER)
        if plain is None:
            raise CodecError("no value")
        return plain

    def _list(self, depth: int) -> str:
        self._expect("[")
        items: list[str] = []
        while not self._takes("]"):
            if items:
                self._expect(",")
            items.append(self._value(depth + 1))
        return "[" + ", ".join(items) + "]"

    def _key(self) -> str:
        self.skip()
        if self._quoted():
            return self._string()
        key = self.match(_KEY)
        if key is None:
            raise CodecError("no key")
        return key.rstrip()

    def _string(self) -> str:
        """The text between two quotes."""
        self._move(0, pieces=1)
        if self._quoted():
            self._move(0, pieces=1)
            return ""
        text = self._text()
        self._move(len(text))
        if not self._quoted():
            raise CodecError("a string without an end")
        self._move(0, pieces=1)
        return text

    def _quoted(self) -> bool:
        return not self.done and isinstance(self._pieces[self._place], Mark)

    def _text(self) -> str:
        """The piece that is being read, if it is text."""
        return "" if self.done or self._quoted() else self._pieces[self._place]

    def _takes(self, letter: str) -> bool:
        self.skip()
        if not self._text().startswith(letter, self._at):
            return False
        self._move(1)
        return True

    def _expect(self, letter: str) -> None:
        if not self._takes(letter):
            raise CodecError(f"no {letter}")

    def _move(self, letters: int, *, pieces: int = 0) -> None:
        self._at += letters
        if pieces or (not self.done and self._at and self._at == len(self._text())):
            self._place += 1
            self._at = 0
