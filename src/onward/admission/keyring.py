"""The keys that there are: whose a secret is, and who pays for it. Pure."""

import hmac
from collections.abc import Iterable

from onward.admission.keys import Key, Tenant, TenantStatus, digest
from onward.core.failure import Failure, FailureKind


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
