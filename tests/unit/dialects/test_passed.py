"""What is read of bodies that go on to a provider, where a dialect leaves their values to it."""

import pytest

from onward.dialects.interpreter import read
from onward.dialects.tokens import TOKENS
from onward.dialects.values import INT32_HIGH


@pytest.mark.covers("K-10")
@pytest.mark.parametrize("name", ["best_of", "max_tokens"])
@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (3, 3),
        (INT32_HIGH, INT32_HIGH),
        (INT32_HIGH + 1, INT32_HIGH),
        (10**400, INT32_HIGH),
        (-1, None),
        ("3", None),
    ],
    ids=["taken", "highest", "too high", "far too high", "too low", "no number"],
)
def test_a_number_that_is_too_high_counts_as_the_highest(name, value, counts):
    """A provider may take it: were it as if absent, less would be held the more is asked for."""
    found = read(TOKENS.passed["completions"], {"model": "m", name: value})
    assert found.get(name) == counts
