"""API keys that the config lists: who may call, and which models. Pure."""

import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from onward.core.failure import Failure, FailureKind


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's right to call. The secret itself is never kept."""

    name: str
    sha256: bytes
    """Digest of the secret."""
    models: frozenset[str] | None = None
    """IDs of the models that it may use; None: all."""

    def allows(self, model: str) -> bool:
        """Whether the key may use the model of this ID."""
        return self.models is None or model in self.models


def digest(secret: str) -> bytes:
    """What is kept of a secret. Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Keys:
    """All keys. While there is none, everybody may call."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_digest = {key.sha256: key for key in keys}

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def find(self, secret: str | None) -> Key | None:
        """The caller's key; None while no key exists. Raises INVALID_KEY, without the secret in it.

        The table is asked for a digest, of which a caller cannot choose a prefix, so its timing
        tells nothing of the secrets; the comparison that decides takes the same time for all.
        """
        if not self._by_digest:
            return None
        if not secret:
            raise Failure(
                FailureKind.INVALID_KEY, "No API key was sent. Send one as 'Authorization: Bearer KEY'."
            )
        wanted = digest(secret)
        key = self._by_digest.get(wanted)
        if key is None or not hmac.compare_digest(key.sha256, wanted):
            raise Failure(
                FailureKind.INVALID_KEY, "This API key is not known here. Check it for typing errors."
            )
        return key


def not_allowed(model: str) -> Failure:
    """The failure of a model that the caller's key does not cover."""
    return Failure(
        FailureKind.MODEL_NOT_ALLOWED, f"The model '{model}' is not open to this API key.", param="model"
    )
