"""From sampled tokens to what a caller sees: text, stops, log probabilities, IDs.

The one way in is `TokenPath.push`, token by token, so a result cannot depend on how an engine
cut its output. What cannot be given away yet is held together: text that may still become a
stop string, and the IDs and entries of the tokens that it came from.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from onward.core.delta import ChoiceDelta, FinishReason, TokenEntry, TokenSpelling
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.stops import StopMatcher
from onward.rendering.tokenizer import Tokenizer
from onward.rendering.utf8 import Utf8Decoder

NO_MARKS: Final[Mapping[int, str]] = MappingProxyType({})


class TokenPath:
    """The output of one choice.

    `take` gives what is certain by now, `finish` the rest and the reason; joined, they are the
    same however often `take` was called. `offset` is the length of the text before the first
    token (an echoed prompt). Positions are counted in code points.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        index: int,
        stops: Sequence[str],
        end_token_ids: Collection[int],
        want_entries: bool,
        want_ids: bool,
        offset: int = 0,
        marks: Mapping[int, str] = NO_MARKS,
    ) -> None:
        """`marks`: tokens whose place in the text is noted in `spots`; none is ever given in part."""
        self._tokenizer: Final = tokenizer
        self._index: Final = index
        self._end_token_ids: Final = frozenset(end_token_ids)
        self._want_entries: Final = want_entries
        self._want_ids: Final = want_ids
        self._matcher: Final = StopMatcher(stops) if stops else None
        self._decoder: Final = Utf8Decoder()
        self._text = ""
        self._decoded = offset
        """Code points decoded so far, given away or not."""
        self._starts: list[int] = []
        """Where the tokens begin whose IDs and entries are still here."""
        self._ids: list[int] = []
        self._entries: list[TokenEntry] = []
        self._marks: Final = marks
        self.spots: list[tuple[int, str]] = []
        """Where marks stand in the text, and which. The reader of them takes them out."""
        self.end_token: int | None = None
        """The token that ended the generation."""
        self.count = 0
        """Tokens accepted."""
        self.stopped = False
        """A stop string is complete: nothing more is accepted, and the engine may be stopped."""
        self._ended = False
        self._finished = False
        self._stops: Final = stops
        self._stop: str | None = None
        """The stop string that ended the text."""

    @property
    def is_empty(self) -> bool:
        """Whether `take` would give nothing."""
        held = self._held()
        return len(self._text) == held and not self._certain(held)

    def push(self, token: ScoredToken) -> None:
        """Accept the next sampled token. Ignored after a stop string or an end token."""
        if self.stopped or self._ended:
            return
        self.count += 1
        decoder = self._decoder
        if token.id in self._end_token_ids:
            self._ended = True
            self.end_token = token.id
            if self._stops and (spelled := self._tokenizer.spelling(token.id)) in self._stops:
                self._stop = spelled
            # The end token stands after the character that it cut short.
            self._append(decoder.flush())
            self._note(token, self._decoded)
            return
        text = self._tokenizer.text_of(token.id)
        start = self._decoded
        if text is None or decoder.pending:
            data = self._tokenizer.token_bytes(token.id)
            if not decoder.continues(data) and decoder.pending:
                start += decoder.broken
            text = decoder.push(data)
        if token.id in self._marks:
            self.spots.append((start, self._marks[token.id]))
        self._note(token, start)
        if text:
            self._append(text)

    def take(self) -> ChoiceDelta:
        """All that is certain and was not given yet; it may be nothing, see `is_empty`."""
        held = self._held()
        delta = ChoiceDelta(index=self._index)
        if held:
            cut = len(self._text) - held
            delta.text, self._text = self._text[:cut], self._text[cut:]
        else:
            delta.text, self._text = self._text, ""
        if self._starts:
            count = self._certain(held)
            delta.token_ids, self._ids = self._ids[:count], self._ids[count:]
            delta.entries, self._entries = self._entries[:count], self._entries[count:]
            del self._starts[:count]
        return delta

    def finish(self, why: EngineFinish | None) -> ChoiceDelta:
        """All the rest, with the reason. `why` is the engine's; None if it was stopped by us."""
        if not self.stopped:
            self._append(self._decoder.flush())
        self._finished = True
        delta = self.take()
        stop = self.stopped or self._ended or why is EngineFinish.STOP_TOKEN
        delta.finish = FinishReason.STOP if stop else FinishReason.LENGTH
        delta.stop = self._stop
        return delta

    def _held(self) -> int:
        """Code points at the end of the text that may still become a stop."""
        if self._matcher is None or self.stopped or self._finished:
            return 0
        held = self._matcher.held
        if held and self.spots:
            start, mark = self.spots[-1]
            if start < self._decoded - held < start + len(mark):
                return self._decoded - start
        return held

    def _certain(self, held: int) -> int:
        """How many of the waiting tokens go with the text that is not held."""
        return bisect_left(self._starts, self._decoded - held) if held else len(self._starts)

    def _note(self, token: ScoredToken, start: int) -> None:
        """Keep a token's ID and entry until its text is certain."""
        if self._want_ids:
            self._ids.append(token.id)
        if self._want_entries:
            self._entries.append(entry_of(self._tokenizer, token, start))
        if self._want_ids or self._want_entries:
            self._starts.append(start)

    def _append(self, text: str) -> None:
        """Take decoded text; cut it where a stop begins, and move the tokens behind to there."""
        before = self._decoded
        at = self._matcher.push(text) if self._matcher else None
        self._text += text
        self._decoded = before + len(text)
        if at is None:
            return
        self.stopped = True
        end = before + at
        begin = len(self._text) - (self._decoded - end)
        self._stop = self._text[begin : begin + self._matcher.size] if self._matcher else None
        while self.spots and self.spots[-1][0] + len(self.spots[-1][1]) > end:
            end = min(end, self.spots.pop()[0])
        self._text = self._text[: len(self._text) - (self._decoded - end)]
        self._decoded = end
        self._starts = [min(start, end) for start in self._starts]
        self._entries = [
            entry if entry.offset <= end else TokenEntry(entry.token, entry.top, end)
            for entry in self._entries
        ]


