"""PostgreSQL: connections, what a URL may say, how long anybody waits, and what goes wrong.

The ledger has a connection of its own; everything else shares a small pool. Nobody waits for ever: not
for a connection, not for an answer, not for a lock, and not at the end of a connection.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Literal, NoReturn, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from onward.stores.down import down
from onward.stores.error import StoreError

CONNECT_S: Final = 3.0
"""Seconds that a connection may take to begin; `connect_timeout` of the URL says otherwise."""
ANSWER_S: Final = 5.0
"""Seconds that a transaction may take, with its wait for a connection."""
LONG_S: Final = 60.0
"""The same, where much is read."""
POOL: Final = 3
"""Connections beside the ledger's."""

Durability = Literal["process", "disk"]
_log = logging.getLogger("onward")
_T = TypeVar("_T")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # such as for a connection that the server has just ended
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
"""The connection is of no use any more; another one may be. (Read-only: it leads to a standby.)"""


class Connection(Protocol):
    """What is used of asyncpg's connections, those of its pools too."""

    async def execute(self, query: str, *arguments: object) -> str: ...
    async def fetch(self, query: str, *arguments: object) -> list[Any]: ...
    async def fetchrow(self, query: str, *arguments: object) -> Any: ...
    async def fetchval(self, query: str, *arguments: object) -> Any: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float) -> None: ...


def unreadable() -> StoreError:
    """The fault of a URL. It may hold a password anywhere, so nothing of it is told."""
    return StoreError(
        "The address of PostgreSQL cannot be read. Write it as postgresql://USER:PASSWORD@HOST/DATABASE."
    )


class Settings:
    """How to connect, out of a URL. StoreError for one that cannot be read."""

    def __init__(self, url: str, durability: Durability, schema: str) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise StoreError(f"'{schema[:40]}' cannot be the name of a schema.")
        try:
            parts = urlsplit(url)
            asked = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
            self.connect_s = float(asked.pop("connect_timeout", 0)) or CONNECT_S
        except ValueError as error:
            raise unreadable() from error
        self.answer_s = ANSWER_S
        self.dsn = parts._replace(query=urlencode(asked)).geturl()
        by_default = {
            "application_name": "onward",
            "statement_timeout": str(int(ANSWER_S * 1000)),
            # A gateway that stops in the middle of a transaction must not keep others from its accounts.
            "idle_in_transaction_session_timeout": str(int(ANSWER_S * 1000)),
            "tcp_keepalives_idle": "30",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "3",
        }
        self.server: dict[str, str] = {
            **{name: value for name, value in by_default.items() if name not in asked},
            "search_path": schema,
            "synchronous_commit": "on" if durability == "disk" else "off",
            "default_transaction_isolation": "read committed",
            "jit": "off",
            "timezone": "UTC",
        }


