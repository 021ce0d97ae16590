"""Keeping the text of a conversation from ever becoming a control token.

A template puts the caller's strings between control tokens and gives one text. In that text a
spelling of a control token must be the template's own work. So before rendering every string of
the caller gets a *seam*, one code point that occurs in none of them, wherever a spelling could
arise: inside the spellings that it holds, behind an end that a spelling begins with, before a
beginning that the template's own text could complete. After rendering, the spellings that are
left are the template's; then the seams are taken out again, and the runs between them encode
exactly as if there had been none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from onward.core.failure import invalid
from onward.rendering.marks import Marks

NONCHARACTERS: Final = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points that Unicode keeps out of interchange, so that text hardly ever holds one."""

_NONCHARACTER: Final = re.compile(f"[{NONCHARACTERS[0]}-{NONCHARACTERS[-1]}]")

_TYPE_WORDS: Final = frozenset(
    ["text", "function", "object", "string", "number", "integer", "boolean", "array", "null"]
)
_SCHEMA_WORDS: Final = frozenset(
    [
        "type",
        "function",
        "name",
        "description",
        "parameters",
        "properties",
        "required",
        "enum",
        "items",
        "strict",
        "default",
        "anyOf",
        "oneOf",
        "allOf",
        "additionalProperties",
        "format",
        "minimum",
        "maximum",
        "title",
        "const",
        "arguments",
        "id",
        "text",
    ]
)
"""Keys by which templates find their way through tools: never changed."""


class Framing:
    """What the own text of a template can begin, that a string of the caller could complete."""

    def __init__(self, marks: Marks, source: str) -> None:
        self.marks: Final = marks
        self.source: Final = source
        self._rests = frozenset(rest for word in marks.ids for rest in _rests(word, source))
        self._within = frozenset(rest[:size] for rest in self._rests for size in range(1, len(rest)))

    def completes(self, text: str) -> bool:
        """Whether a spelling could arise across the beginning of `text`."""
        sizes = range(1, min(self.marks.longest, len(text)) + 1)
        return text in self._within or any(text[:size] in self._rests for size in sizes)


def _rests(word: str, source: str) -> Iterator[str]:
    """What is missing of `word` behind each of its beginnings that stands in the template."""
    for size in range(1, len(word)):
        if word[:size] not in source:
            return
        yield word[size:]


class Guard:
    """Seams for the strings of one conversation."""

    def __init__(self, framing: Framing, texts: Iterable[str]) -> None:
        """`texts` are all strings of the caller.

        Raises `Failure` if they leave no code point for a seam.
        """
        used = set(_NONCHARACTER.findall(framing.source))
        for text in texts:
            if not text.isascii():
                used.update(_NONCHARACTER.findall(text))
        free = [letter for letter in NONCHARACTERS if letter not in used]
        if len(free) < 2:
            raise invalid(
                "messages",
                "'messages' hold too many Unicode noncharacters (U+FDD0 to U+FDEF).",
            )
        self.seam: Final = free[0]
        self.end: Final = free[1]
        """Another free code point, for marking where a text ends."""
        self._framing: Final = framing
        self._marks: Final = framing.marks

    def guarded(self, value: Any) -> Any:
        """`value` with seams in all its strings, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value)
            return {self._key(key): self._item(key, item) for key, item in pairs.items()}
        if isinstance(value, (list, tuple)):
            return [self.guarded(item) for item in cast("list[Any]", value)]
        return value

    def text(self, text: str) -> str:
        """`text` with seams. White space at its ends stays there, where templates trim it."""
        marks, seam = self._marks, self.seam
        text = marks.broken(text, seam)
        core = text.strip()
        if not core:
            return text
        if marks.dangling(text):
            text = text[:-1] + seam + text[-1] if text[-1].isspace() else text + seam
        elif marks.dangling(core):
            end = len(text.rstrip())
            text = text[:end] + seam + text[end:]
        if self._framing.completes(core) or self._framing.completes(text):
            start = len(text) - len(text.lstrip())
            text = text[:start] + seam + text[start:]
        return text

    def split(self, rendered: str) -> Iterator[str | int]:
        """Runs of text without their seams, and between them the IDs of the template's control tokens."""
        for piece in self._marks.split(rendered):
            run = piece.replace(self.seam, "") if isinstance(piece, str) else piece
            if run != "":
                yield run

    def _item(self, key: str, item: Any) -> Any:
        return item if key == "type" and isinstance(item, str) and item in _TYPE_WORDS else self.guarded(item)

    def _key(self, key: str) -> str:
        return key if key in _SCHEMA_WORDS else self.text(key)


def without_seams(text: str) -> str:
    """`text` without any code point that may be a seam."""
    return _NONCHARACTER.sub("", text)


def strings_in(value: Any) -> Iterator[str]:
    """All strings of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from strings_in(item)
