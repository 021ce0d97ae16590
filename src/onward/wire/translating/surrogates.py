r"""Halves of surrogate pairs in what a provider says.

JSON can spell half of a character (``"\ud83d"``). Providers that cut texts by UTF-16 units put one half at
the end of a piece and the other at the start of the next; what we send is UTF-8, which has no halves.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from onward.core.delta import ChoiceDelta, ToolCallDelta

_REPLACEMENT: Final = "\ufffd"
_TEXT: Final = "text"
_REASONING: Final = "reasoning"
Place = str | int
"""The text, the reasoning, or the arguments of a call, by its index."""


def may_hold_halves(data: bytes) -> bool:
    """Whether JSON may spell half of a pair; cheap, and rarely wrong."""
    return b"\\ud" in data or b"\\uD" in data


class Halves:
    """Puts halves together again, over pieces too. A half that stays alone becomes U+FFFD."""

    __slots__ = ("_half", "_place")

    def __init__(self) -> None:
        self._half = ""
        self._place: Place = _TEXT

    @property
    def waits(self) -> bool:
        """Whether the first half of a pair has come, and what follows it has not."""
        return bool(self._half)

    def mend(self, deltas: list[ChoiceDelta]) -> list[ChoiceDelta]:
        """`deltas` without halves; a first half at the end waits for the next ones."""
        return [mended for delta in deltas for mended in self._mended(delta)]

    def _mended(self, delta: ChoiceDelta) -> Iterator[ChoiceDelta]:
        places: set[Place] = {call.index for call in delta.tool_calls}
        places |= {name for name in (_TEXT, _REASONING) if getattr(delta, name)}
        if self._half and (delta.finish is not None or (places and self._place not in places)):
            place, self._half = self._place, ""
            yield _piece(place, _REPLACEMENT)
        delta.reasoning = self._joined(_REASONING, delta.reasoning)
        delta.text = self._joined(_TEXT, delta.text)
        delta.tool_calls = [
            ToolCallDelta(
                call.index, _alone(call.id), _alone(call.name), self._joined(call.index, call.arguments)
            )
            for call in delta.tool_calls
        ]
        delta.stop = _alone(delta.stop)
        if delta.thoughts:
            delta.thoughts = [
                msgspec.structs.replace(
                    one, text=_whole(one.text), signature=_whole(one.signature), sealed=_alone(one.sealed)
                )
                for one in delta.thoughts
            ]
        if not delta.is_empty():
            yield delta

    def _joined(self, place: Place, piece: str) -> str:
        """A piece of one text, behind the half that waits for it."""
        if not piece:
            return piece
        if self._half and self._place == place:
            piece, self._half = self._half + piece, ""
        if not self._half and "\ud800" <= piece[-1] <= "\udbff":
            self._half, self._place, piece = piece[-1], place, piece[:-1]
        return _whole(piece)


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _alone(text: str | None) -> str | None:
    """A text that comes in one piece."""
    return _whole(text) if text else text


def _piece(place: Place, text: str) -> ChoiceDelta:
    if isinstance(place, int):
        return ChoiceDelta(index=0, tool_calls=[ToolCallDelta(place, arguments=text)])
    return msgspec.structs.replace(ChoiceDelta(index=0), **{place: text})
