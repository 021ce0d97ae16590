"""Where a provider is: the parts of its `base_url`, and the addresses behind its name."""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType

_KEPT_S = 30.0
"""How long the addresses of a name are used. The loop's resolver tells nothing of their own term."""


@dataclass(frozen=True, slots=True)
class Address:
    """A `base_url`, in parts."""

    host: str
    """As the resolver and TLS want it: ASCII, an IPv6 address without brackets."""
    port: int
    tls: bool
    authority: bytes
    """The value of the header `host`."""
    prefix: bytes
    """The path that routes are appended to: no slash at its end."""

    @classmethod
    def parse(cls, base_url: str) -> Self:
        """Raises ValueError that says what is wrong without repeating the text, which may hold a secret."""
        try:
            parts = urlsplit(base_url)
            port = parts.port
        except ValueError:
            raise ValueError("base_url must be an address such as https://api.example.com/v1") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
            raise ValueError("base_url must be an address such as https://api.example.com/v1")
        if parts.username is not None or parts.password is not None:
            raise ValueError("base_url must hold no user or password")
        if parts.query or parts.fragment:
            raise ValueError("base_url must end with its path: it may have no query and no fragment")
        tls = parts.scheme == "https"
        usual = 443 if tls else 80
        port = port or usual
        try:
            host = parts.hostname.encode("idna").decode("ascii")
            prefix = parts.path.rstrip("/").encode("ascii")
        except UnicodeError:
            raise ValueError("base_url holds a name or a path that cannot be sent; encode it") from None
        sent = host + prefix.decode()
        if not sent.isprintable() or " " in sent:
            raise ValueError("base_url holds a name or a path that cannot be sent; encode it")
        shown = f"[{host}]" if ":" in host else host
        authority = shown if port == usual else f"{shown}:{port}"
        return cls(host=host, port=port, tls=tls, authority=authority.encode("ascii"), prefix=prefix)


@dataclass(slots=True)
class Lookup:
    """The addresses behind a name, by the loop's resolver, kept for a short time.

    However many ask, one question is under way: a resolver that hangs holds one thread.
    """

    address: Address
    kept_s: float = _KEPT_S
    _found: list[AddrInfoType] = field(default_factory=list)
    _until: float = 0.0
    _asking: "asyncio.Task[list[AddrInfoType]] | None" = None

    async def addresses(self) -> list[AddrInfoType]:
        """In the resolver's order, at least one. Raises OSError."""
        if self._found and time.monotonic() < self._until:
            return self._found
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def forget(self) -> None:
        """None of them could be reached: ask anew the next time."""
        self._found = []

    async def _ask(self) -> list[AddrInfoType]:
        found = await asyncio.get_running_loop().getaddrinfo(
            self.address.host, self.address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        if not found:
            raise OSError("the name has no address")
        self._found = list(found)
        self._until = time.monotonic() + self.kept_s
        return self._found

    def _asked(self, task: "asyncio.Task[list[AddrInfoType]]") -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # seen, even where everybody who asked has left
