"""What tokens cost: integers of 10^-9 of the currency, rounded up, once for each request."""

from typing import Final

from onward.core.price import Price
from onward.core.usage import Usage

_MILLION: Final = 1_000_000


def charge(price: Price, usage: Usage) -> int:
    """The cost of a request (K-9). Cached prompt tokens are counted once, at their own price."""
    prompt, cached = usage.prompt_tokens, usage.cached_tokens
    if cached > prompt:  # noqa: PLR1730 - `min` costs as much as all the rest
        cached = prompt
    total = (
        (prompt - cached) * price.input + cached * price.cached_input + usage.completion_tokens * price.output
    )
    return -(-total // _MILLION)


def worst_case(price: Price, prompt_tokens: int, completion_tokens: int) -> int:
    """The most that a request can cost, whatever of its prompt turns out to be cached."""
    total = prompt_tokens * max(price.input, price.cached_input) + completion_tokens * price.output
    return -(-total // _MILLION)


def affordable_completion(price: Price, prompt_tokens: int, available: int) -> int:
    """The most completion tokens whose worst case `available` carries; below 1: none (K-10).

    Meaningless for a price without `output`: then any number is carried or none.
    """
    left = available * _MILLION - prompt_tokens * max(price.input, price.cached_input)
    if left < 0:
        return 0
    return left // price.output if price.output else 2**62
