"""The embedded engine as an HTTP worker sees it: one connection to the engine's process.

Neither numpy nor the library is imported here, so a worker stays small.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from onward.core.failure import Failure, FailureKind
from onward.core.generate import Chunk, GenerateRequest
from onward.core.image import ImageSpan
from onward.engines.llama import frames
from onward.engines.protocol import EngineState, EngineStatus

START_WAIT = 5.0
"""Seconds that a request waits for an engine that is (again) starting."""
STALL_AFTER = 120.0
"""Seconds without a sign of life from a busy engine, after which it is ended. A step of a large model
on a slow machine takes some of them."""
_RETRY_STARTING = 2
_FIRST_DELAY = 0.05
_LAST_DELAY = 1.0


class LlamaEngine:
    """`Engine` over the local socket of an engine process. Belongs to one event loop.

    Connects by itself, at the first look at it, and again whenever the connection was lost.
    """

    def __init__(
        self, socket_path: str, *, start_wait: float = START_WAIT, stall_after: float = STALL_AFTER
    ) -> None:
        self._path = socket_path
        self._start_wait = start_wait
        self._stall_after = stall_after
        self._alive_at = 0.0
        self._stall_check: asyncio.TimerHandle | None = None
        self._state = EngineState.STARTING
        self._detail = "not connected yet"
        self._hello: frames.Hello | None = None
        self._load = frames.Load(0, 0, 0)
        self._link: _Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._next_id = 0
        self._inboxes: dict[int, _Inbox] = {}
        self._losses = 0
        self._closed = False

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Chunk, None]:
        link = await self._ready()
        number, inbox = self._open_inbox()
        over = False
        try:
            await link.send(frames.Submit(number, request))
            while not over:
                for progress in await inbox.take():
                    over = progress.finish is not None
                    yield Chunk(
                        progress.tokens, progress.finish, progress.cached_tokens, progress.prompt_tokens
                    )
        except Failure:
            over = True
            raise
        finally:
            del self._inboxes[number]
            if not over:
                link.send_now(frames.Cancel(number))

    async def measure_images(self, sizes: list[tuple[int, int]]) -> list[ImageSpan]:
        link = await self._ready()
        number, inbox = self._open_inbox()
        try:
            await link.send(frames.MeasureImages(number, sizes))
            await inbox.take()
            return inbox.spans
        finally:
            del self._inboxes[number]

    def status(self) -> EngineStatus:
        self._keep_connected()
        hello, load = self._hello, self._load
        up = self._state is EngineState.READY
        return EngineStatus(
            state=self._state,
            detail=self._detail,
            slots=hello.slots if hello else 0,
            running=load.running if up else 0,
            waiting=load.waiting if up else 0,
            cached_prefixes=load.cached_prefixes if up else 0,
            context_length=hello.context_length if hello else 0,
            restarts=self._losses,
        )

    @property
    def vocabulary(self) -> int:
        """Rows of the model's embedding; 0 until the engine was connected once."""
        return self._hello.vocabulary if self._hello else 0

    async def wait_ready(self) -> None:
        """Return once the engine answers. Raises `Failure` like `generate`."""
        await self._ready()

    async def load_adapter(self, name: str, path: str) -> None:
        link = await self._ready()
        number, inbox = self._open_inbox()
        try:
            await link.send(frames.LoadAdapter(number, name, path))
            await inbox.take()
        finally:
            del self._inboxes[number]

    async def close(self) -> None:
        self._closed = True
        if self._stall_check is not None:
            self._stall_check.cancel()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self._drop("The engine was closed.")

    def _open_inbox(self) -> "tuple[int, _Inbox]":
        if not self._inboxes:
            self._alive_at = time.monotonic()
        self._next_id += 1
        inbox = self._inboxes[self._next_id] = _Inbox()
        if self._stall_check is None:
            self._watch_for_stalls()
        return self._next_id, inbox

    def _watch_for_stalls(self) -> None:
        loop = asyncio.get_running_loop()
        self._stall_check = loop.call_later(self._stall_after / 4, self._check_for_stall)

    def _check_for_stall(self) -> None:
        """End an engine that is stuck: its supervisor starts another. Idle engines are not looked at."""
        self._stall_check = None
        if not self._inboxes or self._closed:
            return
        if time.monotonic() - self._alive_at > self._stall_after and self._link is not None and self._hello:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._hello.pid, signal.SIGKILL)
            self._link.close()
        self._watch_for_stalls()

    # The connection

    async def _ready(self) -> "_Link":
        self._keep_connected()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._start_wait):
                while self._link is None and self._state is EngineState.STARTING and not self._closed:
                    await self._changed.wait()
        if self._link is not None:
            return self._link
        if self._closed or self._state is EngineState.FAILED:
            raise Failure(FailureKind.ENGINE_FAILED, f"The engine does not run: {self._detail}.")
        raise Failure(
            FailureKind.ENGINE_STARTING,
            "The engine is starting. Try again in a moment.",
            retry_after=_RETRY_STARTING,
        )

    def _keep_connected(self) -> None:
        if self._closed or (self._keeper is not None and not self._keeper.done()):
            return
        with contextlib.suppress(RuntimeError):  # no event loop runs: only look
            self._keeper = asyncio.get_running_loop().create_task(self._connect_for_ever())

    async def _connect_for_ever(self) -> None:
        delay = 0.0
        while True:
            await asyncio.sleep(delay)
            delay = min(_LAST_DELAY, max(_FIRST_DELAY, delay * 2))
            try:
                _, link = await asyncio.get_running_loop().create_unix_connection(
                    lambda: _Link(self._on_message), self._path
                )
            except OSError as error:
                self._set(EngineState.STARTING, f"{self._path}: {error.strerror or error}")
                continue
            try:
                await link.lost
            finally:
                link.close()
            if self._link is not None:
                self._losses += 1
                delay = 0.0
                self._drop("The engine's process ended while it worked on this request. Send it again.")

    def _drop(self, reason: str) -> None:
        self._link = None
        if self._state is not EngineState.FAILED:
            self._set(EngineState.STARTING, reason)
        for inbox in self._inboxes.values():
            inbox.fail(Failure(FailureKind.ENGINE_FAILED, reason))

    def _set(self, state: EngineState, detail: str) -> None:
        self._state, self._detail = state, detail
        self._changed.set()
        self._changed.clear()

    def _on_message(self, link: "_Link", message: frames.FromEngine) -> None:
        self._alive_at = time.monotonic()
        match message:
            case frames.Step():
                for progress in message.progress:
                    inbox = self._inboxes.get(progress.id)
                    if inbox is not None:
                        inbox.put(progress)
            case frames.Refused():
                inbox = self._inboxes.get(message.id)
                if inbox is not None:
                    inbox.fail(message.failure())
            case frames.Loaded():
                inbox = self._inboxes.get(message.id)
                if inbox is not None:
                    inbox.put(frames.Progress(message.id, []))
            case frames.Measured():
                inbox = self._inboxes.get(message.id)
                if inbox is not None:
                    inbox.spans = message.spans
                    inbox.put(frames.Progress(message.id, []))
            case frames.Load():
                self._load = message
            case frames.Hello():
                self._hello, self._link = message, link
                self._set(EngineState.READY, "")
            case frames.Down():
                self._set(EngineState.FAILED, message.detail)


