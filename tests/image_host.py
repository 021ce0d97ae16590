"""A web server on this machine that images lie on, and that misbehaves where a test says so."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    """An answer that leads elsewhere."""
    return answer(b"", status, f"Location: {location}", "Set-Cookie: crumb=1")


@dataclass
class ImageHost:
    """What it answers is by path; what it was asked is kept."""

    answers: dict[str, Answer] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    """Every request's header."""
    port: int = 0
    connections: int = 0
    open: int = 0
    most_open: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [head.split(" ")[1] for head in self.heads]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """An address of it."""
        return f"http://{host}:{self.port}{path}"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that its callers bring about."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            await self._notify()
            given = self.answers.get(head.split(" ")[1], answer(b"", "404 Not Found"))
            if isinstance(given, bytes):
                writer.write(given)
                await writer.drain()
            else:
                answering = asyncio.ensure_future(given(writer))
                await reader.read()  # until the caller hangs up
                answering.cancel()
                with suppress(asyncio.CancelledError):
                    await answering
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
        self.open -= 1
        await self._notify()

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    @asynccontextmanager
    async def listening(
        self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["ImageHost"]:
        """Answer until the context is left."""
        server = await asyncio.start_server(self._serve, host, port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await self.until(lambda: self.open == 0)
