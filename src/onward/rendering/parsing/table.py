"""A grammar made ready for one tokenizer."""

import re
from collections.abc import Iterable
from typing import Final

from onward.rendering.parsing.grammar import END, Grammar, Says, State
from onward.rendering.tokenizer import Tokenizer


class TextMarks:
    """Marks that a model spells with ordinary tokens: where one stands, and what may become one."""

    __slots__ = ("_beginnings", "_firsts", "_longest", "_pattern")

    def __init__(self, spellings: Iterable[str]) -> None:
        """ValueError if one mark stands within another: what it means would depend on the cut."""
        longest_first = sorted(spellings, key=len, reverse=True)
        for place, word in enumerate(longest_first):
            if any(other in word for other in longest_first[place + 1 :]):
                raise ValueError(f"the mark {word!r} holds another mark of its state")
        self._pattern: Final = re.compile("|".join(map(re.escape, longest_first)))
        self._beginnings: Final = frozenset(
            word[:size] for word in longest_first for size in range(1, len(word))
        )
        self._firsts: Final = "".join({word[0] for word in longest_first})
        self._longest: Final = max(map(len, longest_first))

    def search(self, text: str) -> re.Match[str] | None:
        """The first mark in `text`."""
        return self._pattern.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """The mark at the beginning of `text`."""
        return self._pattern.match(text)

    def begins(self, text: str) -> bool:
        """Whether all of `text` may be the beginning of a mark."""
        return text in self._beginnings

    def dangling(self, text: str) -> int:
        """How many letters at the end of `text` may become a mark."""
        tail = text[1 - self._longest :] if self._longest > 1 else ""
        for at, letter in enumerate(tail):
            if letter in self._firsts and tail[at:] in self._beginnings:
                return len(tail) - at
        return 0


class StateTable:
    """A state with what is worked out of it once."""

    __slots__ = (
        *("edges", "ends", "holds", "keeps", "marks", "name", "openings", "otherwise", "says", "trail"),
        "trims",
    )

    def __init__(self, name: str, state: State, texts: Iterable[str]) -> None:
        self.name: Final = name
        self.says: Final = state.says
        self.edges: Final = state.edges
        self.ends: Final = state.ends
        self.otherwise: Final = state.otherwise
        self.keeps: Final = state.keeps
        self.openings: Final = state.openings
        within = state.says is Says.SPACE and state.otherwise is None and not state.openings
        self.holds: Final = state.says in HOLDS or (within and not state.ends and END not in state.edges)
        """Whether the mark that led here is text if what must follow does not."""
        spelled = [mark for mark in texts if mark]
        self.marks: Final = TextMarks(spelled) if spelled else None
        trims = [edge.trail for edge in state.edges.values() if edge.trail.most]
        self.trims: Final = "".join(sorted({letter for trim in trims for letter in trim.letters}))
        self.trail: Final = max((trim.most for trim in trims), default=0)


class Table:
    """A grammar for one tokenizer: which marks are tokens, which are text."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer | None) -> None:
        """Without a tokenizer every mark is text."""
        self.codec: Final = grammar.codec
        known = {
            mark
            for state in grammar.states.values()
            for mark in (*state.edges, *state.keeps)
            if mark is not END
        } | grammar.foreign
        ids = {} if tokenizer is None else {mark: tokenizer.control_id(mark) for mark in known}
        self.marks: Final = {token: mark for mark, token in ids.items() if token is not None}
        """The grammar's marks that are tokens of their own."""
        spelled = {mark for mark in known if ids.get(mark) is None}
        self.states: Final = {
            name: StateTable(name, state, spelled & (state.edges.keys() | state.keeps))
            for name, state in grammar.states.items()
        }
        self.start: Final = self.states[grammar.start]
        self.control: Final = dict(self.marks)
        """These, and every other control token: none of them is text."""
        if tokenizer is not None:
            for token in tokenizer.marks.ids.values():
                if tokenizer.is_control(token) and token not in self.marks:
                    spelling = tokenizer.spelling(token)
                    if spelling not in grammar.plain:
                        self.control[token] = spelling


HOLDS: Final = frozenset({Says.LABEL, Says.CALL})
