"""Stop strings in a text that arrives in pieces."""

from collections import deque
from collections.abc import Iterable
from typing import Final


class StopMatcher:
    """Finds the first stop string, and knows how much text may still become one.

    An Aho-Corasick automaton: its state is the longest end of the text that begins some stop,
    so `held` is exactly what must not be given away yet, and time is linear in the text however
    many stops there are. Of stops that become complete with the same piece the one that begins
    first counts.
    """

    __slots__ = ("_depth", "_fail", "_first", "_next", "_state", "_whole", "size")

    def __init__(self, stops: Iterable[str]) -> None:
        """ValueError if a stop is empty: it would match at once."""
        self._next: Final[list[dict[str, int]]] = [{}]
        self._depth: Final = [0]
        self._whole: Final = [0]
        for stop in stops:
            self._add(stop)
        self._first: Final = frozenset(self._next[0])
        self._fail: Final = self._links()
        self._state = 0
        self.size = 0
        """Code points of the stop that `push` found."""

    @property
    def held(self) -> int:
        """How many code points at the end of the text begin some stop."""
        return self._depth[self._state]

    def push(self, text: str) -> int | None:
        """Take more text. Where a stop begins, if one is complete now, relative to `text`'s start.

        The position is negative if the stop began in earlier text. Nothing may be pushed after.
        """
        state = self._state
        if not state and self._first.isdisjoint(text):
            return None
        following, fail, whole = self._next, self._fail, self._whole
        found: int | None = None
        for place, letter in enumerate(text, 1):
            while letter not in following[state] and state:
                state = fail[state]
            state = following[state].get(letter, 0)
            if whole[state] and (found is None or place - whole[state] < found):
                found, self.size = place - whole[state], whole[state]
        self._state = state
        return found

    def _add(self, stop: str) -> None:
        if not stop:
            raise ValueError("a stop string must not be empty")
        state = 0
        for letter in stop:
            known = self._next[state].get(letter)
            if known is None:
                known = self._next[state][letter] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._whole.append(0)
            state = known
        self._whole[state] = len(stop)

    def _links(self) -> list[int]:
        """For each state the longest shorter end that is a state too, breadth first."""
        fail = [0] * len(self._next)
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for letter, child in self._next[state].items():
                link = fail[state]
                while letter not in self._next[link] and link:
                    link = fail[link]
                fail[child] = self._next[link].get(letter, 0)
                # A stop that ends here inside a longer beginning; the longest begins first.
                self._whole[child] = self._whole[child] or self._whole[fail[child]]
                waiting.append(child)
        return fail
