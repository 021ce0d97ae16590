"""A proxy of a few lines over the same libraries, which checks, counts and bounds nothing: the floor.

    python bench/gateway/bare.py PORT UPSTREAM_PORT

What Python's event loop, its sockets and a parser of HTTP cost by themselves. Everything that the gateway
costs beyond it is what the gateway does.
"""

import asyncio
import sys
from collections import deque

import httptools
import uvloop

UPSTREAM = int(sys.argv[2])
idle: list["Upstream"] = []


class Upstream(asyncio.Protocol):
    """A connection to the provider; what it sends goes to whoever asked last."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.caller: Caller | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.caller.transport.write(data)
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        caller, self.caller = self.caller, None
        idle.append(self)
        caller.next()


class Caller(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.headers: dict[bytes, bytes] = {}
        self.on_header = self.headers.__setitem__
        self.waiting: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url, self.body = url, b""

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        request = (
            b"%b %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (
                self.parser.get_method(),
                self.url,
                len(self.body),
                self.body,
            )
        )
        if idle:
            upstream = idle.pop()
            upstream.caller = self
            upstream.transport.write(request)
        else:
            asyncio.get_running_loop().create_task(self.ask(request))

    async def ask(self, request: bytes) -> None:
        """By a new connection."""
        _, upstream = await asyncio.get_running_loop().create_connection(Upstream, "127.0.0.1", UPSTREAM)
        upstream.caller = self
        upstream.transport.write(request)

    def next(self) -> None:
        """The answer is over."""


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(
        Caller, "127.0.0.1", int(sys.argv[1]), backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
