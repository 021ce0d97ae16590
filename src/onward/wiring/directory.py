"""Keys and tenants of a config, as admission knows them."""

from onward.admission.keys import Key, Tenant, TenantStatus
from onward.core.money import parse_amount
from onward.wiring import config as settings


def keys_of(config: settings.Config) -> list[Key]:
    """The keys of a loaded config."""
    return [
        Key(
            id=key.name,
            name=key.name,
            sha256=bytes.fromhex(key.sha256),
            tenant=key.tenant,
            models=None if key.models is None else frozenset(key.models),
            monthly_cap=_amount(key.monthly_cap),
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            concurrency=key.concurrency,
        )
        for key in config.keys
    ]


def tenants_of(config: settings.Config) -> list[Tenant]:
    """The tenants of a loaded config. Their opening balances are credited elsewhere, once."""
    return [
        Tenant(
            name=tenant.name,
            status=TenantStatus(tenant.status),
            prepaid=tenant.balance is not None,
            monthly_budget=_amount(tenant.monthly_budget),
            agreements=frozenset(tenant.agreements),
        )
        for tenant in config.tenants
    ]


def _amount(text: str | None) -> int | None:
    return None if text is None else parse_amount(text)
