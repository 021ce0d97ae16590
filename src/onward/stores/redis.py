"""Rate limits in Redis: exact over all gateways that use it, under one clock, its own.

All calls of one turn of the event loop, and those that come while Redis works, are one script run
(`limits.lua`): atomic, one round trip. Repeating a run is harmless, so a connection that Redis has
closed meanwhile costs a second try and nothing else.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from onward.admission.limits import Exceeded, GiveBack, LimitKind, Take
from onward.stores.batch import GroupCommit
from onward.stores.down import down
from onward.stores.error import StoreError

PREFIX: Final = "onward:limits:"
ANSWER_S: Final = 2.0
"""Seconds that a run may take, with a new connection where that is needed."""
_LARGEST: Final = 500
"""Operations in one run: nobody else is served meanwhile."""
_SCRIPT: Final = (Path(__file__).parent / "limits.lua").read_text(encoding="utf-8")
_HASH: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_TAKE, _GIVE_BACK, _RENEW, _DROP = range(1, 5)

_log = logging.getLogger("onward")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[LimitKind, int, int] | bool]).decode
_Operation = tuple[Any, ...]
_Refusals = list[Exceeded | None]


class RedisLimits:
    """`RateLimits` in Redis.

    `url` is ``redis://``, ``rediss://`` (TLS) or ``unix://`` with what redis-py's URLs may have; StoreError
    if it is none. It connects when it is first asked, and again after every failure. `clock` stands in
    for Redis' own, for tests.
    """

    def __init__(self, url: str, *, prefix: str = PREFIX, clock: Callable[[], float] | None = None) -> None:
        try:
            # Its client would cost as much again as everything else here: one connection does.
            pool = ConnectionPool.from_url(url, socket_timeout=None, socket_connect_timeout=ANSWER_S)
            self._connection = pool.make_connection()
        except (ValueError, TypeError) as error:
            raise StoreError(
                "The address of Redis cannot be read. Write it as redis://HOST:PORT/DATABASE."
            ) from error
        self._prefix = prefix
        self._clock = clock
        self._down = False
        self._calls: GroupCommit[list[_Operation], _Refusals] = GroupCommit(self._run, largest=64)

    async def take(self, takes: list[Take]) -> _Refusals:
        return await self._calls.submit(
            [
                (
                    _TAKE,
                    take.request_id,
                    take.subject,
                    take.lease,
                    take.tokens,
                    take.requests_per_minute,
                    take.tokens_per_minute,
                    take.concurrency,
                )
                for take in takes
            ]
        )

    async def give_back(self, ends: list[GiveBack]) -> None:
        await self._calls.submit(
            [(_GIVE_BACK, end.request_id, end.subject, end.tokens, end.counts) for end in ends]
        )

    async def renew(self, lease: str) -> None:
        await self._calls.submit([(_RENEW, lease)])

    async def drop_lease(self, lease: str) -> None:
        await self._calls.submit([(_DROP, lease)])

    async def close(self) -> None:
        await self._calls.drain()
        await self._connection.disconnect()

    async def _run(self, calls: list[list[_Operation]]) -> list[_Refusals]:
        """One refusal or None for each take of each call."""
        operations = [operation for call in calls for operation in call]
        refusals: _Refusals = []
        for start in range(0, len(operations), _LARGEST):
            refusals += await self._send(operations[start : start + _LARGEST])
        results: list[_Refusals] = []
        position = 0
        for call in calls:
            takes = sum(operation[0] == _TAKE for operation in call)
            results.append(refusals[position : position + takes])
            position += takes
        return results

    async def _send(self, operations: Sequence[_Operation]) -> _Refusals:
        time = "" if self._clock is None else repr(self._clock())
        arguments = (1, self._prefix, _encode(operations), time)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._evaluate(arguments)
            refusals = [_refusal(one) for one in _decode(answer)] if answer[0] != _EMPTY_MAP else []
        except (RedisError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            if not self._down:
                _log.error("Redis does not answer: %s", str(error) or f"not within {ANSWER_S:g} s")
            self._down = True
            raise down() from error
        if self._down:
            _log.warning("Redis answers again")
            self._down = False
        return refusals

    async def _evaluate(self, arguments: tuple[Any, ...]) -> Any:
        connection = self._connection
        if connection.is_connected:
            try:
                return await self._ask(arguments)
            except RedisConnectionError:  # it was closed while nobody looked
                pass
        await connection.connect()
        return await self._ask(arguments)

    async def _ask(self, arguments: tuple[Any, ...]) -> Any:
        connection = self._connection
        try:
            await connection.send_command("EVALSHA", _HASH, *arguments, check_health=False)
            return await connection.read_response()
        except NoScriptError:
            await connection.send_command("EVAL", _SCRIPT, *arguments, check_health=False)
            return await connection.read_response()


_EMPTY_MAP: Final = 0x80
"""How Lua's MessagePack writes a table with nothing in it."""


def _refusal(answer: tuple[LimitKind, int, int] | bool) -> Exceeded | None:
    if isinstance(answer, bool):
        return None
    kind, limit, wait = answer
    return Exceeded(kind=kind, limit=limit, retry_after_s=wait)
