"""A wish for more reasoning or less, as the effort that a model takes."""

from collections.abc import Iterator
from typing import Final

import msgspec

from onward.core.request import ChatRequest, Thinking
from onward.serve.model import ServedModel

_LOW, _MEDIUM, _HIGH = "low", "medium", "high"
_BUDGETS: Final = ((4_096, _LOW), (16_384, _MEDIUM))
"""Tokens of reasoning up to which a budget is low, and medium."""


def with_effort(served: ServedModel, request: ChatRequest) -> ChatRequest:
    """The request with the effort nearest to its wish; none, where the model has no choice."""
    wish, renderer = request.thinking, served.renderer
    if wish is None or renderer is None or request.reasoning_effort is not None:
        return request
    for effort in _efforts(wish):
        if renderer.takes_effort(effort):
            return msgspec.structs.replace(request, reasoning_effort=effort)
    return request


def _efforts(wish: Thinking) -> Iterator[str | bool]:
    """What the wish means, the nearest first."""
    if wish.on is False:
        yield from (False, "none", "minimal", _LOW)
        return
    level = wish.effort
    if level is None and wish.budget is not None:
        level = next((name for most, name in _BUDGETS if wish.budget <= most), _HIGH)
    if level is not None:
        yield level
        if level in ("xhigh", "max"):
            yield _HIGH
    if wish.on:
        yield from (True, _HIGH)
