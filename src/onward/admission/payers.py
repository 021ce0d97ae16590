"""The accounts that pay for a request: those of its key and of the key's tenant, in the month that it is.

They are made once for each key, and again when it or its tenant changes, or the month.
"""

from datetime import UTC, datetime

import msgspec

from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Account, AccountKind

_MOST_PAYERS = 10_000
_DAY_MS = 86_400_000


class _Payer(msgspec.Struct, frozen=True, gc=False):
    """The accounts of a key, as long as nothing about it changes."""

    key: Key
    tenant: Tenant | None
    month: str
    accounts: tuple[Account, ...]


class Payers:
    """Knows the accounts of the keys that were used last."""

    def __init__(self) -> None:
        self._day, self._month = 0, ""
        self._known: dict[str, _Payer] = {}

    def accounts(self, key: Key | None, tenant: Tenant | None, at_ms: int) -> tuple[Account, ...]:
        """Who pays for a request admitted at `at_ms`. The month is that of the admission, also of a request
        that runs into the next.
        """
        if key is None:
            return ()
        day = at_ms // _DAY_MS
        if day != self._day:
            self._day = day
            self._month = datetime.fromtimestamp(day * _DAY_MS / 1000, UTC).strftime("%Y-%m")
        known = self._known.get(key.id)
        if known and known.key is key and known.tenant is tenant and known.month == self._month:
            return known.accounts
        if len(self._known) >= _MOST_PAYERS:
            self._known.clear()
        payer = _Payer(key, tenant, self._month, _accounts_of(key, tenant, self._month))
        self._known[key.id] = payer
        return payer.accounts


def _accounts_of(key: Key, tenant: Tenant | None, month: str) -> tuple[Account, ...]:
    accounts: list[Account] = []
    if tenant is not None:
        if tenant.prepaid:
            accounts.append(Account(f"balance:{tenant.name}", AccountKind.BALANCE))
        accounts.append(
            Account(f"tenant:{tenant.name}:{month}", AccountKind.TENANT_MONTH, tenant.monthly_budget)
        )
    accounts.append(Account(f"key:{key.id}:{month}", AccountKind.KEY_MONTH, key.monthly_cap))
    return tuple(accounts)