def entry_of(tokenizer: Tokenizer, token: ScoredToken, offset: int) -> TokenEntry:
    """A token's log probabilities as a caller reads them."""
    top = None if token.top is None else [tokenizer.spell(*alternative) for alternative in token.top]
    return TokenEntry(tokenizer.spell(token.id, token.logprob), top, offset)


def prompt_delta(
    tokenizer: Tokenizer,
    index: int,
    ids: Sequence[int],
    scored: Sequence[ScoredToken] | None,
    *,
    want_entries: bool,
) -> ChoiceDelta:
    """An echoed prompt: its text, control tokens spelled out, and with `want_entries` its entries.

    A prompt that ends inside a character ends in U+FFFD; what is generated begins a new one.
    Without `scored` the entries have no log probabilities.
    """
    delta = ChoiceDelta(index=index, text=tokenizer.decode(ids))
    if not want_entries:
        return delta
    tokens = scored if scored is not None else [ScoredToken(token) for token in ids]
    path = TokenPath(tokenizer, index=index, stops=[], end_token_ids=(), want_entries=True, want_ids=False)
    for token in tokens:
        path.push(token)
    delta.entries = path.finish(None).entries
    dropped = tokenizer.dropped_space(ids)
    if dropped is not None:
        delta.entries = [_without_space(entry, place, dropped) for place, entry in enumerate(delta.entries)]
    return delta


def _without_space(entry: TokenEntry, place: int, dropped: int) -> TokenEntry:
    """The entry of a prompt whose word `dropped` lost its space."""
    if place < dropped:
        return entry
    if place > dropped:
        return TokenEntry(entry.token, entry.top, entry.offset - 1)
    token = entry.token
    bare = TokenSpelling(token.id, token.text[1:], token.bytes, token.logprob)
    return TokenEntry(bare, entry.top, entry.offset)
