"""A provider that speaks Anthropic's Messages API: in the catalog, not called yet (K-6)."""

from collections.abc import Collection

from onward.core.failure import Failure, FailureKind
from onward.providers.address import Address
from onward.providers.protocol import Answer, Protocols, ProviderStatus


class AnthropicProvider:
    """Implements `Provider`, save that it sends nothing."""

    protocol = Protocols.ANTHROPIC

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None = None,
        surfaces: Collection[str] = ("messages",),
        **_: float,
    ) -> None:
        """As `OpenAiProvider`. Raises ValueError for an address that cannot be used."""
        del api_key
        Address.parse(base_url)
        self.name = name
        self.surfaces = frozenset(surfaces)

    async def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        """Raise: no route leads here yet."""
        del path, body, headers
        message = "The provider of this model takes no requests of this kind. Ask for another model."
        raise Failure(FailureKind.SURFACE_UNSUPPORTED, message)

    def conceal(self, text: str) -> str:
        """See `Provider.conceal`. No key was ever sent."""
        return text

    def status(self) -> ProviderStatus:
        """No connections."""
        return ProviderStatus()

    async def close(self) -> None:
        """Nothing to close."""
