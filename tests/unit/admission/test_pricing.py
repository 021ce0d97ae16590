"""What tokens cost: whole units, rounded up, once for each request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.admission.pricing import affordable_completion, charge, worst_case
from onward.core.money import parse_amount
from onward.core.price import Price
from onward.core.usage import Usage

PRICE = Price(input=parse_amount("0.10"), cached_input=parse_amount("0.02"), output=parse_amount("0.40"))
prices = st.integers(0, 10**12)
tokens = st.integers(0, 10**7)


@pytest.mark.covers("K-9")
@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(0, 0, 0), 0),
        (Usage(1, 0, 0), 100),
        (Usage(0, 1, 0), 400),
        (Usage(1_000_000, 0, 0), 100_000_000),
        (Usage(1_000_000, 1_000_000, 0), 500_000_000),
        (Usage(10, 5, 4), 6 * 100 + 4 * 20 + 5 * 400),
        (Usage(10, 0, 10), 200),
        (Usage(10, 0, 99), 200),
    ],
    ids=str,
)
def test_cached_tokens_are_counted_once_at_their_own_price(usage: Usage, cost: int):
    assert charge(PRICE, usage) == cost


def test_one_rounding_up():
    """Not one for each sort of token."""
    tiny = Price(input=1, cached_input=1, output=1)
    assert charge(tiny, Usage(1, 0, 0)) == 1
    assert charge(tiny, Usage(400_000, 400_000, 0)) == 1
    assert charge(tiny, Usage(500_000, 500_001, 200_000)) == 2
    assert charge(Price(input=0, cached_input=0, output=0), Usage(10**9, 10**9, 0)) == 0


@given(prices, prices, prices, tokens, tokens, tokens, tokens)
def test_the_worst_case_is_never_too_small(
    given_: int, cached: int, output: int, prompt: int, reused: int, completion: int, most: int
):
    """Also where cached tokens cost more than others, by mistake or not."""
    price = Price(input=given_, cached_input=cached, output=output)
    real = Usage(prompt, min(completion, most), min(reused, prompt))
    assert charge(price, real) <= worst_case(price, prompt, most)


@given(prices, prices, st.integers(1, 10**12), tokens, st.integers(0, 10**15))
def test_what_is_affordable_is_exactly_that(
    given_: int, cached: int, output: int, prompt: int, available: int
):
    price = Price(input=given_, cached_input=cached, output=output)
    carried = affordable_completion(price, prompt, available)
    if worst_case(price, prompt, 0) > available:
        assert carried < 1
        return
    assert worst_case(price, prompt, carried) <= available
    assert worst_case(price, prompt, carried + 1) > available


def test_free_output_is_carried_or_not():
    free = Price(input=10**6, cached_input=0, output=0)
    assert affordable_completion(free, 10, 10) >= 10**9
    assert affordable_completion(free, 10, 9) < 1
