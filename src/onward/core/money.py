"""Money as integers of 10^-9 of the currency; no float ever."""

import re

NANO = 1_000_000_000
_DECIMAL = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_LARGE = re.compile(r"\d{10,}(\.\d*)?", re.ASCII)


def parse_amount(text: str) -> int:
    """A decimal string such as ``"0.40"`` in units of 10^-9. ValueError names what is wrong."""
    if _LARGE.fullmatch(text):
        raise ValueError("must be less than 1000000000, written with at most 9 digits in front of the point")
    if not _DECIMAL.fullmatch(text):
        raise ValueError('must be a decimal string such as "0.40", with at most 9 decimals')
    whole, _, fraction = text.partition(".")
    return int(whole) * NANO + int(fraction.ljust(9, "0") or "0")


def format_amount(amount: int) -> str:
    """The decimal string of an amount, with at least two decimals."""
    sign = "-" if amount < 0 else ""
    whole, fraction = divmod(abs(amount), NANO)
    digits = f"{fraction:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{digits}"
