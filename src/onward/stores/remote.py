"""The stores of another process: `Store` and `RateLimits` over one Unix socket.

Workers reach the supervisor's stores so: one SQLite writer, few PostgreSQL connections and exact
limits per host. Calls of one connection begin over there in the order in which they were made here.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from onward.admission.idempotency import Claim, ClaimResult
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Operation, Result
from onward.admission.limits import Exceeded, GiveBack, Take
from onward.admission.store import (
    Directory,
    EntryPage,
    EntryQuery,
    Money,
    StoredKey,
    UsageQuery,
    UsageRow,
)
from onward.stores import calls
from onward.stores.calls import Method
from onward.stores.down import down

CONNECT_S = 1.0
"""Seconds that calls wait for a connection."""
CALL_S = 30.0
"""Seconds that a call may go unanswered. The stores behind it give up sooner."""
MAX_PENDING = 10_000
"""Calls. Whoever asks more at once is refused."""
_RETRY_S = 0.02
_NUMBERS = 2**32


class StoreConnection:
    """A process's connection to the stores' socket. Connects by itself, and again when it was lost.

    Calls that a lost connection leaves without an answer fail with STORE_DOWN: whether they were done
    is not known, and repeating them is harmless. Belongs to one event loop.
    """

    def __init__(self, path: str, *, connect_s: float = CONNECT_S, call_s: float = CALL_S) -> None:
        self._path = path
        self._connect_s = connect_s
        self._call_s = call_s
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pending: dict[int, tuple[asyncio.Future[Any], Method, float]] = {}
        self._numbers = itertools.count()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(self, method: Method, *arguments: Any) -> Any:
        """The result of a method over there; raises what it raised, or STORE_DOWN."""
        if self._link is None:
            await self._connect()
        link = self._link
        if link is None or len(self._pending) >= MAX_PENDING:
            raise down()
        number = next(self._numbers) % _NUMBERS
        frame = calls.encode(number, method.code, arguments)
        loop = asyncio.get_running_loop()
        answered = loop.create_future()
        self._pending[number] = (answered, method, loop.time())
        if self._watch is None:
            self._watch = loop.call_later(self._call_s / 4, self._look_for_stall)
        link.write(frame)
        try:
            return await answered
        finally:
            # An error that it raises knows this frame, and all that await it: a circle that would keep their
            # answers until garbage is looked for, which is seldom.
            del answered

    async def close(self) -> None:
        """Close the connection; pending calls fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.abort()
        self._drop()

    async def _connect(self) -> None:
        """Wait until there is a connection, or none is to be had."""
        if self._closed:
            return
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._try_to_connect())
        await asyncio.wait([self._connecting])  # a caller that gives up leaves it to the others

    async def _try_to_connect(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._connect_s
        try:
            while True:
                try:
                    await loop.create_unix_connection(lambda: _Link(self), self._path)
                except OSError:
                    if loop.time() + _RETRY_S >= until:
                        return
                    await asyncio.sleep(_RETRY_S)
                else:
                    return
        finally:
            self._connecting = None

    def connected(self, link: "_Link") -> None:
        """A link is up."""
        if self._closed:
            link.abort()
        else:
            self._link = link

    def answered(self, number: int, code: int, content: bytes) -> None:
        """An answer has come. Raises `FrameError`."""
        answered, method, _ = self._pending.pop(number, (None, None, None))
        if answered is None or method is None:
            raise calls.FrameError(f"an answer to call {number}, which was not made")
        if answered.done():  # the caller does not wait any more
            return
        try:
            if code == calls.Answer.RESULT:
                answered.set_result(method.decode_result(content))
            else:
                answered.set_exception(calls.decode_error(code, content))
        except (calls.FrameError, msgspec.MsgspecError) as error:
            answered.set_exception(down())
            raise calls.FrameError(str(error)) from error

    def lost(self, link: "_Link") -> None:
        """A link has ended."""
        if link is self._link:
            self._drop()

    def _drop(self) -> None:
        self._link = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        pending, self._pending = self._pending, {}
        for answered, _, _ in pending.values():
            if not answered.done():
                answered.set_exception(down())

    def _look_for_stall(self) -> None:
        """End a connection whose other side has not answered for too long."""
        self._watch = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        since = next(iter(self._pending.values()))[2]
        if loop.time() - since > self._call_s and self._link is not None:
            self._link.abort()
            self._drop()
        else:
            self._watch = loop.call_later(self._call_s / 4, self._look_for_stall)


class _Link(asyncio.Protocol):
    """One connected socket."""

    def __init__(self, owner: StoreConnection) -> None:
        self._owner = owner
        self._reader = calls.FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            for number, code, content in self._reader.feed(data):
                self._owner.answered(number, code, content)
        except calls.FrameError:
            self.abort()
            self._owner.lost(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._owner.lost(self)

    def write(self, frame: bytearray) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class RemoteStore:
    """`Store` of another process. `close` leaves the connection, which others use too."""

    def __init__(self, connection: StoreConnection) -> None:
        self._call = connection.call

    async def apply(self, operations: list[Operation]) -> list[Result]:
        return await self._call(calls.APPLY, operations)

    async def renew(self, lease: str, until_ms: int) -> None:
        await self._call(calls.RENEW, lease, until_ms)

    async def expire_leases(self, now_ms: int, keep: frozenset[str]) -> int:
        return await self._call(calls.EXPIRE_LEASES, now_ms, keep)

    async def revision(self) -> int:
        return await self._call(calls.REVISION)

    async def directory(self) -> Directory:
        return await self._call(calls.DIRECTORY)

    async def add_key(self, key: Key, *, prefix: str, at_ms: int) -> StoredKey:
        return await self._call(calls.ADD_KEY, key, prefix, at_ms)

    async def change_key(self, key: Key) -> StoredKey | None:
        return await self._call(calls.CHANGE_KEY, key)

    async def revoke_key(self, key_id: str, at_ms: int) -> StoredKey | None:
        return await self._call(calls.REVOKE_KEY, key_id, at_ms)

    async def keys(self, *, after: str | None, limit: int) -> list[StoredKey]:
        return await self._call(calls.KEYS, after, limit)

    async def key(self, key_id: str) -> StoredKey | None:
        return await self._call(calls.KEY, key_id)

    async def touch_keys(self, used: dict[str, int]) -> None:
        await self._call(calls.TOUCH_KEYS, used)

    async def add_tenant(self, tenant: Tenant, at_ms: int) -> None:
        await self._call(calls.ADD_TENANT, tenant, at_ms)

    async def change_tenant(self, tenant: Tenant) -> bool:
        return await self._call(calls.CHANGE_TENANT, tenant)

    async def credit(
        self, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None = None
    ) -> Money:
        return await self._call(calls.CREDIT, tenant, amount, note, at_ms, once)

    async def cancel(self, request_id: str) -> bool:
        return await self._call(calls.CANCEL, request_id)

    async def money(self, account_ids: list[str]) -> list[Money]:
        return await self._call(calls.MONEY, account_ids)

    async def entries(self, query: EntryQuery) -> EntryPage:
        return await self._call(calls.ENTRIES, query)

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        return await self._call(calls.USAGE, query)

    async def prune(self, attempts_before_ms: int) -> int:
        return await self._call(calls.PRUNE, attempts_before_ms)

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        return await self._call(calls.CLAIM, claims)

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        await self._call(calls.UNCLAIM, claims)

    async def forget_answers(self, before_ms: int) -> int:
        return await self._call(calls.FORGET_ANSWERS, before_ms)

    async def close(self) -> None:
        """Nothing of its own is open."""


class RemoteLimits:
    """`RateLimits` of another process. `close` leaves the connection, which others use too."""

    def __init__(self, connection: StoreConnection) -> None:
        self._call = connection.call

    async def take(self, takes: list[Take]) -> list[Exceeded | None]:
        return await self._call(calls.TAKE, takes)

    async def give_back(self, ends: list[GiveBack]) -> None:
        await self._call(calls.GIVE_BACK, ends)

    async def renew(self, lease: str) -> None:
        await self._call(calls.RENEW_PLACES, lease)

    async def drop_lease(self, lease: str) -> None:
        await self._call(calls.DROP_LEASE, lease)

    async def close(self) -> None:
        """Nothing of its own is open."""
