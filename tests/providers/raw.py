"""A server that answers with given bytes, and what tests of the transport share."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import pytest

from onward.core.failure import Failure, FailureKind
from onward.providers.protocol import Answer, Provider

KEY = "sk-this-key-shows-nowhere"
JSON = [(b"content-type", b"application/json")]
OK = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawHost:
    """Answers each request with `answer`, in the pieces it is given in, then does what `then` says.

    `serve` stands in for all of that.
    """

    answer: list[bytes] = field(default_factory=list)
    then: str = "keep"
    """``keep`` the connection, ``close`` it."""
    serve: Serve | None = None
    tls: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    port: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        return self

    async def start(self) -> str:
        """Listen. The base URL."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.url

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to come about here."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(condition)

    async def changed(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        """Read one whole request, and keep it."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        request = head + await reader.readexactly(size)
        self.requests.append(request)
        await self.changed()
        return request

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        await self.changed()
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await (self.serve or self._serve)(reader, writer)
        finally:
            self._tasks.discard(task)
            self.open -= 1
            writer.close()
            await self.changed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self.request(reader)
            for piece in self.answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)  # another packet
            if self.then == "close":
                return


def completion(prompt: str = "hello", *, stream: bool = False, **more: object) -> bytes:
    """A request's body."""
    return json.dumps({"model": "m", "prompt": prompt, "stream": stream, **more}).encode()


async def ask(provider: Provider, prompt: str = "hello", *, stream: bool = False) -> Answer:
    """Its answer, up to the header."""
    return await provider.send("/completions", completion(prompt, stream=stream), JSON)


async def body_of(answer: Answer) -> bytes:
    """All that comes, read piece by piece."""
    pieces = []
    while piece := await answer.read():
        pieces.append(piece)
    return b"".join(pieces)


async def whole(provider: Provider, prompt: str = "hello", *, stream: bool = False) -> bytes:
    """The body of its answer."""
    return await body_of(await ask(provider, prompt, stream=stream))


async def fails(
    awaitable: Awaitable[object], kind: FailureKind = FailureKind.UPSTREAM_UNAVAILABLE
) -> Failure:
    """The failure that it ends with, which tells a caller nothing of the provider."""
    with pytest.raises(Failure) as failed:
        await awaitable
    failure = failed.value
    assert failure.kind is kind
    told = set(failure.message.replace(".", " ").split())
    assert told.isdisjoint({"up", "127", "localhost", "http", "https", "v1"}), failure.message
    assert KEY not in failure.message + repr(failure.__cause__) + repr(failure.__context__)
    return failure


async def settled(provider: Provider, *, opened: int = 0) -> None:
    """Wait until no connection is busy and `opened` are kept. A closed one goes in a turn of the loop."""
    async with asyncio.timeout(10):
        while (status := provider.status()).busy or status.open != opened:
            await asyncio.sleep(0.001)
