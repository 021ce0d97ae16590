"""POST over the connections of one provider."""

import asyncio
import ssl
from collections.abc import Iterable

from onward.providers.address import Address, Lookup
from onward.providers.answer import HttpAnswer
from onward.providers.bounds import Bounds
from onward.providers.connect import verifying
from onward.providers.failures import mark_sent
from onward.providers.pool import Pool
from onward.providers.protocol import ProviderStatus

_OURS = frozenset(
    {
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
    }
)
"""Headers that are set here or never sent."""
_Kind = tuple[str, tuple[tuple[bytes, bytes], ...]]
_KNOWN_KINDS = 64
"""Of requests: by their path and headers."""


class Client:
    """An HTTP/1.1 client of one address. Belongs to the event loop in which it is first used."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Iterable[tuple[bytes, bytes]],
        bounds: Bounds,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`headers` go with every request. `tls` stands in for the context that verifies by the system's
        authorities. Raises ValueError, which repeats nothing of what may be secret.
        """
        self._address = Address.parse(base_url)
        self._headers = _lines(headers)
        self._bounds = bounds
        self._tls = tls
        self._name = name
        self._made: Pool | None = None
        self._starts: dict[_Kind, bytes] = {}

    async def post(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> HttpAnswer:
        """See `Provider.send`."""
        kind = (path, tuple(headers))
        start = self._starts.get(kind) or self._start(kind, path, headers)
        head = b"%bcontent-length: %d\r\n\r\n" % (start, len(body))
        pool = self._made or self._pool()
        answer = None
        while answer is None:  # only a connection that was handed on may turn out to be closed
            connection = pool.take() or await pool.obtain()
            answer = connection.begin(head, body)
        try:
            await answer.headed
        except asyncio.CancelledError as error:
            mark_sent(error)
            answer.close()
            raise
        if answer.failure is not None and not answer.status:
            raise answer.failure()
        return answer

    def status(self) -> ProviderStatus:
        """See `Provider.status`."""
        return self._made.status() if self._made else ProviderStatus()

    async def close(self) -> None:
        """Close all connections; whoever waits for an answer is failed."""
        if self._made is not None:
            await self._made.close()

    def _pool(self) -> Pool:
        if self._made is None:
            tls = (self._tls or verifying()) if self._address.tls else None
            self._made = Pool(self._name, self._bounds, Lookup(self._address), tls)
        return self._made

    def _start(
        self,
        kind: _Kind,
        path: str,
        headers: list[tuple[bytes, bytes]],
    ) -> bytes:
        """The first lines of a request: all that is the same for every one of its kind."""
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise ValueError("a path cannot be sent as it is")
        more = b"".join([b"%b: %b\r\n" % header for header in headers])
        if more.count(b"\n") != len(headers) or more.count(b"\r") != len(headers) or b"\0" in more:
            raise ValueError("a header of a request holds a line break")
        if not _OURS.isdisjoint([name.lower() for name, _ in headers]):
            raise ValueError("a header of a request is one that the transport sets")
        start = b"POST %b%b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\n%b%b" % (
            self._address.prefix,
            path.encode("ascii"),
            self._address.authority,
            self._headers,
            more,
        )
        if len(self._starts) < _KNOWN_KINDS:
            self._starts[kind] = start
        return start


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    made = [b"%b: %b\r\n" % header for header in headers]
    if any(line.count(b"\n") != 1 or line.count(b"\r") != 1 or b"\0" in line for line in made):
        raise ValueError("a header of a provider, such as its key, holds a line break")
    return b"".join(made)
