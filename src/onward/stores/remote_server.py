"""The other end of `remote.py`: the process that owns the stores answers the calls of its workers."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from onward.admission.limits import RateLimits
from onward.admission.store import Store
from onward.core.failure import Failure, FailureKind
from onward.stores import calls
from onward.stores.down import down

MAX_UNSENT = calls.MAX_FRAME
"""Bytes. A client that lets more than this pile up is cut off."""
logger = logging.getLogger("onward")

_Bound = Callable[..., Awaitable[Any]]


class StoreServer:
    """Answers calls until it is closed. The stores stay open."""

    def __init__(self, store: Store | None, limits: RateLimits) -> None:
        self._bound: list[tuple[calls.Method, _Bound]] = [
            *(
                (method, _no_store if store is None else getattr(store, method.name))
                for method in calls.STORE_METHODS
            ),
            *((method, getattr(limits, method.name)) for method in calls.LIMIT_METHODS),
        ]
        self._clients: set[_Client] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on a listening Unix socket, which is ours from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Client(self._bound, self._clients), sock=listener
        )

    async def close(self) -> None:
        """No more connections and calls; running ones are left without an answer."""
        if self._server is not None:
            self._server.close()
        running = [task for client in self._clients for task in client.running]
        for client in list(self._clients):
            client.abort()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def serve_stores(listener: socket.socket, store: Store | None, limits: RateLimits) -> StoreServer:
    """Let `StoreConnection`s of other processes use these stores. The caller closes what comes back.

    `store` None: there is none, and calls of it fail with STORE_DOWN.
    """
    server = StoreServer(store, limits)
    await server.start(listener)
    return server


async def _no_store(*_: Any, **__: Any) -> Any:
    raise down()


class _Client(asyncio.Protocol):
    """One connected process."""

    def __init__(self, bound: list[tuple[calls.Method, _Bound]], clients: "set[_Client]") -> None:
        self._bound = bound
        self._clients = clients
        self._reader = calls.FrameReader()
        self._transport: asyncio.Transport | None = None
        self.running: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """What it asked for is done all the same: it may have been written already."""
        self._transport = None
        self._clients.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            for number, code, content in self._reader.feed(data):
                if code >= len(self._bound):
                    raise calls.FrameError(f"a call of method {code}")  # noqa: TRY301
                method, bound = self._bound[code]
                arguments = method.decode_arguments(content)
                self._begin(number, method, bound, arguments)
        except (calls.FrameError, msgspec.MsgspecError) as error:
            logger.error("a process that calls the stores is cut off: %s", error)  # noqa: TRY400
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, number: int, method: calls.Method, bound: _Bound, arguments: tuple[Any, ...]) -> None:
        named = len(arguments) - len(method.keywords)
        keywords = dict(zip(method.keywords, arguments[named:], strict=True))
        task = asyncio.get_running_loop().create_task(
            self._answer(number, bound, arguments[:named], keywords)
        )
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _answer(
        self, number: int, bound: _Bound, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        try:
            frame = calls.encode(number, calls.Answer.RESULT, await bound(*arguments, **keywords))
        except (Failure, ValueError) as error:
            frame = calls.encode_error(number, error)
        except Exception:  # a fault of the store: it is told here, and its caller must not wait for ever
            logger.exception("a call of the stores failed")
            frame = calls.encode_error(number, Failure(FailureKind.INTERNAL, "The server failed. Try again."))
        transport = self._transport
        if transport is None:
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > MAX_UNSENT:
            transport.abort()
