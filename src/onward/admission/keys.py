"""Keys and tenants: who may call, which models, how much, and who pays. Pure."""

import hashlib
import hmac
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from onward.core.failure import Failure, FailureKind


class TenantStatus(StrEnum):
    """Whether a tenant is served."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    UNPAID = "unpaid"


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who pays."""

    name: str
    status: TenantStatus = TenantStatus.ACTIVE
    prepaid: bool = False
    """Whether it can spend what was credited and no more."""
    monthly_budget: int | None = None
    """In units of 10^-9; a calendar month in UTC."""
    agreements: frozenset[str] = frozenset()
    """IDs of models whose terms it has accepted."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's right to call. The secret itself is never kept."""

    id: str
    """For ever its own; of a key of the config its name."""
    name: str
    sha256: bytes
    """Digest of the secret."""
    tenant: str | None = None
    models: frozenset[str] | None = None
    """IDs of the models that it may use; None: all."""
    monthly_cap: int | None = None
    """In units of 10^-9; a calendar month in UTC."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    """Requests at once."""

    def allows(self, model: str) -> bool:
        """Whether the key may use the model of this ID."""
        return self.models is None or model in self.models


def digest(secret: str) -> bytes:
    """What is kept of a secret. Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Keys:
    """All keys, and the tenants that they belong to. As long as there was no key, everybody may call."""

    def __init__(self, keys: Iterable[Key] = (), tenants: Iterable[Tenant] = ()) -> None:
        self.replace(keys, tenants)
        self.available = True
        """False: nobody knows any more whether keys were revoked, so none is trusted."""

    def replace(self, keys: Iterable[Key], tenants: Iterable[Tenant], *, closed: bool = False) -> None:
        """These and no others, from now on. `closed`: there were keys before, which are revoked: whoever
        has none is refused all the same, so that the last one's end lets nobody in.
        """
        self._by_digest = {key.sha256: key for key in keys}
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._closed = closed

    def __bool__(self) -> bool:
        """Whether callers need a key."""
        return self._closed or bool(self._by_digest)

    def find(self, secret: str | None) -> Key | None:
        """The caller's key; None while none is needed. Raises INVALID_KEY, without the secret in it.

        The table is asked for a digest, of which a caller cannot choose a prefix, so its timing
        tells nothing of the secrets; the comparison that decides takes the same time for all.
        """
        return self.find_digest(digest(secret) if secret else None)

    def known(self, wanted: bytes | None) -> Key | None:
        """The key of a digest; None: there is none, or none can be trusted now."""
        return self._by_digest.get(wanted) if wanted is not None and self.available else None

    def find_digest(self, wanted: bytes | None) -> Key | None:
        """As `find`, by the digest of the secret; None: no secret was sent."""
        if not self.available:
            raise Failure(FailureKind.STORE_DOWN, "Keys cannot be checked at the moment. Try again soon.")
        if not self:
            return None
        if wanted is None:
            raise Failure(
                FailureKind.INVALID_KEY, "No API key was sent. Send one as 'Authorization: Bearer KEY'."
            )
        key = self._by_digest.get(wanted)
        if key is None or not hmac.compare_digest(key.sha256, wanted):
            raise Failure(
                FailureKind.INVALID_KEY, "This API key is not known here. Check it for typing errors."
            )
        return key

    def tenant(self, key: Key | None) -> Tenant | None:
        """Who pays for a key, None if nobody does. Raises where the tenant is not served."""
        if key is None or key.tenant is None:
            return None
        tenant = self._tenants.get(key.tenant)
        if tenant is None or tenant.status is TenantStatus.SUSPENDED:
            raise Failure(
                FailureKind.TENANT_SUSPENDED, "The account of this API key is suspended. Ask its operator."
            )
        if tenant.status is TenantStatus.UNPAID:
            raise Failure(
                FailureKind.PAYMENT_REQUIRED, "The account of this API key has not been paid for. Pay first."
            )
        return tenant


def not_allowed(model: str) -> Failure:
    """The failure of a model that the caller's key does not cover."""
    return Failure(
        FailureKind.MODEL_NOT_ALLOWED, f"The model '{model}' is not open to this API key.", param="model"
    )
