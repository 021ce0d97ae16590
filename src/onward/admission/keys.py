"""Keys and tenants: who may call, which models, how much, and who pays. Pure."""

import hashlib
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


def not_allowed(model: str) -> Failure:
    """The failure of a model that the caller's key does not cover."""
    return Failure(
        FailureKind.MODEL_NOT_ALLOWED, f"The model '{model}' is not open to this API key.", param="model"
    )
