"""What a model's tokens cost."""

import msgspec


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Prices per million tokens, in units of 10^-9 of the currency."""

    input: int
    cached_input: int
    output: int
