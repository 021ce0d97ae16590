"""Splitting a text at the spellings of control tokens."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_END: Final = ""


class Marks:
    """A set of spellings, each with the ID of its token.

    Where several could match, the leftmost wins, then the longest. The spellings are one regular
    expression shaped like a trie, so that a text costs the same however many there are. Each has
    at least two letters.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids: Final = dict(ids)
        pattern = _trie_pattern(list(self.ids)) if self.ids else r"(?!)"
        self._pattern: Final = re.compile(pattern)
        self._prefixes: Final = frozenset(text[:size] for text in self.ids for size in range(1, len(text)))
        self.longest: Final = max((len(text) for text in self.ids), default=0)

    def split(self, text: str) -> Iterator[str | int]:
        """Runs of ordinary text and, between them, the IDs of the spellings. No empty runs."""
        end = 0
        for match in self._pattern.finditer(text):
            start = match.start()
            if start > end:
                yield text[end:start]
            end = match.end()
            yield self.ids[match.group()]
        if end < len(text):
            yield text[end:] if end else text

    def broken(self, text: str, seam: str) -> str:
        """`text` with `seam` inside every spelling that it holds, so that none is left."""
        while self._pattern.search(text):
            text = self._pattern.sub(lambda match: match.group()[0] + seam + match.group()[1:], text)
        return text

    def dangling(self, text: str) -> bool:
        """Whether the end of `text` begins a spelling that more text could complete."""
        sizes = range(1, min(self.longest, len(text) + 1))
        return any(text[-size:] in self._prefixes for size in sizes)


def _trie_pattern(words: list[str]) -> str:
    trie: dict[str, Any] = {}
    for word in words:
        node = trie
        for letter in word:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return _node_pattern(trie)


def _node_pattern(node: dict[str, Any]) -> str:
    prefix = ""
    while len(node) == 1 and _END not in node:
        ((letter, node),) = node.items()
        prefix += re.escape(letter)
    branches = [re.escape(letter) + _node_pattern(child) for letter, child in node.items() if letter]
    if not branches:
        return prefix
    optional = "?" if _END in node else ""
    return f"{prefix}(?:{'|'.join(branches)}){optional}"
