"""What must not go into a model, or come out of it: patterns, and texts that are held against them.

A text that grows is given away up to where it may still become a match, so no match is ever given
away, and what is no match is given away in the end.
"""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.core.json_text import JsonText
from onward.core.patterns import Pattern, Search, input_pattern, output_pattern

LONGEST_MATCH: Final = 4096
"""Characters of output that one match may have, and that are held back at the most. Nobody waits for the
end of a longer one."""
_MOST_TOO_LONG: Final = 1000
"""Matches that are too long, one after the other in one piece, before it counts as searched for too long."""
_SECONDS: Final = 0.1
_SECONDS_A_CHARACTER: Final = 2e-7
"""How long one search may take, in CPU time. A pattern that takes longer blocks: nobody knows better."""
_SLOW: Final = (TimeoutError, MemoryError)


class Found(msgspec.Struct, frozen=True):
    """Why something is blocked: for the log alone."""

    pattern: str
    """Its place in the config, such as ``block_output[2]``."""
    slow: bool = False
    """It took too long, and what it would have found is not known."""


class ContentFilter(msgspec.Struct, frozen=True, eq=False):
    """The patterns of one model."""

    input: tuple[Pattern, ...] = ()
    output: tuple[Pattern, ...] = ()

    @classmethod
    def of(cls, block_input: Sequence[str], block_output: Sequence[str]) -> Self:
        """Raises `PatternError`."""
        return cls(
            tuple(input_pattern(f"block_input[{n}]", one) for n, one in enumerate(block_input)),
            tuple(output_pattern(f"block_output[{n}]", one) for n, one in enumerate(block_output)),
        )

    def input_blocked(self, text: str) -> Found | None:
        """What blocks a text that a caller sent."""
        timeout = _timeout(text)
        for pattern in self.input:
            try:
                if pattern.search(text, timeout=timeout, concurrent=True) is not None:
                    return Found(pattern.name)
            except _SLOW:
                return Found(pattern.name, slow=True)
        return None

    def output_blocked(self, text: str) -> Found | None:
        """What blocks a text that a model made, now that it is whole."""
        held = HeldText(self.output)
        held.push(text)
        held.finish()
        return held.found


class HeldText:
    """One text as it comes, in any pieces: how much of it may be given away.

    Of the matches of at most `longest` characters the one that ends first blocks it, the longest of
    those that end there. Which one that is, and how much is given away then, does not depend on the
    pieces.
    """

    __slots__ = ("_base", "_buffer", "_json", "_longest", "_patterns", "_start", "clear", "found")

    def __init__(
        self, patterns: Sequence[Pattern], longest: int = LONGEST_MATCH, *, json: bool = False
    ) -> None:
        """`json`: the text is JSON; it is read, and its characters are counted, as `JsonText` means it."""
        self._json = JsonText() if json else None
        self._patterns = patterns
        self._longest = longest
        self._buffer = ""
        """What is held back, behind one character of what is not: a pattern may look at that one."""
        self._base = 0
        """Where in the text the buffer begins."""
        self._start = 0
        """Where in the buffer what is held back begins."""
        self.clear = 0
        """Characters from the text's beginning that may be given away."""
        self.found: Found | None = None
        """What blocks it. Nothing more is read then, and `clear` stays."""

    @property
    def length(self) -> int:
        """Characters so far."""
        return self._base + len(self._buffer)

    def push(self, text: str) -> None:
        """The text goes on."""
        if self.found is not None:
            return
        self._buffer += text if self._json is None else self._json.push(text)
        size = hold = len(self._buffer)
        first: tuple[int, int, Pattern] | None = None
        timeout = _timeout(self._buffer)
        for pattern in self._patterns:
            try:
                place = self._look(pattern, timeout)
            except _SLOW:
                self._block(Found(pattern.name, slow=True), self._start)
                return
            if isinstance(place, int):
                hold = min(hold, place)
            elif first is None or place < first[:2]:
                first = (*place, pattern)
        if first is not None:
            self._block(Found(first[2].name), first[1])
            return
        self.clear = max(self.clear, self._base + hold)
        cut = hold - 1
        if cut > 0:
            self._buffer = self._buffer[cut:]
            self._base += cut
        self._start = min(1, hold) if size else 0

    def finish(self) -> None:
        """The text is whole, or something else goes on: there is nothing to wait for.

        If it goes on after all, a match may be found that begins in what is given away now; it is never
        given away whole.
        """
        if self.found is not None:
            return
        buffer, size = self._buffer, len(self._buffer)
        floor = max(self._start, size - self._longest)
        for pattern in self._patterns:
            if not pattern.border:
                continue
            try:
                match = pattern.search(buffer, floor, timeout=_timeout(buffer))
            except _SLOW:
                self._block(Found(pattern.name, slow=True), self._start)
                return
            if match is not None:
                self._block(Found(pattern.name), match.start())
                return
        self.clear = self._base + size

    def _block(self, found: Found, at: int) -> None:
        self.found = found
        self.clear = max(self.clear, self._base + at)

    def _look(self, pattern: Pattern, timeout: float) -> int | tuple[int, int]:
        """Where in the buffer what may become a match begins; or end and start of the match that is one."""
        search = pattern.grown or pattern.search
        buffer, size = self._buffer, len(self._buffer)
        floor = max(self._start, size - self._longest)
        if floor > self._start and (match := self._first(search, self._start, timeout)):
            return match
        found = search(buffer, floor, partial=True, timeout=timeout)
        if found is None:
            return size
        if found.partial:
            return found.start()
        return self._first(search, floor, timeout) or size

    def _first(self, search: Search, start: int, timeout: float) -> tuple[int, int] | None:
        """End and start of the match that ends first, of those that are not too long."""
        buffer = self._buffer
        for _ in range(_MOST_TOO_LONG):
            match = search(buffer, start, timeout=timeout)
            if match is None:
                return None
            # It is known by halving: what a longer text has no match in, a shorter one has none in.
            none, some = start, match.end()
            while some - none > 1:
                middle = (none + some) // 2
                if search(buffer, start, middle, timeout=timeout) is None:
                    none = middle
                else:
                    some = middle
            earliest = search(buffer, start, some, timeout=timeout) or match
            if some - earliest.start() <= self._longest:
                return some, earliest.start()
            start = some - self._longest  # whatever begins before ends here or later, and is too long
        raise TimeoutError


def input_refused(param: str) -> Failure:
    """The failure of a text that may not go in. It repeats neither the text nor the pattern."""
    return Failure(
        FailureKind.CONTENT_BLOCKED_INPUT,
        f"The content filter of this model does not let '{param}' pass. Change it.",
        param=param,
    )


def output_refused() -> Failure:
    """The failure of an answer that may not come out, of which nothing was given away."""
    return Failure(
        FailureKind.CONTENT_BLOCKED_OUTPUT,
        "The content filter of this model does not let its answer pass. Change the prompt, or try again.",
    )


def _timeout(text: str) -> float:
    return _SECONDS + _SECONDS_A_CHARACTER * len(text)
