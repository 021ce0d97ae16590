"""Deltas on their way to a caller, held against the patterns of a model's output.

One mechanism for all that is made of deltas: what engines of ours sample, and what is translated out
of a provider's words. What passes as bytes has `wire.passing.filtered`.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from onward.core.content_filter import ContentFilter, Found, HeldText, output_refused
from onward.core.delta import ChoiceDelta, FinishReason, fold
from onward.core.json_text import JSON_FIELDS

Key = tuple[str, int]
"""Which text of a choice: its kind, and of a call its index."""
_TEXT: Final = ("text", 0)
_REASONING: Final = ("reasoning", 0)


class FilteredDeltas:
    """The deltas of one request. Give it each as it is made, pass on what it returns.

    A choice in which something is found ends with `FinishReason.CONTENT_FILTER`, in front of the match;
    the others go on. Where no delta stands in front of that, or nothing is streamed, the request ends with
    a `Failure` (CONTENT_BLOCKED_OUTPUT). Token IDs and log probabilities wait for their text.
    """

    def __init__(
        self, content: ContentFilter, *, stream: bool, found: Callable[[Found], None] | None = None
    ) -> None:
        """`found` is told of what is found, for the log."""
        self._content = content
        self._stream = stream
        self._found = found
        self._choices: dict[int, _Choice] = {}
        self._started = False
        self.blocked: set[int] = set()
        """The choices that ended here: nothing more of them is passed on, and nothing more need be made."""

    def push(self, delta: ChoiceDelta) -> list[ChoiceDelta]:
        """What may go on now that `delta` was made. Raises `Failure` (CONTENT_BLOCKED_OUTPUT)."""
        index = delta.index
        if index in self.blocked:
            return []
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(self._content)
        passed = choice.push(delta, plain=not self._stream)
        if choice.found is not None:
            if self._found is not None:
                self._found(choice.found)
            self.blocked.add(index)
            if not self._stream or not (self._started or passed):
                raise output_refused()
            part = choice.clear_part()
            end = ChoiceDelta(index=index, finish=FinishReason.CONTENT_FILTER)
            passed = fold([*passed, end] if part is None else [*passed, part, end])
        elif part := choice.clear_part():
            passed.append(part)
        self._started = self._started or bool(passed)
        return passed


class _Held(msgspec.Struct):
    """A delta that waits, and how far which texts must be clear."""

    delta: ChoiceDelta
    needs: list[tuple[HeldText, int]]

    @property
    def clear(self) -> bool:
        return all(text.clear >= end for text, end in self.needs)


class _Choice:
    """One choice."""

    def __init__(self, content: ContentFilter) -> None:
        self._content = content
        self._texts: dict[Key, HeldText] = {}
        self._going_on: list[HeldText] = []
        """Those that the last delta brought."""
        self._held: list[_Held] = []
        self._late: ChoiceDelta | None = None
        """IDs and log probabilities whose text has not come yet."""
        self.found: Found | None = None

    def push(self, delta: ChoiceDelta, *, plain: bool) -> list[ChoiceDelta]:
        """`plain`: whether the whole answer is told as one text where it is malformed."""
        brings = bool(delta.text or delta.reasoning or delta.tool_calls or delta.thoughts or delta.finish)
        if not brings and not (delta.token_ids or delta.entries):
            return [delta]
        if self._late is not None:
            delta, self._late = fold([self._late, delta])[0], None
        if not brings:
            self._late = delta
            return []
        self._held.append(_Held(delta, self._read(delta)))
        if delta.finish is not None and self.found is None:
            for text in self._texts.values():
                text.finish()
                self.found = self.found or text.found
            if plain and delta.plain is not None and self.found is None:
                self.found = self._content.output_blocked(delta.plain.text)
        return self._let_go()

    def _read(self, delta: ChoiceDelta) -> list[tuple[HeldText, int]]:
        """Take in what a delta brings. Texts that do not go on in it are not waited for any more."""
        pieces: list[tuple[Key, str]] = []
        if delta.reasoning or delta.thoughts:
            pieces.append((_REASONING, delta.reasoning))
        if delta.text:
            pieces.append((_TEXT, delta.text))
        for call in delta.tool_calls:
            if call.name:
                pieces.append((("name", call.index), call.name))
            if call.arguments:
                pieces.append((("arguments", call.index), call.arguments))
        texts = [self._text(key) for key, _ in pieces]
        if pieces:
            for before in self._going_on:
                if before not in texts:
                    before.finish()
                    self.found = self.found or before.found
            self._going_on = texts
        needs: list[tuple[HeldText, int]] = []
        for text, (_, piece) in zip(texts, pieces, strict=True):
            text.push(piece)
            self.found = self.found or text.found
            needs.append((text, text.length))
        return needs

    def _text(self, key: Key) -> HeldText:
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = HeldText(self._content.output, json=key[0] in JSON_FIELDS)
        return text

    def _let_go(self) -> list[ChoiceDelta]:
        """The deltas that are clear."""
        passed: list[ChoiceDelta] = []
        while self._held and self._held[0].clear:
            passed.append(self._held.pop(0).delta)
        return passed

    def clear_part(self) -> ChoiceDelta | None:
        """What is clear of the first delta that waits, where it brings one text; it is taken out of it."""
        if not self._held:
            return None
        held = self._held[0]
        delta = held.delta
        if len(held.needs) != 1 or delta.tool_calls or delta.thoughts:
            return None
        text, end = held.needs[0]
        whole = delta.text or delta.reasoning
        size = len(whole) - (end - text.clear)
        if size <= 0:
            return None
        if delta.text:
            held.delta = msgspec.structs.replace(delta, text=whole[size:])
            return ChoiceDelta(index=delta.index, text=whole[:size])
        held.delta = msgspec.structs.replace(delta, reasoning=whole[size:])
        return ChoiceDelta(index=delta.index, reasoning=whole[:size])
