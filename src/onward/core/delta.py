"""What a request answers, piece by piece; an unstreamed answer is the fold of its pieces."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from onward.core.request import Thought


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


class TokenSpelling(msgspec.Struct, frozen=True, gc=False):
    r"""A token as a caller reads it, with its log probability.

    `text` is the token's own text. A token of partial UTF-8 is spelled ``bytes:\xf0\x9f``, so
    that alternatives stay apart. `bytes` are the token's own, None for a control token.
    """

    id: int
    text: str
    bytes: bytes | None
    logprob: float | None


class TokenEntry(msgspec.Struct, frozen=True, gc=False):
    """One position of a choice's log probabilities."""

    token: TokenSpelling
    top: list[TokenSpelling] | None
    """Best first; holds the token itself if it is among them. None: nothing predicted this
    position (the first token of an echoed prompt)."""
    offset: int
    """Code points of the choice's own text before this token."""


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A tool call, or the next piece of its arguments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class PlainReply(msgspec.Struct, frozen=True):
    """A reply that does not match its model's format, as one text (TH-11)."""

    text: str
    finish: FinishReason


class ChoiceDelta(msgspec.Struct, kw_only=True):
    """The next piece of one choice; with `fold`, also the whole of it."""

    index: int
    text: str = ""
    """Completions: text. Chat: content."""
    reasoning: str = ""
    tool_calls: list[ToolCallDelta] = []
    entries: list[TokenEntry] = []
    """Log probabilities of the tokens newly covered, if asked for."""
    token_ids: list[int] = []
    """The generated IDs newly covered."""
    prompt_token_ids: list[int] | None = None
    """On the first delta of a choice only."""
    finish: FinishReason | None = None
    """Set exactly once, on the last delta of the choice."""
    stop: str | None = None
    """On the last delta of a choice that a stop string ended: which one."""
    thoughts: list[Thought] | None = None
    """Blocks of reasoning, signed or sealed, that end with this delta's `reasoning`. Their text is whole:
    `reasoning` has brought it, piece by piece."""
    parts: "list[ChoiceDelta] | None" = None
    """The same, piece by piece, where the reply's order is not reasoning, text, calls, and was asked for."""
    plain: PlainReply | None = None
    """On the last delta of a reply that turned out malformed: what an unstreamed answer says."""

    def is_empty(self) -> bool:
        """Whether there is nothing in it for a caller."""
        return not (
            self.text
            or self.token_ids
            or self.entries
            or self.reasoning
            or self.tool_calls
            or self.finish
            or self.prompt_token_ids is not None
            or self.thoughts
        )


def fold(deltas: Iterable[ChoiceDelta]) -> list[ChoiceDelta]:
    """All deltas of a request joined, one for each choice, in the order of their index."""
    texts: dict[int, list[ChoiceDelta]] = {}
    for delta in deltas:
        texts.setdefault(delta.index, []).append(delta)
    return [_joined(index, texts[index]) for index in sorted(texts)]


def settled(choice: ChoiceDelta) -> ChoiceDelta:
    """A whole choice as an unstreamed answer tells it: a malformed reply is one text (TH-11)."""
    plain = choice.plain
    if plain is None:
        return choice
    return msgspec.structs.replace(
        choice, text=plain.text, reasoning="", tool_calls=[], thoughts=None, finish=plain.finish, plain=None
    )


def _joined(index: int, pieces: list[ChoiceDelta]) -> ChoiceDelta:
    whole = ChoiceDelta(
        index=index,
        text="".join([piece.text for piece in pieces]),
        reasoning="".join([piece.reasoning for piece in pieces]),
        tool_calls=_joined_calls(pieces),
        entries=[entry for piece in pieces for entry in piece.entries],
        token_ids=[token for piece in pieces for token in piece.token_ids],
    )
    for piece in pieces:
        if piece.prompt_token_ids is not None:
            whole.prompt_token_ids = piece.prompt_token_ids
        if piece.finish is not None:
            whole.finish = piece.finish
            whole.plain = piece.plain
            whole.stop = piece.stop
        if piece.thoughts:
            whole.thoughts = [*(whole.thoughts or ()), *piece.thoughts]
    return whole


def _joined_calls(pieces: list[ChoiceDelta]) -> list[ToolCallDelta]:
    calls: dict[int, ToolCallDelta] = {}
    for piece in pieces:
        for call in piece.tool_calls:
            known = calls.get(call.index)
            calls[call.index] = (
                call
                if known is None
                else ToolCallDelta(
                    call.index, known.id or call.id, known.name or call.name, known.arguments + call.arguments
                )
            )
    return [calls[index] for index in sorted(calls)]
