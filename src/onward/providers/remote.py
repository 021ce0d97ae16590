"""What providers have in common, whichever API they speak: a name, a key, and the client of their address."""

import ssl
from collections.abc import Collection, Coroutine
from typing import Any, ClassVar

from onward import __version__
from onward.providers.bounds import Bounds
from onward.providers.client import Client
from onward.providers.protocol import ROUTES, Answer, Protocols, ProviderStatus


class RemoteProvider:
    """Implements `Provider`, for the API that a subclass names."""

    protocol: ClassVar[Protocols]
    key_header: ClassVar[tuple[bytes, bytes]]
    """The header that holds the key, and what stands before the key in it."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None = None,
        surfaces: Collection[str] | None = None,
        connect_timeout_s: float = 5,
        first_byte_timeout_s: float = 300,
        idle_timeout_s: float = 60,
        connections: int = 1000,
        waiting: int = 1000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`surfaces` None: all of its API. `tls` stands in for a context that verifies by the system's
        authorities.

        Raises ValueError for an address or a key that cannot be sent; the message repeats neither.
        """
        self.name = name
        self.surfaces = frozenset(ROUTES[self.protocol] if surfaces is None else surfaces)
        bounds = Bounds(
            connect_s=connect_timeout_s,
            first_byte_s=first_byte_timeout_s,
            idle_s=idle_timeout_s,
            connections=connections,
            waiting=waiting,
        )
        self._key = api_key
        self._client = Client(name, base_url, self._headers(api_key), bounds, tls)

    def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Coroutine[Any, Any, Answer]:
        """See `Provider.send`."""
        return self._client.post(path, body, headers)

    def conceal(self, text: str) -> str:
        """See `Provider.conceal`."""
        return text.replace(self._key, "…") if self._key else text

    def status(self) -> ProviderStatus:
        """See `Provider.status`."""
        return self._client.status()

    async def close(self) -> None:
        """Close all connections; whoever waits for an answer is failed."""
        await self._client.close()

    def _headers(self, api_key: str | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"user-agent", b"onward/" + __version__.encode("ascii"))]
        if api_key:
            name, before = self.key_header
            try:
                headers.append((name, before + api_key.encode("latin-1")))
            except UnicodeEncodeError:
                raise ValueError("the key of a provider holds characters that cannot be sent") from None
        return headers
