"""Who pays for a request: its key and the key's tenant, from their accounts of the month that it is.

What is the same for all requests of a key is made once, and again when the key or its tenant changes,
or the month.
"""

from datetime import UTC, datetime
from typing import Final

from onward.admission.demand import counts_money
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Account, AccountKind

_MOST_PAYERS: Final = 10_000
_DAY_MS: Final = 86_400_000


class Payer:
    """A key and its accounts, as long as nothing about it changes."""

    __slots__ = ("accounts", "counts_money", "key", "key_id", "key_name", "tenant", "tenant_name")

    def __init__(self, key: Key | None, tenant: Tenant | None, month: str) -> None:
        self.key = key
        self.tenant = tenant
        self.key_id = None if key is None else key.id
        self.key_name = None if key is None else key.name
        self.tenant_name = None if tenant is None else tenant.name
        self.counts_money = counts_money(key, tenant)
        self.accounts = () if key is None else _accounts_of(key, tenant, month)


class Payers:
    """Knows the keys that were used last."""

    def __init__(self) -> None:
        self._from_ms = self._before_ms = 0
        """The day that it is."""
        self._month = ""
        self._known: dict[str, Payer] = {}

    def payer(self, key: Key | None, tenant: Tenant | None, at_ms: int) -> Payer:
        """Who pays for a request admitted at `at_ms`. The month is that of the admission, also of a request
        that runs into the next.
        """
        if not self._from_ms <= at_ms < self._before_ms:
            self._turn(at_ms // _DAY_MS)
        if key is None:
            return Payer(None, tenant, self._month)
        known = self._known.get(key.id)
        if known is not None and known.key is key and known.tenant is tenant:
            return known
        if len(self._known) >= _MOST_PAYERS:
            self._known.clear()
        payer = self._known[key.id] = Payer(key, tenant, self._month)
        return payer

    def _turn(self, day: int) -> None:
        """It is another day."""
        self._from_ms, self._before_ms = day * _DAY_MS, (day + 1) * _DAY_MS
        month = datetime.fromtimestamp(day * _DAY_MS / 1000, UTC).strftime("%Y-%m")
        if month != self._month:
            self._month = month
            self._known.clear()


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
