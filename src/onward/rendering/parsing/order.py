"""The order of what a delta brings: text, reasoning and calls, as the reply has them."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, TypeVar

from onward.core.delta import ChoiceDelta, ToolCallDelta

_Item = TypeVar("_Item")
_CALLS: Final = 2
Order = list[tuple[list[Any], int]]
"""Lists in the order in which they went on, each with how many items it had before."""


class Noted(list[_Item]):
    """A list that notes in an order when it goes on."""

    __slots__ = ("_order",)

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order: Final = order

    def append(self, item: _Item, /) -> None:
        if not self._order or self._order[-1][0] is not self:
            self._order.append((self, len(self)))
        super().append(item)

    def extend(self, items: Iterable[_Item], /) -> None:
        for item in items:
            self.append(item)


def parts(
    index: int,
    order: Order,
    *,
    reasoning: list[str],
    content: list[str],
    calls: list[ToolCallDelta],
) -> list[ChoiceDelta] | None:
    """What was collected, in order; None where that is reasoning, text, calls. Clears the order."""
    ranked: tuple[list[Any], ...] = (reasoning, content, calls)
    ends = [len(one) for one in ranked]
    runs: list[tuple[int, list[Any]]] = []
    for noted, start in reversed(order):
        rank = next(rank for rank, one in enumerate(ranked) if one is noted)
        items, ends[rank] = noted[start : ends[rank]], start
        if any(items):
            runs.append((rank, items))
    order.clear()
    runs.reverse()
    if all(before < after for (before, _), (after, _) in pairwise(runs)):
        return None
    return [_part(index, rank, items) for rank, items in runs]


def _part(index: int, rank: int, items: list[Any]) -> ChoiceDelta:
    if rank == _CALLS:
        return ChoiceDelta(index=index, tool_calls=items)
    text = "".join(items)
    return ChoiceDelta(index=index, text=text) if rank else ChoiceDelta(index=index, reasoning=text)
