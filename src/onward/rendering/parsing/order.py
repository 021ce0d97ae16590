"""The order of what a delta brings: text, reasoning and calls, as the reply has them."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, TypeVar

from onward.core.delta import ChoiceDelta, ToolCallDelta

_Item = TypeVar("_Item")
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
    ranked = (reasoning, content, calls)
    ranks = [next(rank for rank, one in enumerate(ranked) if one is noted) for noted, _ in order]
    found: list[ChoiceDelta] | None = None
    if any(after <= before for before, after in pairwise(ranks)):
        found = []
        ends = [len(one) for one in ranked]
        for rank, (noted, start) in reversed(list(zip(ranks, order, strict=True))):
            items, ends[rank] = noted[start : ends[rank]], start
            if rank == 2:
                part = ChoiceDelta(index=index, tool_calls=items)
            elif rank == 1:
                part = ChoiceDelta(index=index, text="".join(items))
            else:
                part = ChoiceDelta(index=index, reasoning="".join(items))
            found.append(part)
        found.reverse()
    order.clear()
    return found
