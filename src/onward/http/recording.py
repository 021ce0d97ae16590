"""An answer as it is made, in memory, for all that follow it: its first caller, and whoever repeats it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from onward.admission.idempotency import Binding, Claim, KeptAnswer
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import HeaderValue
from onward.http.event_stream import EVENT_STREAM
from onward.http.exchange import JSON, Exchange, Headers

PROVIDER_CLASS: Final = b"x-provider-class"
NOT_KEPT: Final = KeptAnswer(status=0, headers=(), body=b"")
"""Is kept in place of an answer that is too large: its name stays taken."""


class Room:
    """Bytes of all recordings of a process."""

    def __init__(self, answer_bytes: int, all_bytes: int, window_bytes: int) -> None:
        """`answer_bytes`: of one answer that is kept. `window_bytes`: what is held of one that is not."""
        self.answer_bytes = answer_bytes
        self.all_bytes = all_bytes
        self.window_bytes = window_bytes
        self.held = 0

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Bytes of an answer that is repeated. Raises ENGINE_FULL where there is no room."""
        if self.held + size > self.all_bytes:
            raise Failure(FailureKind.ENGINE_FULL, "Too many answers are being repeated. Try again soon.")
        self.held += size
        try:
            yield
        finally:
            self.held -= size


class Follower:
    """One that reads a recording, at its own pace."""

    def __init__(self) -> None:
        self.position = 0
        """How many pieces it has read."""
        self.ready = asyncio.Event()


class Recording:
    """Where the answer to a named request goes, instead of to a connection.

    It takes what an `Exchange` and its `EventStream` take. Nobody who follows it can slow it down, as
    long as it is kept. An answer larger than there is `Room` for is not: its pieces go once all
    followers have read them, who are waited for, and nobody can begin to follow it any more.
    """

    def __init__(self, exchange: Exchange, claim: Claim, room: Room) -> None:
        """`exchange`: of the request that runs. Its connection is not touched."""
        self._exchange = exchange
        self.claim = claim
        self._room = room
        self._pieces: list[bytes] = []
        self._gone = 0
        """Pieces that are not held any more."""
        self._held = 0
        self._size = 0
        self._keeps = True
        self._followers: set[Follower] = set()
        self._free = asyncio.Event()
        self.streams = False
        self.whole: tuple[int, bytes] | None = None
        """Status and body of an answer that is no stream."""
        self.failure: Failure | None = None
        """Why there is no answer."""
        self.ended = False
        self.bound = False
        """Whether its name has got an answer, or will have."""

    # For the request

    @property
    def answering(self) -> bool:
        """Whether something of an answer was made."""
        return self._size > 0 or self.whole is not None

    @property
    def started(self) -> bool:
        """See `EventStream.started`."""
        return self.answering

    async def respond(self, status: int, body: bytes) -> None:
        """The whole answer."""
        self.whole = (status, body)
        self._end()

    async def __aenter__(self) -> Self:
        self.streams = True
        self._wake()
        return self

    async def __aexit__(self, *error: object) -> None:
        """A stream ends by `end`, or its failure by `fail`."""

    def put_now(self, data: bytes) -> bool:  # noqa: ARG002
        """False: what is too large to be kept has to wait for who follows."""
        return False

    async def put(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """Bytes of whole events."""
        if not data:
            return
        self._add(data)
        while not self._keeps and self._followers and self._held > self._room.window_bytes:
            self._free.clear()
            await self._free.wait()

    async def end(self, data: bytes) -> None:
        """The last bytes."""
        self._add(data)
        self._end()

    def fail(self, failure: Failure) -> None:
        """The request has ended without an answer, or in the middle of one."""
        if not self.ended:
            self.failure = failure
            self._end()

    def binding(self, end: bytes) -> Binding:
        """The answer as it is with these last bytes."""
        if not self.streams:
            return self._binding(200, [JSON], end)
        return self._binding(200, EVENT_STREAM, b"".join((*self._pieces, end)) if self._keeps else b"")

    def binding_of(self, failure: Failure) -> Binding:
        """The answer as it is if it ends by a failure now."""
        if self.answering:
            return self.binding(self._exchange.failure_event(failure))
        encoded = self._exchange.failure_answer(failure)
        return self._binding(encoded.status, encoded.headers, encoded.body)

    # For those who follow

    @property
    def provider_class(self) -> bytes | None:
        """Of the deployment that answers, or is tried."""
        return self._exchange.header_values.get(HeaderValue.PROVIDER_CLASS)

    def attach(self) -> Follower:
        """Begin to follow it. Raises IDEMPOTENCY_CONFLICT where its beginning is not held any more."""
        if self._gone:
            raise not_kept()
        follower = Follower()
        self._followers.add(follower)
        return follower

    def detach(self, follower: Follower) -> None:
        """Follow it no more."""
        self._followers.discard(follower)
        self._trim()
        self._free.set()

    async def begun(self, follower: Follower) -> None:
        """Wait until it is known what the answer is: a stream, a whole one, or none."""
        while not (self.streams or self.ended):
            await self._changed(follower)

    async def read(self, follower: Follower) -> tuple[bytes, bool]:
        """Some of what was made since the last time, and whether it ends there. Waits for it."""
        while not self.ended and follower.position == self._gone + len(self._pieces):
            await self._changed(follower)
        start = end = follower.position - self._gone
        size = 0
        while end < len(self._pieces) and size < self._room.window_bytes:
            size += len(self._pieces[end])
            end += 1
        data = b"".join(self._pieces[start:end])
        follower.position = self._gone + end
        last = self.ended and end == len(self._pieces)
        self._trim()
        return data, last

    async def _changed(self, follower: Follower) -> None:
        follower.ready.clear()
        await follower.ready.wait()

    def _wake(self) -> None:
        for follower in self._followers:
            follower.ready.set()

    def _add(self, data: bytes) -> None:
        room = self._room
        self._pieces.append(data)
        self._size += len(data)
        self._held += len(data)
        room.held += len(data)
        if self._size > room.answer_bytes or room.held > room.all_bytes:
            self._keeps = False
        self._wake()
        self._trim()

    def _end(self) -> None:
        self.ended = True
        self._wake()
        self._trim()

    def _trim(self) -> None:
        """Let go of what nobody will read."""
        if self._keeps and (self._followers or not self.ended):
            return
        behind = [follower.position for follower in self._followers]
        count = min(behind, default=self._gone + len(self._pieces)) - self._gone
        if not count:
            return
        size = sum(map(len, self._pieces[:count]))
        del self._pieces[:count]
        self._gone += count
        self._held -= size
        self._room.held -= size
        self._free.set()

    def _binding(self, status: int, headers: Headers, body: bytes) -> Binding:
        answer = NOT_KEPT
        if self._keeps and len(body) <= self._room.answer_bytes:
            named = self.provider_class
            more = [] if named is None else [(PROVIDER_CLASS, named)]
            answer = KeptAnswer(status=status, headers=(*headers, *more), body=body)
        return Binding(scope=self.claim.scope, name=self.claim.name, answer=answer)


def not_kept() -> Failure:
    """The failure of a repetition whose answer was too large."""
    return Failure(
        FailureKind.IDEMPOTENCY_CONFLICT,
        "The answer to this Idempotency-Key was too large to be kept. To ask again, send another key.",
        param="Idempotency-Key",
    )
