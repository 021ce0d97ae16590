"""Keys and tenants as their operator sees and changes them, with what they spent.

Those of the config are fixed; those of the store join them. Where both have one of the same name the
config's counts, as it does for callers. No I/O but through the store.
"""

import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from onward.admission.keys import Key, Tenant, TenantStatus, digest
from onward.admission.store import Money, Store, StoredKey
from onward.core.clock import Clock
from onward.core.failure import Failure, FailureKind, excerpt, invalid

SHORTEST_TOKEN: Final = 16
"""Characters of the token that lets operators change a roster."""
_PREFIX: Final = 8
"""Characters of a secret that are kept; 38 random ones stay unknown."""
_CURSOR: Final = re.compile(r"config:(\d{1,9})|store:(.{0,100})")


class Source(StrEnum):
    """Where a key or tenant is written down."""

    CONFIG = "config"
    STORE = "store"


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator chooses of a key, as `Key` means it. UNSET: as it is; of a new one its default."""

    name: str | UnsetType = UNSET
    tenant: str | UnsetType | None = UNSET
    models: frozenset[str] | UnsetType | None = UNSET
    monthly_cap: int | UnsetType | None = UNSET
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    concurrency: int | UnsetType | None = UNSET


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator chooses of a tenant, as `Tenant` means it. UNSET likewise."""

    status: TenantStatus | UnsetType = UNSET
    prepaid: bool | UnsetType = UNSET
    monthly_budget: int | UnsetType | None = UNSET
    agreements: frozenset[str] | UnsetType = UNSET


class KnownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, and what is known of its use. Times are Unix milliseconds."""

    key: Key
    source: Source
    month: Money | None
    """Its spending in this calendar month (UTC). None: there is no store."""
    prefix: str | None = None
    """The first characters of the secret."""
    created_ms: int | None = None
    last_used_ms: int | None = None
    revoked_ms: int | None = None


class KnownTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant and its money."""

    tenant: Tenant
    source: Source
    month: Money | None
    """Its spending in this calendar month (UTC). None: there is no store."""
    balance: Money | None
    """None: it is not prepaid, or there is no store."""


