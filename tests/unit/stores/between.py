"""A proxy between a client and a server, which can hang, lose answers, cut and refuse."""

import asyncio
from typing import Self
from urllib.parse import urlsplit


class Between:
    """Passes bytes on. `url` leads through it to where the given one does."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self.swallow_answers = False
        """Whether what the server says is thrown away."""

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._parts.username}@" if self._parts.username else ""
        return self._parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()

    def hang(self) -> None:
        """Connections stay, and nothing moves."""
        self._flowing.clear()

    def flow(self) -> None:
        self._refusing = False
        self._flowing.set()

    def refuse(self) -> None:
        """No connection, and none is left."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """End every connection at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        there = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        for start, end, answers in ((reader, there[1], False), (there[0], writer, True)):
            self._writers.add(end)
            task = asyncio.ensure_future(self._pass(start, end, answers=answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, start: asyncio.StreamReader, end: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await start.read(65536):
                await self._flowing.wait()
                if answers and self.swallow_answers:
                    continue
                end.write(data)
                await end.drain()
        except OSError:
            pass
        finally:
            end.close()
            self._writers.discard(end)
