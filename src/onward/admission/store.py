"""The port of the durable store: keys, tenants, the ledger. SQLite and PostgreSQL stand behind it.

Every method is atomic, and durable when it returns (`durability` of the config says against what).
Every method raises `Failure` (STORE_DOWN) when the store does not answer; then nothing, or the
whole, was written, and repeating an `apply` is harmless: operations are idempotent by request ID.
"""

from typing import Protocol

import msgspec

from onward.admission.idempotency import Claims
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Entry, Operation, Result, State
from onward.core.usage import Usage


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """All keys and tenants of the store (those of the config join them elsewhere)."""

    revision: int
    keys: list[Key]
    """Revoked ones are left out."""
    tenants: list[Tenant]
    cancelled: list[str] = []
    """IDs of requests that an operator has ended and that their processes have not ended yet."""


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the admin API shows it."""

    key: Key
    prefix: str
    """The first characters of the secret, to recognise it by."""
    created_ms: int
    last_used_ms: int | None
    revoked_ms: int | None


class EntryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries, newest first. None: whatever."""

    request_id: str | None = None
    """Ours, or the caller's label."""
    tenant: str | None = None
    key_id: str | None = None
    model: str | None = None
    state: State | None = None
    from_ms: int | None = None
    """At this time or later."""
    before_ms: int | None = None
    cursor: str | None = None
    limit: int = 100


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries; `cursor` gets the next one, None: this was the last."""

    entries: list[Entry]
    cursor: str | None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of ended entries."""

    group_by: tuple[str, ...] = ()
    """Of ``model``, ``key``, ``tenant``, ``day``, ``month``, ``surface``."""
    tenant: str | None = None
    key_id: str | None = None
    model: str | None = None
    from_ms: int | None = None
    before_ms: int | None = None


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group's sums."""

    group: dict[str, str | None]
    """The values that it stands for, by the names of `group_by`; a key by its name."""
    requests: int
    usage: Usage
    charged: int
    estimated: int
    """How many of the requests have estimated usage."""


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """An account's numbers."""

    id: str
    credited: int
    """Of a balance: what was paid in."""
    spent: int
    held: int


class Store(Claims, Protocol):
    """Keys, tenants, the ledger, and the names of requests."""

    async def apply(self, operations: list[Operation]) -> list[Result]:
        """Write a batch in order; one result for each. All of it is durable on return.

        A `Reserve` of a request ID that is held already is `Granted` again, as it was the first time; one
        that has ended is never held again: `Done(ended=False)`, or `Refused` where an account could not
        carry it anyway. ValueError for an amount below 0; nothing of the batch is written then.
        """
        ...

    async def renew(self, lease: str, until_ms: int) -> None:
        """Say that a lease's process lives, until then at least."""
        ...

    async def expire_leases(self, now_ms: int, keep: frozenset[str]) -> int:
        """Expire the reservations of leases that ran out and are not among `keep`; how many ended.

        Reservations of a lease that was never renewed count as run out.
        """
        ...

    async def revision(self) -> int:
        """A number that changes with every change of a key or tenant, and with every cancelled request."""
        ...

    async def directory(self) -> Directory: ...

    async def add_key(self, key: Key, *, prefix: str, at_ms: int) -> StoredKey:
        """Raises `Failure` (INVALID_REQUEST, param `name`) if its name is taken by a living key."""
        ...

    async def change_key(self, key: Key) -> StoredKey | None:
        """Replace what can change (all but `id` and `sha256`). None: there is none such, or it is revoked."""
        ...

    async def revoke_key(self, key_id: str, at_ms: int) -> StoredKey | None:
        """It is refused from now on. Revoking twice changes nothing. None: there is none such."""
        ...

    async def keys(self, *, after: str | None, limit: int) -> list[StoredKey]:
        """All keys, revoked ones too, by ID."""
        ...

    async def key(self, key_id: str) -> StoredKey | None: ...

    async def touch_keys(self, used: dict[str, int]) -> None:
        """Note the last use (Unix milliseconds) of keys by ID; keys of the config are kept nowhere."""
        ...

    async def add_tenant(self, tenant: Tenant, at_ms: int) -> None:
        """Raises `Failure` (INVALID_REQUEST, param `name`) if its name is taken."""
        ...

    async def change_tenant(self, tenant: Tenant) -> bool:
        """Replace all but its name. False: there is none such."""
        ...

    async def credit(
        self, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None = None
    ) -> Money:
        """Add to (or, negative, take from) a tenant's balance. `once`: only the first time with this word.

        Raises `Failure` (INVALID_REQUEST, param `amount`) where it would leave less than is spent and held.
        """
        ...

    async def cancel(self, request_id: str) -> bool:
        """Note that a request is to end: its process reads that in the directory. False: it does not run."""
        ...

    async def money(self, account_ids: list[str]) -> list[Money]:
        """Accounts by ID; zeros for those that nothing was written to yet."""
        ...

    async def entries(self, query: EntryQuery) -> EntryPage: ...

    async def usage(self, query: UsageQuery) -> list[UsageRow]: ...

    async def prune(self, attempts_before_ms: int) -> int:
        """Forget attempts that are older (the request log; the entries are kept); how many."""
        ...

    async def close(self) -> None: ...
