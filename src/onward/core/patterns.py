r"""Patterns that texts are searched for, in the language of the `regex` package.

A pattern of output is searched for while its text still grows, so it may only hold what more text
cannot undo: no look-around save ``\b`` and its like, no ends of text, nothing possessive or atomic.
Then a match that is there stays one, and what a text may still become is known from its end alone.
"""

import re
from typing import Any, Final, Protocol, cast

import msgspec

MOST_PATTERNS: Final = 100
"""Of a model's input, and of its output."""

_PIECES: Final = re.compile(
    r"""
      \\[pPN]\{[^}]*\} | \\.                                # an escape
    | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]               # a set
    | \(\?\#[^)]*\)                                         # a comment
    | (?P<group>\((?:\?(?:P?<[^>=!]*>|P=|[A-Za-z]+[:)]|.)?|\*)?)
    | (?P<possessive>(?:[*+?]|\{\d*,?\d*\})\+)
    | (?P<fuzzy>\{[^}]*[a-z][^}]*\})
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_BORDERS: Final = {
    "\\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))",
    "\\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
    "\\m": r"(?<!\w)(?=\w)",
    "\\M": r"(?<=\w)(?!\w)",
}
"""Borders of words, and what says the same. Where a text ends so far, the package takes the first for what
they would be if it ended there, and the second for what more text decides."""
_UNSURE: Final = frozenset({"\\Z", "\\z", "\\G", "\\K", "\\X", "\\R"})
_GROUPS: Final = re.compile(r"\((?:\?(?::|P?<[^>=!]*>|P=|[aimsu]+[:)]))?")
_FLAGS: Final = re.compile(r"\(\?([aimsu]+)\)")
_CALLS: Final = re.compile(r"\(\?(?:R\)|[0-9]+\)|&|P>)")
_TRIED: Final = ("", "\n", "\u4e00", "\u2603", "\u2603\u4e00\u2603")
"""Texts that few patterns name: a word of one letter, a sign, both."""
_TRIED_S: Final = 0.5


class Match(Protocol):
    """What is used of the package's matches."""

    partial: bool
    """Whether only more text could make it a match."""

    def start(self) -> int: ...

    def end(self) -> int: ...


class Search(Protocol):
    """A compiled pattern's search. Raises `TimeoutError` past `timeout`, in seconds of our own CPU time."""

    def __call__(
        self,
        string: str,
        pos: int = 0,
        endpos: int | None = None,
        *,
        partial: bool = False,
        timeout: float | None = None,
        concurrent: bool | None = None,
    ) -> Match | None: ...


class PatternError(ValueError):
    """A pattern that cannot be used. The message goes on from its name: "is no regular expression: …"."""


class Pattern(msgspec.Struct, frozen=True):
    """A pattern and what to call it in the log."""

    name: str
    """Its place in the config, such as ``block_output[2]``."""
    search: Search
    """In a text that is whole."""
    grown: Search | None = None
    """In a text that may go on: a match is certain. None: not a pattern of output."""
    border: bool = False
    """Whether the character behind a match decides on it, so that one at a text's end is not certain."""


def input_pattern(name: str, text: str) -> Pattern:
    """A pattern of texts that are whole. Raises `PatternError`."""
    return Pattern(name, _compiled(text))


def output_pattern(name: str, text: str) -> Pattern:
    """A pattern of texts that grow. Raises `PatternError`."""
    spelled = _with_borders_spelled(text)
    search = _compiled(text)
    if spelled == text:
        return Pattern(name, search, search)
    flags = ""
    if leading := _FLAGS.match(spelled):
        flags, spelled = spelled[: leading.end()], spelled[leading.end() :]
    # one character more: what a border needs behind the match has come then
    return Pattern(name, search, _compiled(f"{flags}(?:{spelled})(?s:.)"), border=True)


def _compiled(text: str) -> Search:
    import regex  # noqa: PLC0415 - only where there is a pattern

    package = cast("Any", regex)
    if not text:
        raise PatternError("is empty")
    if any(piece["group"] and _CALLS.match(text, piece.start()) for piece in _PIECES.finditer(text)):
        raise PatternError("calls itself or a group, which may never end")
    try:
        pattern = package.compile(text)
        search = cast("Search", pattern.search)
        empty = any(_matches_nothing(search, pattern.fullmatch, tried) for tried in _TRIED)
    except (TimeoutError, MemoryError):
        raise PatternError("takes too long to search for") from None
    except (package.error, OverflowError, RecursionError, ValueError, KeyError) as error:
        raise PatternError(f"is no regular expression: {error}") from None
    if empty:
        raise PatternError("matches where there is nothing, so that it would block every text")
    return search


def _matches_nothing(search: Search, fullmatch: Search, text: str) -> bool:
    match = search(text, timeout=_TRIED_S)
    if match is not None and match.start() == match.end():
        return True
    return any(fullmatch(text, at, at, timeout=_TRIED_S) for at in range(len(text) + 1))


def _with_borders_spelled(text: str) -> str:
    """A pattern of output, its borders of words spelled out. Raises `PatternError`."""
    spelled: list[str] = []
    for piece in _PIECES.finditer(text):
        what = piece[0]
        spelled.append(_BORDERS.get(what, what))
        if what == "$" or what in _UNSURE:
            raise PatternError(f"holds {what}, which text that is still being generated has no answer to")
        if piece["group"] and not _GROUPS.fullmatch(what):
            raise PatternError(
                f"holds {what}: patterns of output have groups, named ones and the flags a, i, m, s and u,"
                r" but no look-around (\b aside), atomic group, condition or verb"
            )
        if piece["possessive"]:
            raise PatternError(f"holds {what}, which is possessive; write {what[:-1]}")
        if piece["fuzzy"]:
            raise PatternError(f"holds {what}: nothing is matched fuzzily; write a brace as \\{{")
    return "".join(spelled)