class Roster:
    """All keys and tenants. Raises `Failure` with the name of the field that must change."""

    def __init__(
        self,
        store: Store | None,
        *,
        keys: Sequence[Key],
        tenants: Sequence[Tenant],
        models: Collection[str],
        clock: Clock,
    ) -> None:
        """`keys`, `tenants`: of the config. `models`: IDs of all models."""
        self._store = store
        self._keys = list(keys)
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._models = models
        self._clock = clock

    def this_month(self) -> str:
        """Such as ``2026-11``, in UTC."""
        return datetime.fromtimestamp(self._clock.unix(), UTC).strftime("%Y-%m")

    async def keys(self, cursor: str | None, limit: int) -> tuple[list[KnownKey], str | None]:
        """A page of all keys, revoked ones too: the config's, then the others by age; the next cursor."""
        start, after = self._place(cursor)
        fixed = self._keys[start : start + limit]
        end = start + len(fixed)
        if end < len(self._keys):
            return await self._known(fixed), f"config:{end}"
        known = await self._known(fixed)
        if self._store is None:
            return known, None
        room = limit - len(fixed)
        found = await self._store.keys(after=after or None, limit=room + 1)
        shown = found[:room]
        known += await self._known(shown)
        more = len(found) > room
        return known, f"store:{shown[-1].key.id if shown else after}" if more else None

    async def key(self, key_id: str) -> KnownKey:
        """One key by its ID. Raises UNKNOWN_ROUTE."""
        [known] = await self._known([await self._key(key_id)])
        return known

    async def key_named(self, name: str) -> KnownKey:
        """One key by its ID, or by its name if it is living. Raises UNKNOWN_ROUTE."""
        try:
            return await self.key(name)
        except Failure as failure:
            if failure.kind is not FailureKind.UNKNOWN_ROUTE:
                raise
            directory = None if self._store is None else await self._store.directory()
            for key in [] if directory is None else directory.keys:
                if key.name == name:
                    return await self.key(key.id)
            raise

    async def key_id(self, named: str) -> str:
        """The ID of a key that is named by it or by its name. What is no key any more stays as it is."""
        try:
            return (await self.key_named(named)).key.id
        except Failure as failure:
            if failure.kind is not FailureKind.UNKNOWN_ROUTE:
                raise
            return named

    async def create_key(self, settings: KeySettings) -> tuple[KnownKey, str]:
        """A new key, and its secret, which nobody can be told again."""
        store = self._kept()
        await self._check_key(settings)
        secret = f"on-{secrets.token_urlsafe(32)}"
        at_ms = self._now()
        key_id = f"key_{at_ms:012x}{secrets.token_hex(6)}"
        key = Key(id=key_id, sha256=digest(secret), **_chosen(settings))
        stored = await store.add_key(key, prefix=secret[:_PREFIX], at_ms=at_ms)
        [known] = await self._known([stored])
        return known, secret

    async def change_key(self, key_id: str, settings: KeySettings) -> KnownKey:
        """Change what `settings` name."""
        store, found = self._kept(), await self._key(key_id)
        if isinstance(found, Key):
            raise _fixed("key", found.name)
        await self._check_key(settings)
        changed = None
        if found.revoked_ms is None:
            changed = await store.change_key(msgspec.structs.replace(found.key, **_chosen(settings)))
        if changed is None:
            raise invalid(None, "This key is revoked, so nothing of it can be changed. Make a new one.")
        [known] = await self._known([changed])
        return known

    async def revoke_key(self, key_id: str) -> KnownKey:
        """Refuse it from now on. Revoking twice changes nothing."""
        store, found = self._kept(), await self._key(key_id)
        if isinstance(found, Key):
            raise _fixed("key", found.name)
        revoked = await store.revoke_key(found.key.id, self._now())
        [known] = await self._known([revoked or found])
        return known

    async def tenants(self, after: str | None, limit: int) -> tuple[list[KnownTenant], str | None]:
        """A page of all tenants by name; the next cursor."""
        every = await self._all_tenants()
        names = sorted(name for name in every if after is None or name > after)
        shown = names[:limit]
        more = len(names) > limit
        return await self._with_money([every[name] for name in shown]), shown[-1] if more else None

    async def tenant(self, name: str) -> KnownTenant:
        """One tenant. Raises UNKNOWN_ROUTE."""
        [known] = await self._with_money([await self._tenant(name)])
        return known

    async def create_tenant(self, name: str, settings: TenantSettings, opening: int | None) -> KnownTenant:
        """A new tenant. `opening`: prepaid, with this balance."""
        store, chosen = self._kept(), _chosen(settings)
        self._check_models("agreements", settings.agreements)
        if name in self._tenants:
            raise invalid("name", f"There is a tenant '{excerpt(name)}' in the config. Choose another name.")
        if opening is not None:
            chosen["prepaid"] = True
        await store.add_tenant(Tenant(name=name, **chosen), self._now())
        if opening:
            await store.credit(name, opening, note="opening balance", at_ms=self._now())
        return await self.tenant(name)

    async def change_tenant(self, name: str, settings: TenantSettings) -> KnownTenant:
        """Change what `settings` name."""
        store, tenant = self._kept(), await self._tenant(name)
        if name in self._tenants:
            raise _fixed("tenant", name)
        self._check_models("agreements", settings.agreements)
        await store.change_tenant(msgspec.structs.replace(tenant, **_chosen(settings)))
        return await self.tenant(name)

    async def credit(self, name: str, amount: int, *, note: str, once: str | None = None) -> KnownTenant:
        """Add to a balance, or take from it; with the same `once` only the first time.

        The first credit makes a tenant prepaid: from then on it spends what was paid in and no more.
        """
        store, tenant = self._kept(), await self._tenant(name)
        if not tenant.prepaid:
            if name in self._tenants:
                raise invalid(
                    None,
                    f"The tenant '{excerpt(name)}' of the config is not prepaid. Give it a balance there.",
                )
            if amount < 0:
                raise invalid(
                    "amount", "This tenant is not prepaid, so nothing can be taken from its balance."
                )
            # in this order nothing is given away if we die in between
            await store.change_tenant(msgspec.structs.replace(tenant, prepaid=True))
        await store.credit(name, amount, note=note, at_ms=self._now(), once=once)
        return await self.tenant(name)

    def _now(self) -> int:
        return int(self._clock.unix() * 1000)

    def _kept(self) -> Store:
        if self._store is None:
            raise invalid(
                None,
                "There is no store ([store] url is none), so keys and tenants stand in the config alone.",
            )
        return self._store

    def _place(self, cursor: str | None) -> tuple[int, str]:
        if cursor is None:
            return 0, ""
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise invalid("cursor", "This cursor is none of ours. Use the one that the page before gave.")
        return (int(found[1]), "") if found[1] is not None else (len(self._keys), found[2])

    async def _key(self, key_id: str) -> Key | StoredKey:
        for key in self._keys:
            if key.id == key_id:
                return key
        stored = None if self._store is None else await self._store.key(key_id)
        if stored is None:
            raise Failure(FailureKind.UNKNOWN_ROUTE, f"There is no key '{excerpt(key_id)}'.")
        return stored

    async def _known(self, keys: Sequence[Key | StoredKey]) -> list[KnownKey]:
        month = self.this_month()
        ids = [one.id if isinstance(one, Key) else one.key.id for one in keys]
        spending = await self._money([f"key:{key_id}:{month}" for key_id in ids])
        return [
            KnownKey(key=one, source=Source.CONFIG, month=spent)
            if isinstance(one, Key)
            else KnownKey(
                key=one.key,
                source=Source.STORE,
                month=spent,
                prefix=one.prefix,
                created_ms=one.created_ms,
                last_used_ms=one.last_used_ms,
                revoked_ms=one.revoked_ms,
            )
            for one, spent in zip(keys, spending, strict=True)
        ]

    async def _all_tenants(self) -> dict[str, Tenant]:
        stored = [] if self._store is None else (await self._store.directory()).tenants
        return {tenant.name: tenant for tenant in stored} | self._tenants

    async def _tenant(self, name: str) -> Tenant:
        tenant = self._tenants.get(name) or (await self._all_tenants()).get(name)
        if tenant is None:
            raise Failure(FailureKind.UNKNOWN_ROUTE, f"There is no tenant '{excerpt(name)}'.")
        return tenant

    async def _with_money(self, tenants: list[Tenant]) -> list[KnownTenant]:
        month = self.this_month()
        spending = await self._money([f"tenant:{tenant.name}:{month}" for tenant in tenants])
        balances = await self._money([f"balance:{tenant.name}" for tenant in tenants])
        return [
            KnownTenant(
                tenant=tenant,
                source=Source.CONFIG if tenant.name in self._tenants else Source.STORE,
                month=spent,
                balance=balance if tenant.prepaid else None,
            )
            for tenant, spent, balance in zip(tenants, spending, balances, strict=True)
        ]

    async def _money(self, accounts: list[str]) -> Sequence[Money | None]:
        if self._store is None or not accounts:
            return [None] * len(accounts)
        return await self._store.money(accounts)

    async def _check_key(self, settings: KeySettings) -> None:
        if any(key.name == settings.name for key in self._keys):
            raise invalid("name", "There is a key of this name in the config. Choose another name.")
        self._check_models("models", settings.models)
        tenant = settings.tenant
        if isinstance(tenant, str) and tenant not in await self._all_tenants():
            raise invalid("tenant", f"There is no tenant '{excerpt(tenant)}'. Create it first.")

    def _check_models(self, field: str, models: Iterable[str] | UnsetType | None) -> None:
        if models is None or isinstance(models, UnsetType):
            return
        for model in sorted(models):
            if model not in self._models:
                raise invalid(
                    field, f"There is no model with the ID '{excerpt(model)}'. Name one that there is."
                )


def _chosen(settings: KeySettings | TenantSettings) -> dict[str, Any]:
    every = ((name, getattr(settings, name)) for name in settings.__struct_fields__)
    return {name: value for name, value in every if value is not UNSET}


def _fixed(what: str, name: str) -> Failure:
    return invalid(
        None,
        f"The {what} '{excerpt(name)}' stands in the config and cannot be changed here. Change it there.",
    )
