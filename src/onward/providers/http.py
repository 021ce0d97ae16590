"""What providers over HTTP have in common: an address, a key, a pool of connections."""

import ssl
from urllib.parse import urlsplit

from onward import __version__
from onward.providers.connection import HttpAnswer, Timeouts
from onward.providers.pool import Pool
from onward.providers.protocol import Protocols, ProviderStatus


class HttpProvider:
    """`providers.protocol.Provider` over HTTP/1.1."""

    def __init__(
        self,
        protocol: Protocols,
        secrets: list[tuple[bytes, bytes]],
        *,
        name: str,
        base_url: str,
        surfaces: frozenset[str],
        connect_timeout_s: float = 5,
        first_byte_timeout_s: float = 300,
        idle_timeout_s: float = 60,
        connections: int = 1000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`secrets`: header fields that say who we are. `tls`: instead of the system's own trust."""
        address = urlsplit(base_url)
        host = address.hostname or ""
        secure = address.scheme == "https"
        self.name = name
        self.protocol = protocol
        self.surfaces = surfaces
        self._path = address.path.rstrip("/").encode()
        shown = f"[{host}]" if ":" in host else host
        named = shown if address.port is None else f"{shown}:{address.port}"
        fields = [
            (b"host", named.encode("idna") if not named.isascii() else named.encode()),
            *secrets,
            (b"accept", b"application/json, text/event-stream"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", f"onward/{__version__}".encode()),
        ]
        self._head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self._pool = Pool(
            name,
            host,
            address.port or (443 if secure else 80),
            tls=(tls or ssl.create_default_context()) if secure else None,
            timeouts=Timeouts(connect_timeout_s, first_byte_timeout_s, idle_timeout_s),
            most=connections,
        )

    async def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> HttpAnswer:
        """POST `body` and wait for the header of the answer."""
        head = b"POST %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            self._path,
            path.encode(),
            self._head,
            b"".join(b"%b: %b\r\n" % field for field in headers),
            len(body),
        )
        connection = await self._pool.take()
        return await connection.request(head, body)

    def status(self) -> ProviderStatus:
        """A look at its connections."""
        return self._pool.status()

    async def close(self) -> None:
        """Cut every connection."""
        self._pool.close()
