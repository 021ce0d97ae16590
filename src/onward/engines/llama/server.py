"""The engine process: one thread that alternates between its sockets and its model.

One thread is enough: a step is the unit in which anything can change, so requests, cancellations and
lost connections are looked at between two steps, and results leave after each. With nothing to
compute it sleeps on its sockets.
"""

import contextlib
import os
import selectors
import socket
import time

from onward.core.failure import Failure
from onward.engines.llama import frames
from onward.engines.llama.binding import Context
from onward.engines.llama.pictures import Pictures
from onward.engines.llama.projector import Projector
from onward.engines.llama.scheduler import Key, Scheduler
from onward.engines.llama.settings import ADAPTERS

LOAD_EVERY = 0.25
"""Seconds between two reports of the load."""
ALIVE_EVERY = 2.0
"""Seconds after which a busy engine reports its load though it did not change: a sign of life."""
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes. A client that lets more than this pile up is cut off."""
_RECEIVE = 256 * 1024
_RECEIVES = 32
"""How often a turn reads from one connection: images are large."""
_ENCODING_PAUSE = 0.005
"""Seconds between two looks at an image that is being encoded, while there is nothing else to do."""


class Connection:
    """One HTTP worker."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.reader = frames.FrameReader(frames.decode_from_client)
        self.unsent = bytearray()
        self.progress: list[frames.Progress] = []
        self.requests: set[int] = set()
        self.writing = False

    def queue(self, message: frames.FromEngine) -> None:
        self.unsent += frames.encode(message)


class Server:
    """Serves one model on a listening socket until its process ends."""

    def __init__(
        self,
        listener: socket.socket,
        context: Context,
        *,
        slots: int,
        queue: int,
        length: int,
        adapters: int = ADAPTERS,
        projector: Projector | None = None,
    ) -> None:
        self._scheduler = Scheduler(
            context,
            slots=slots,
            queue=queue,
            context_length=length,
            adapters=adapters,
            pictures=Pictures(context, projector),
            emit=self._on_progress,
            fail=self._on_failure,
        )
        self._hello = frames.Hello(context.model.vocabulary, length, slots, os.getpid())
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._connections: dict[int, Connection] = {}
        self._accepted = 0
        self._load = frames.Load(0, 0, 0)
        self._load_at = 0.0

    def run(self) -> None:
        """Never returns."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Look at the sockets, then compute one step if there is anything to compute."""
        wait = None if self._scheduler.idle else _ENCODING_PAUSE if self._scheduler.stalled else 0
        for key, events in self._selector.select(wait):
            if key.data is None:
                self._accept()
                continue
            connection: Connection = key.data
            if events & selectors.EVENT_READ:
                self._receive(connection)
            if events & selectors.EVENT_WRITE and connection.number in self._connections:
                self._send(connection)
        if not self._scheduler.idle:
            self._scheduler.step()
        self._report_load()
        for connection in list(self._connections.values()):
            if connection.progress:
                connection.queue(frames.Step(connection.progress))
                connection.progress = []
            if connection.unsent and not connection.writing:
                self._send(connection)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it went away, or another process was faster
            return
        sock.setblocking(False)
        self._accepted += 1
        connection = Connection(self._accepted, sock)
        self._connections[connection.number] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)
        connection.queue(self._hello)
        connection.queue(self._load)

    def _receive(self, connection: Connection) -> None:
        for _ in range(_RECEIVES):
            try:
                data = connection.sock.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(connection)
                return
            try:
                for message in connection.reader.feed(data):
                    self._handle(connection, message)
            except frames.FrameError:
                self._drop(connection)
                return
            if len(data) < _RECEIVE:
                return

    def _handle(self, connection: Connection, message: frames.FromClient) -> None:
        key: Key = (connection.number, message.id)
        try:
            if isinstance(message, frames.Submit):
                self._scheduler.submit(key, message.request)
                connection.requests.add(message.id)
            elif isinstance(message, frames.Cancel):
                connection.requests.discard(message.id)
                self._scheduler.cancel(key)
            elif isinstance(message, frames.MeasureImages):
                spans = self._scheduler.pictures.measure(message.sizes)
                connection.queue(frames.Measured(message.id, spans))
            else:
                self._scheduler.load_adapter(message.name, message.path)
                connection.queue(frames.Loaded(message.id))
        except Failure as failure:
            self._on_failure(key, failure)

    def _drop(self, connection: Connection) -> None:
        """A connection ended: so do its requests."""
        del self._connections[connection.number]
        self._selector.unregister(connection.sock)
        with contextlib.suppress(OSError):
            connection.sock.close()
        for number in connection.requests:
            self._scheduler.cancel((connection.number, number))

    def _send(self, connection: Connection) -> None:
        try:
            while connection.unsent:
                del connection.unsent[: connection.sock.send(memoryview(connection.unsent)[:_RECEIVE])]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        if len(connection.unsent) > MAX_UNSENT:
            self._drop(connection)
            return
        if bool(connection.unsent) != connection.writing:
            connection.writing = bool(connection.unsent)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.writing else 0)
            self._selector.modify(connection.sock, events, connection)

    def _on_progress(self, key: Key, progress: frames.Progress) -> None:
        connection = self._connections.get(key[0])
        if connection is None:
            return
        if progress.finish is not None:
            connection.requests.discard(key[1])
        connection.progress.append(progress)

    def _on_failure(self, key: Key, failure: Failure) -> None:
        connection = self._connections.get(key[0])
        if connection is None:
            return
        connection.requests.discard(key[1])
        connection.queue(
            frames.Refused(key[1], failure.kind, failure.message, failure.param, failure.retry_after)
        )

    def _report_load(self) -> None:
        scheduler = self._scheduler
        now = time.monotonic()
        if now - self._load_at < LOAD_EVERY and not scheduler.idle:
            return
        load = frames.Load(scheduler.running, scheduler.waiting, scheduler.cached_prefixes)
        if load != self._load or (now - self._load_at >= ALIVE_EVERY and not scheduler.idle):
            self._load, self._load_at = load, now
            for connection in self._connections.values():
                connection.queue(load)
