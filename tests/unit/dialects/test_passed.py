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
        ("many", None),
        (True, None),
    ],
    ids=["taken", "highest", "too high", "far too high", "too low", "no number", "boolean"],
)
def test_a_number_that_is_too_high_counts_as_the_highest(name, value, counts):
    """A provider may take it: were it as if absent, less would be held the more is asked for."""
    found = read(TOKENS.passed["completions"], {"model": "m", name: value})
    assert found.get(name) == counts


@pytest.mark.covers("K-10")
@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("3.0", 3),
        (2.5, 3),
        ("1e3", 1000),
        ("0x10", 16),
        ("9" * 400, INT32_HIGH),
        ("inf", INT32_HIGH),
        ("nan", None),
        ("0", None),
        ("", None),
        ([3], None),
    ],
    ids=str,
)
def test_a_best_of_that_is_no_whole_number_counts_as_what_a_provider_may_read_in_it(value, counts):
    """As 1 it would be held for one candidate, and charged for all that were made."""
    found = read(TOKENS.passed["completions"], {"model": "m", "best_of": value})
    assert found.get("best_of") == counts


@pytest.mark.covers("K-10")
def test_a_limit_that_is_no_number_is_none():
    """It is held as if it were unset, and that is much."""
    found = read(TOKENS.passed["completions"], {"model": "m", "max_tokens": "3"})
    assert found.get("max_tokens") is None
