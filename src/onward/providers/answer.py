"""An answer of a provider, as it comes in on a connection."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from onward.core.failure import Failure
from onward.providers.failures import broken, too_long


class Source(Protocol):
    """The connection that an answer comes in on."""

    def taken(self) -> None:
        """All that was held was read."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class HttpAnswer:
    """Implements `Answer`. Filled by a connection, which leaves it when its last byte has come.

    Cancelling `read` loses nothing: what comes meanwhile is there for the next call.
    """

    __slots__ = (
        "_ended",
        "_source",
        "_take",
        "_waiter",
        "failure",
        "headed",
        "headers",
        "heard",
        "held",
        "pieces",
        "status",
    )

    def __init__(self, source: Source, pieces: list[bytes], headed: "asyncio.Future[None]") -> None:
        """`pieces`: where the connection puts the body.

        `headed`: done once the header is here, or never will be: then there is a `failure` and no status.
        """
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces = pieces
        self.headed = headed
        self.heard: Callable[[], bool] | None = None
        """See `Answer.hand_on`."""
        self._source: Source | None = source
        self._waiter: asyncio.Future[bool] | None = None
        self._take: Callable[[bytes], bool] | None = None
        """Who is handed what comes, while somebody waits."""
        self._ended = False
        self.held = False
        """Whether the connection has counted pieces that nobody took at once."""
        self.failure: Callable[[], Failure] | None = None

    # The connection's side

    def wake(self) -> None:
        """There are new pieces, or there will be no more."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        take, pieces = self._take, self.pieces
        if take is not None and pieces:
            try:
                more = take(pieces.pop() if len(pieces) == 1 and not self.held else self._taken())
            except Exception as error:  # noqa: BLE001 - it is that of who waits, not the connection's
                waiter.set_exception(error)
                return
            if more and not self._ended:
                return
            waiter.set_result(not more)
        else:
            waiter.set_result(False)

    def end(self, pieces: list[bytes]) -> None:
        """It is whole. `pieces`: what was not read yet, its own."""
        self.pieces = pieces
        self._ended = True
        self._source = None
        if self._waiter is not None:
            self.wake()

    def fail(self, failure: Callable[[], Failure]) -> None:
        """It will never be whole. What came before is still read first.

        `failure` makes one for each raise: one that was kept would hold its traceback, and that us.
        """
        self._ended = True
        self.failure = failure
        self._source = None
        if not self.headed.done():
            self.headed.set_result(None)
        self.wake()

    # The reader's side

    @property
    def ended(self) -> bool:
        """See `Answer.ended`."""
        return self._ended and not self.pieces and self.failure is None

    async def read(self) -> bytes:
        """See `Answer.read`. What has come already is returned without suspending."""
        while not self.pieces:
            if self._ended:
                if self.failure is not None:
                    raise self.failure()
                return b""
            await self._more()
        return self._taken()

    async def hand_on(self, take: Callable[[bytes], bool], heard: Callable[[], bool] | None = None) -> bool:
        """See `Answer.hand_on`."""
        self.heard = heard
        while True:
            if self.pieces:
                if not take(self._taken()):
                    return True
            elif self._ended:
                if self.failure is not None:
                    raise self.failure()
                return False
            elif await self._more(take):
                return True

    async def _more(self, take: Callable[[bytes], bool] | None = None) -> bool:
        """Wait until something has come that `take` does not take, or nothing will: whether `take` wants no
        more.
        """
        if self._waiter is not None:
            raise RuntimeError("an answer has one reader")
        waiter = self._waiter = self.headed.get_loop().create_future()  # to ask which runs is a system call
        self._take = take
        try:
            return await waiter
        finally:
            self._waiter = self._take = None

    def _taken(self) -> bytes:
        """What has come and was not read."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self.held:
            self.held = False
            if self._source is not None:
                self._source.taken()
        return data

    async def read_all(self, limit: int) -> bytes:
        """See `Answer.read_all`."""
        if self._ended and self.failure is None and len(self.pieces) == 1 and len(self.pieces[0]) <= limit:
            return self.pieces.pop()
        data = await self.read()
        if self.ended and len(data) <= limit:
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

    def blame(self, failure: Failure) -> None:
        """See `Answer.blame`. Nobody counts here."""

    def close(self) -> None:
        """See `Answer.close`."""
        source, self._source = self._source, None
        if source is not None:
            self.fail(broken)
            source.abort()
        self.pieces = []
