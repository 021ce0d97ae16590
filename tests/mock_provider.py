"""A provider that can be told to behave badly: OpenAI's completions and chat, Anthropic's messages, streamed
and not.

How it answers is said in the prompt (``[[cut=2]]``), or by `MockProvider.say` and `always`; the words are
in `tests.mock_answers.Behaviour`. It runs in a thread of its own, so it serves tests in a loop,
tests without one, and servers in other processes::

    with MockProvider() as provider:
        provider.say(Behaviour(status=503))     # the next request
        ...
        provider.until(lambda: provider.requests[0].gone)
"""

import asyncio
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tests import mock_answers, mock_messages
from tests.mock_answers import PAGE, Asked, Behaviour

__all__ = ["Behaviour", "MockProvider", "Seen"]
_HUM_S = 0.01
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass
class Seen:
    """A request that came."""

    raw: bytes
    """Every byte of it."""
    path: str
    headers: list[tuple[str, str]]
    """Names in lower case."""
    body: bytes
    connection: int
    """Which one it came on, from 0."""
    at: float
    """`time.monotonic` of its last byte."""
    sent: int = 0
    """Events of a stream that were written."""
    answered: bool = False
    """All that was to be sent was handed to the system."""
    gone: bool = False
    """Its sender closed the connection before that."""

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The last one of that name."""
        return dict(self.headers).get(name)


@dataclass
class MockProvider:
    """Start with `with`. `key`: what a request has to carry; None: nothing. `tls`: its server side."""

    key: str | None = None
    tls: ssl.SSLContext | None = None
    port: int = 0
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0
    """That were ever made."""
    open: int = 0
    _usual: Behaviour = field(default_factory=Behaviour)
    _next: deque[Behaviour] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _live: set["_Connection"] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def say(self, *behaviours: Behaviour) -> None:
        """How the next requests are answered, one each."""
        self._next.extend(behaviours)

    def always(self, behaviour: Behaviour) -> None:
        """How requests are answered for which nothing else was said."""
        self._usual = behaviour

    def let_go(self) -> None:
        """Answers that `hold` may go on, and so may all later ones."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def until(self, condition: Callable[[], bool], within_s: float = 20) -> None:
        """Block until something has come about here. Raises AssertionError if that takes too long."""
        with self._changed:
            assert self._changed.wait_for(condition, within_s), (
                f"did not come about; requests: {self.requests}"
            )

    async def comes(self, condition: Callable[[], bool], within_s: float = 20) -> None:
        """`until`, for tests in a loop."""
        await asyncio.to_thread(self.until, condition, within_s)

    def close_connections(self) -> None:
        """Close all that are open, as a provider does with unused ones."""
        self._run(self._close_all())

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="mock provider")
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        running: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        running.result(20)

    async def _start(self) -> None:
        self._server = await self._loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, ssl=self.tls, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._close_all()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _close_all(self) -> None:
        for connection in list(self._live):
            connection.transport.close()
        # Under TLS the other side has its part in this, and a test that waits here may be that side.
        deadline = time.monotonic() + (0.1 if self.tls else 5)
        while self._live and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        for connection in list(self._live):
            connection.transport.abort()

    def changed(self) -> None:
        """Wake those that wait for something."""
        with self._changed:
            self._changed.notify_all()

    def behaviour(self) -> Behaviour:
        """Of the request that has just come, but for what its prompt says."""
        return self._next.popleft() if self._next else self._usual

    async def gate(self) -> None:
        await self._gate.wait()


class _Gone(Exception):  # noqa: N818 - no error of ours
    """The connection is closed."""


