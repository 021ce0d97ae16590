"""What a request asks of admission: who it is from, what it may use, what that costs."""

import msgspec

from onward.admission.keys import Key, Tenant
from onward.core.price import Price


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a request could take at the most."""

    request_id: str
    label: str | None = None
    key: Key | None
    tenant: Tenant | None
    model: str
    price: Price | None
    surface: str
    prompt_tokens: int
    """Of all prompts; exact where we tokenize, an upper bound where a provider does."""
    choices: int
    """Prompts times the largest of `n` and `best_of`."""
    max_tokens: int
    """Of each choice."""
    lowerable: bool = False
    """Whether `max_tokens` may be lowered to what the balance carries (K-10)."""
    config_version: str = ""
    """Of the config by which it is answered."""


def counts_money(key: Key | None, tenant: Tenant | None) -> bool:
    """Whether something limits what a caller may spend."""
    limited = tenant is not None and (tenant.prepaid or tenant.monthly_budget is not None)
    return limited or (key is not None and key.monthly_cap is not None)