class _Inbox:
    """What has come for one request and was not yet taken.

    Not bounded by itself: an engine sends no more than the tokens its context holds, and a slot is
    worth more than the bytes, so a slow reader does not hold one.
    """

    def __init__(self) -> None:
        self._items: deque[frames.Progress] = deque()
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.spans: list[ImageSpan] = []
        """Of a request that asked for these."""

    def put(self, progress: frames.Progress) -> None:
        self._items.append(progress)
        self._wake()

    def fail(self, failure: Failure) -> None:
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[frames.Progress]:
        """All that is there, at least one; raises the failure after what came before it."""
        if not self._items and self._failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._items:
            items = list(self._items)
            self._items.clear()
            return items
        raise self._failure or Failure(FailureKind.INTERNAL, "A request ended without a reason.")


class _Link(asyncio.Protocol):
    """One connection. `lost` is done when it has ended."""

    def __init__(self, on_message: Any) -> None:
        self._on_message = on_message
        self._reader = frames.FrameReader(frames.decode_from_engine)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._writable.set()
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._on_message(self, message)
        except frames.FrameError:
            self.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, message: frames.FromClient) -> None:
        await self._writable.wait()
        self.send_now(message)

    def send_now(self, message: frames.FromClient) -> None:
        """Send without waiting for room: for the few bytes of a cancellation."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