class Database:
    """A database's connections. `open` makes one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: asyncpg.Pool | None = None
        self._ledger: Connection | None = None
        self._failing = False
        self._closed = False

    @classmethod
    async def open(cls, settings: Settings) -> "Database":
        """Open it. Nothing is connected yet. StoreError for a URL that cannot be read."""
        database = cls(settings)
        try:
            database._pool = await asyncpg.create_pool(
                settings.dsn,
                min_size=0,
                max_size=POOL,
                reset=_leave,
                timeout=settings.connect_s,
                server_settings=settings.server | {"plan_cache_mode": "force_custom_plan"},
            )
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise unreadable() from error
        return database

    async def read(self, work: Callable[[Connection], Awaitable[_T]], *, within: float | None = None) -> _T:
        """Do `work`, which changes nothing or may be repeated, on a connection of the pool."""
        return await self._pooled(work, within or self._settings.answer_s, again=True)

    async def write(self, work: Callable[[Connection], Awaitable[_T]]) -> _T:
        """Do `work` in a transaction of its own, flushed to the disk: it is rare, and must not be lost."""

        async def transaction(connection: Connection) -> _T:
            async with connection.transaction():
                await connection.execute("SET LOCAL synchronous_commit = on")
                return await work(connection)

        return await self._pooled(transaction, self._settings.answer_s, again=False)

    async def ledger(self, work: Callable[[Connection], Awaitable[_T]], *, within: float | None = None) -> _T:
        """Do `work` on the ledger's connection: one at a time. Where it breaks, once more on a new one."""
        until = asyncio.get_running_loop().time() + (within or self._settings.answer_s)
        try:
            connection = self._ledger
            if connection is not None and not connection.is_closed():
                with suppress(*_LOST):
                    return self._answered(await _until(until, connection, work))
            self._ledger = connection = await self._connect(until)
            return self._answered(await _until(until, connection, work))
        except _FAULTS as error:
            self._fail(error)

    async def close(self) -> None:
        """Close the connections, for a moment politely."""
        if self._closed:
            return
        self._closed = True
        connection, self._ledger = self._ledger, None
        if connection is not None:
            try:
                await connection.close(timeout=1)
            except _FAULTS:
                connection.terminate()
        if self._pool is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._pool.close()
            self._pool.terminate()

    async def _connect(self, until: float) -> Connection:
        if self._closed:
            raise down()
        settings = self._settings
        connect: Any = asyncpg.connect  # which has no types
        try:
            async with asyncio.timeout_at(until):
                return await connect(
                    settings.dsn, timeout=settings.connect_s, server_settings=settings.server
                )
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise unreadable() from error

    async def _pooled(self, work: Callable[[Connection], Awaitable[_T]], within: float, *, again: bool) -> _T:
        until = asyncio.get_running_loop().time() + within
        try:
            if again:
                with suppress(*_LOST):
                    return self._answered(await self._once(until, work))
            return self._answered(await self._once(until, work))
        except _FAULTS as error:
            self._fail(error)

    async def _once(self, until: float, work: Callable[[Connection], Awaitable[_T]]) -> _T:
        if self._closed or self._pool is None:
            raise down()
        pool: Any = self._pool  # whose connections have no types
        try:
            async with asyncio.timeout_at(until):
                connection = await pool.acquire()
        except TimeoutError as error:
            raise _TooLateError("no connection came free in time") from error
        try:
            return await _until(until, connection, work)
        finally:
            await pool.release(connection)

    def _answered(self, result: _T) -> _T:
        if self._failing:
            self._failing = False
            _log.warning("PostgreSQL answers again")
        return result

    def _fail(self, error: Exception) -> NoReturn:
        """STORE_DOWN for what is the database's fault, ValueError for what is the data's."""
        if isinstance(error, asyncpg.DataError):
            raise ValueError(f"PostgreSQL cannot hold this: {error}") from error  # noqa: TRY004
        if not self._failing:
            self._failing = True
            _log.error("PostgreSQL does not answer: %s", str(error) or type(error).__name__)
        raise down() from error


class _TooLateError(Exception):
    """There was no answer in time."""


_FAULTS = (*_LOST, asyncpg.PostgresError, _TooLateError)


async def _until(until: float, connection: Connection, work: Callable[[Connection], Awaitable[_T]]) -> _T:
    """Do `work`. When its time is over the connection ends, and so does the work.

    Cancelling the work instead would wait for a server that hangs to say that it has stopped.
    """
    loop = asyncio.get_running_loop()
    timer = loop.call_at(until, connection.terminate)
    try:
        return await work(connection)
    except (asyncio.CancelledError, *_LOST) as error:
        connection.terminate()
        if loop.time() >= until and not isinstance(error, asyncio.CancelledError):
            raise _TooLateError("no answer came in time") from error
        raise
    finally:
        timer.cancel()


async def _leave(connection: Connection) -> None:
    """Nothing that we do outlives a transaction, so there is nothing to reset."""