class _Connection(asyncio.Protocol):
    """Reads requests, one after the other, and answers them in a task."""

    def __init__(self, provider: MockProvider) -> None:
        self.provider = provider
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.number = -1
        self._read = b""
        self._task: asyncio.Task[None] | None = None
        self._seen: Seen | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        provider = self.provider
        self.number = provider.connections
        provider.connections += 1
        provider.open += 1
        provider._live.add(self)
        provider.changed()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._seen is not None and not self._seen.answered:
            self._seen.gone = True
        if self._task is not None:
            self._task.cancel()
        self.provider._loop.call_soon(self._closed)  # asyncio closes the socket behind this call

    def _closed(self) -> None:
        self.provider.open -= 1
        self.provider._live.discard(self)
        self.provider.changed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._read += data
        self._next_request()

    def _next_request(self) -> None:
        head, found, rest = self._read.partition(b"\r\n\r\n")
        if not found or self._task is not None:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (one.partition(":") for one in lines)]
        size = int(dict(headers).get("content-length", "0"))
        if len(rest) < size:
            return
        raw = self._read[: len(head) + 4 + size]
        self._read = self._read[len(raw) :]
        seen = Seen(raw, line.split(" ")[1], headers, rest[:size], self.number, time.monotonic())
        self._seen = seen
        self.provider.requests.append(seen)
        self.provider.changed()
        self._task = asyncio.get_running_loop().create_task(self._answer(seen))
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self.provider.changed()
        if not task.cancelled() and (error := task.exception()) is not None:
            print("mock provider:", repr(error), file=sys.stderr)
            self.transport.abort()
        elif not self.transport.is_closing():
            self._next_request()

    # Answering

    async def _answer(self, seen: Seen) -> None:
        base = self.provider.behaviour()
        asked = Asked.read(seen.path, seen.json if seen.body else {}, base)
        does = asked.does
        key = self.provider.key
        says = mock_messages if seen.path.endswith("/messages") else mock_answers
        sent = seen.header("x-api-key") if says is mock_messages else seen.header("authorization")
        wrong = key is not None and sent != (key if says is mock_messages else f"Bearer {key}")
        with suppress(_Gone):
            await self._before(does, hold=not asked.stream)
            if wrong:
                await self._whole(seen, asked, 401, says.refusal(asked, 401))
            elif not seen.path.endswith(("/completions", "/messages")):
                await self._whole(seen, asked, 404, says.refusal(asked, 404))
            elif does.html or does.status != 200:
                body = PAGE if does.html else says.refusal(asked, does.status)
                await self._whole(seen, asked, does.status, body)
            elif asked.stream:
                await self._stream(seen, asked, says.events(asked))
            else:
                await self._whole(seen, asked, 200, says.whole(asked))

    async def _before(self, does: Behaviour, *, hold: bool) -> None:
        if does.never:
            await self._for_ever()
        if does.delay:
            await asyncio.sleep(does.delay)
        if does.hold is not None and hold:
            await self.provider.gate()
        if does.drop or (does.reset and does.cut is None):
            self._drop(does)
        if does.interim:
            early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\ncontent-encoding: gzip\r\n\r\n"
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n" + early, does)

    async def _whole(self, seen: Seen, asked: Asked, status: int, body: bytes) -> None:
        does = asked.does
        kind = "text/html" if does.html else "application/json"
        framing = [] if does.http10 else [f"content-length: {len(body) + does.length}"]
        head = self._head(does, status, does.content_type or kind, framing)
        stop = does.cut if does.cut is not None else does.stall
        if does.silent or stop is not None:
            await self._write(head + body[: stop or 0], does)
            if does.cut is not None:
                self._drop(does)
            await self._for_ever()
        await self._finish(seen, head + body, does)

    async def _stream(self, seen: Seen, asked: Asked, made: list[bytes]) -> None:
        does = asked.does
        framing = [] if does.http10 else ["transfer-encoding: chunked"]
        head = self._head(does, 200, does.content_type or "text/event-stream; charset=utf-8", framing)
        await self._write(head, does)
        if does.silent:
            await self._for_ever()
        for n, event in enumerate(made):
            if does.hold == n:
                await self.provider.gate()
            if does.stall == n:
                await self._for_ever()
            while does.hums == n:
                await self._write(b"e\r\n: keep-alive\n\n\r\n", does)
                await asyncio.sleep(_HUM_S)
            if does.cut == n:
                self._drop(does)
            if does.pause:
                await asyncio.sleep(does.pause)
            seen.sent = n + 1
            piece = event if does.http10 else b"%x\r\n%b\r\n" % (len(event), event)
            if n == len(made) - 1:
                await self._finish(seen, piece + (b"" if does.http10 else b"0\r\n\r\n"), does)
            else:
                await self._write(piece, does)

    def _head(self, does: Behaviour, status: int, kind: str, framing: list[str]) -> bytes:
        lines = [f"HTTP/{'1.0' if does.http10 else '1.1'} {status} {_REASONS.get(status, 'Whatever')}"]
        lines += [f"content-type: {kind}", *framing, f"X-Upstream-Request: {self.number}"]
        optional = {
            "retry-after": does.retry_after,
            "content-encoding": does.encoding,
            "keep-alive": does.keep_alive,
            "connection": "close" if does.close else None,
        }
        lines += [f"{name}: {value}" for name, value in optional.items() if value is not None]
        return "\r\n".join([*lines, "", ""]).encode()

    async def _finish(self, seen: Seen, data: bytes, does: Behaviour) -> None:
        """The last bytes of an answer. It counts as answered before they are sent."""
        seen.answered = True
        await self._write(data + (b"HTTP/1.1 200 OK\r\n" if does.extra else b""), does)
        if does.close or does.close_after or does.http10:
            self.transport.close()

    async def _write(self, data: bytes, does: Behaviour) -> None:
        step = 1 if does.drip else len(data) or 1
        for start in range(0, len(data), step):
            if self.transport.is_closing():
                raise _Gone
            self.transport.write(data[start : start + step])
            await (self._writable.wait() if step > 1 else asyncio.sleep(0))

    def _drop(self, does: Behaviour) -> None:
        self._seen = None
        if does.reset:
            connected: socket.socket = self.transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()
        raise _Gone

    async def _for_ever(self) -> None:
        await asyncio.Event().wait()


def main() -> None:
    """``python -m tests.mock_provider PORT``: until it is killed."""
    with MockProvider(port=int(sys.argv[1])) as provider:
        print(provider.base_url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
