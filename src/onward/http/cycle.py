"""One request on a connection and its answer: uvicorn's, with what it lacks."""

import asyncio
import logging
import socket
from collections.abc import Callable
from itertools import chain
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from onward.core.failure import Failure

logger = logging.getLogger("onward")
REFUSED = "onward.refused"
"""A message of `receive`: the rest of the request never comes, and its `failure` is the answer."""


def limit_unsent(connected: socket.socket, limit: int) -> None:
    """Keep the system from holding more than `limit` bytes for a reader that takes none.

    It would hold megabytes, a whole answer mostly, and nobody would learn that it is not read.
    """
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, option, limit)


class GatheringTransport:
    """The transport as a request sees it.

    What is written in one step of the loop, such as a header and its body, goes out in one system
    call; closing lets an early answer arrive.
    """

    __slots__ = ("_loop", "_pending", "_transport", "close", "get_extra_info", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.close = close

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def flush(self) -> None:
        """Hand on what was written so far."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            if not self._transport.is_closing():
                self._transport.write(data)


class Cycle(RequestResponseCycle):
    """A request that can be refused while its body comes, and may be of HTTP/1.0."""

    refused: Failure | None = None
    _until_close = False

    def refuse(self, failure: Failure) -> None:
        """Answer `failure` in place of what the request asks for; what is missing of it never comes."""
        self.refused = failure
        self.keep_alive = False
        self.message_event.set()

    def abandon(self) -> None:
        """Nobody is there any more."""
        self.disconnected = True
        self.message_event.set()

    async def run_asgi(self, app: Any) -> None:
        """Run the application. An answer that it leaves unfinished is cut, so that it does not look whole."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the server ends
        except Exception:
            logger.exception("a request failed where none may")
            if not self.response_started:
                await self.send_500_response()
        finally:
            if not self.response_complete and not self.disconnected:
                self.transport.close()
            self.on_response = lambda: None

    async def receive(self) -> Any:
        message = await super().receive()
        if self.refused is not None and message["type"] != "http.disconnect":
            return {"type": REFUSED, "failure": self.refused}
        return message

    async def send(self, message: Any) -> None:
        """A piece of the answer, where uvicorn's way to do it costs more than many a whole request."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message["headers"])
        else:
            self._write(message["body"], more=message["more_body"])

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if self.response_started:
            raise RuntimeError("an answer begins once")
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        for name, value in chain(self.default_headers, headers):
            if name == b"connection":
                self.keep_alive = self.keep_alive and value != b"close"
                continue
            if name == b"content-length":
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None:
            # HTTP/1.0 knows no chunks: a body without a length ends with its connection (RFC 9112 6.1).
            self._until_close = self.scope["http_version"] == "1.0"
            self.chunked_encoding = not self._until_close and self.scope["method"] != "HEAD"
            if self.chunked_encoding:
                lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise RuntimeError("a header of an answer holds a line break")
        self.transport.write(head + b"\r\n")

    def _write(self, body: bytes, *, more: bool) -> None:
        if not self.response_started or self.response_complete:
            raise RuntimeError("a piece of an answer stands between its header and its end")
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self.transport.write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            if not self._until_close:
                self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("an answer is longer than its content-length")
            self.transport.write(body)
        if more:
            return
        if self.expected_content_length:
            raise RuntimeError("an answer is shorter than its content-length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
