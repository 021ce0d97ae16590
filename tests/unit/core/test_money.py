"""Decimal strings of money."""

import pytest

from onward.core.money import NANO, format_amount, parse_amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("0.40", 4 * NANO // 10), ("999999999.999999999", 10**18 - 1), ("1.000000001", NANO + 1)],
)
def test_an_amount_is_read_exactly(text: str, amount: int):
    assert parse_amount(text) == amount
    assert parse_amount(format_amount(amount)) == amount


@pytest.mark.parametrize("text", ["1000000000", "1000000000.5", "12345678901234567890"])
def test_an_amount_that_is_too_large_is_called_so(text: str):
    with pytest.raises(ValueError, match="must be less than 1000000000"):
        parse_amount(text)


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1,5", "1.", ".5", "1.0000000001", "1_000", "１"])
def test_what_is_no_amount(text: str):
    with pytest.raises(ValueError, match="must be a decimal string"):
        parse_amount(text)
