"""An answer of a provider, as it comes in on a connection."""

import asyncio
from typing import Protocol

from onward.core.failure import Failure
from onward.providers.failures import broken, too_long


class Source(Protocol):
    """The connection that an answer comes in on."""

    def taken(self) -> None:
        """All that came was read."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class HttpAnswer:
    """Implements `Answer`. Filled by a connection, which leaves it when its last byte has come.

    Cancelling `read` loses nothing: what comes meanwhile is there for the next call.
    """

    __slots__ = ("_ended", "_failure", "_source", "_waiter", "headed", "headers", "pieces", "status")

    def __init__(self, source: Source, pieces: list[bytes], headed: "asyncio.Future[None]") -> None:
        """`pieces`: where the connection puts the body; `headed`: done once the header is here."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces = pieces
        self.headed = headed
        self._source: Source | None = source
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._failure: Failure | None = None

    # The connection's side

    def wake(self) -> None:
        """There are new pieces."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, pieces: list[bytes]) -> None:
        """It is whole. `pieces`: what was not read yet, its own."""
        self.pieces = pieces
        self._ended = True
        self._source = None
        self.wake()

    def fail(self, failure: Failure) -> None:
        """It will never be whole. What came before is still read first."""
        self.pieces = self.pieces.copy()
        self._ended = True
        self._failure = failure
        self._source = None
        if not self.headed.done():
            self.headed.set_exception(failure)
        self.wake()

    def give_up(self) -> None:
        """Nobody waits for its header any more."""
        if self.headed.done() and not self.headed.cancelled():
            self.headed.exception()  # seen, so that nothing complains of it
        self.close()

    # The reader's side

    async def read(self) -> bytes:
        """See `Answer.read`. What has come already is returned without suspending."""
        while not (pieces := self.pieces):
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return b""
            if self._waiter is not None:
                raise RuntimeError("an answer has one reader")
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._source is not None:
            self._source.taken()
        return data

    async def read_all(self, limit: int) -> bytes:
        """See `Answer.read_all`."""
        data = await self.read()
        if self._ended and not self.pieces and self._failure is None and len(data) <= limit:
            return data
        whole = [data]
        size = len(data)
        while data and size <= limit:
            data = await self.read()
            whole.append(data)
            size += len(data)
        if size > limit:
            self.close()
            raise too_long()
        return b"".join(whole)

    def close(self) -> None:
        """See `Answer.close`."""
        source, self._source = self._source, None
        if source is not None:
            self.fail(broken())
            source.abort()
        self.pieces = []
