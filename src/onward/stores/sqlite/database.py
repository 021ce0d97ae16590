"""One SQLite file: opening it, bringing its schema up to date, transactions, checkpoints, what goes wrong.

There are several connections, so that nobody waits who need not. Writes go over one, their statements
right on the event loop: they only copy pages into the write-ahead log, which takes less than handing
them to a thread. Short reads go over another and long ones over a third, each in a thread of its own.
One more, in a thread too, moves the log into the file from time to time (a checkpoint).
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeVar

import filelock

from onward.stores.down import down
from onward.stores.error import StoreError
from onward.stores.statements import Migration, read_migrations

MIGRATIONS: Final = read_migrations(Path(__file__).parent / "migrations")
APPLICATION: Final = 0x4F4E5744
"""Marks the file as ours (``ONWD``)."""

_PAGE_BYTES = 2048
"""A commit writes whole pages, and few rows."""
_BUSY_S = 5.0
"""How long writes wait for other processes, all together: who comes when one has given up waits no more."""
_BUSY_AGAIN_S = 1.0
"""A lock that nobody has met for so long is a new one."""
_READ_BUSY_S = 5.0
_CHECKPOINT_S = 1.0
_ROWS = 20_000
"""After so many changed rows the log is moved into the file, while writes go on."""
_LONG_LOG_BYTES = 64 * 1024 * 1024
"""A log of more is cut: writes wait until it is empty."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Durability = Literal["process", "disk"]
_Thread = Literal["short", "long", "checkpoint", "commit"]


def fail(error: sqlite3.Error) -> NoReturn:
    """Say why in the log, and fail."""
    why = f"another process has it locked for {_BUSY_S:g} s or longer" if _is_busy(error) else str(error)
    _log.error("the SQLite store does not answer: %s (%s)", why, code_of(error) or "no code")
    raise down() from error


def code_of(error: sqlite3.Error) -> str:
    """The name of an error's code, such as ``SQLITE_FULL``."""
    return getattr(error, "sqlite_errorname", None) or ""


def _is_busy(error: sqlite3.Error) -> bool:
    return code_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


class Database:
    """The file and its connections. `open` makes one."""

    def __init__(self, path: Path, durability: Durability, lock: filelock.FileLock | None) -> None:
        self._path = path
        self._file_lock = lock
        self._flushes = durability == "disk"
        self.writer = _connect(path, timeout=0)
        self.writer.execute(f"PRAGMA synchronous = {'FULL' if self._flushes else 'NORMAL'}")
        self.cursor = self.writer.cursor()
        self._beside: dict[_Thread, sqlite3.Connection] = {
            "short": _connect(path, timeout=_READ_BUSY_S),
            "long": _connect(path, timeout=_READ_BUSY_S),
            "checkpoint": _connect(path, timeout=0),
        }
        threads: tuple[_Thread, ...] = (*self._beside, "commit")
        self._threads = {name: ThreadPoolExecutor(1, f"sqlite-{name}") for name in threads}
        self._turn = asyncio.Lock()
        self._moved_rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._checkpoint: asyncio.Task[None] | None = None
        self._closed = False
        self._file = _identity(path)
        self._there = True
        self._locked_since: float | None = None
        self._locked_at = 0.0

    @classmethod
    def open(cls, path: Path, durability: Durability, *, owner: bool) -> "Database":
        """Open or make the file. StoreError says why it cannot be used."""
        lock = _own(path) if owner else None
        try:
            _create(path)
            migrate(path, MIGRATIONS)
            return cls(path, durability, lock)
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, OSError | sqlite3.Error):
                raise StoreError(f"The store {path} cannot be opened: {error}.") from error
            raise

    async def write(self, work: Callable[[sqlite3.Cursor], _T]) -> _T:
        """Do `work` in a transaction of its own, durably. What it raises undoes it."""
        async with self._turn:
            await self._begin()
            result = self._work(work)
            await self._commit()
            return result

    def write_now(self, work: Callable[[sqlite3.Cursor], _T]) -> _T | None:
        """The same at once; None, and nothing is done, where it would have to wait."""
        if self._closed or not self._there:
            raise down()
        if self._flushes or self._turn.locked():
            return None
        try:
            self.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if _is_busy(error):
                return None
            fail(error)
        self._locked_since = None
        result = self._work(work)
        try:
            self.cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            fail(error)
        if self._timer is None:
            self._arm()
        return result

    async def read(self, work: Callable[[sqlite3.Connection], _T], *, long: bool = False) -> _T:
        """Do `work` on one state of the file, in a thread. What may take `long` holds up nothing else."""
        self._look()
        if self._closed or not self._there:
            raise down()
        thread = "long" if long else "short"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[thread], _reading, self._beside[thread], work)

    async def close(self) -> None:
        """Let go of the file, after all writes. The last one who does moves the log into it."""
        async with self._turn:
            if self._closed:
                return
            self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._checkpoint is not None:
            await self._checkpoint
        loop = asyncio.get_running_loop()
        for thread, connection in (*self._beside.items(), ("commit", self.writer)):
            await loop.run_in_executor(self._threads[thread], connection.close)
            self._threads[thread].shutdown()
        if self._file_lock is not None:
            self._file_lock.release()

    async def _begin(self) -> None:
        """Wait for whoever writes: another process, or the end of the log."""
        pause = 0.001
        while True:
            if self._closed or not self._there:
                raise down()
            try:
                self.cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not _is_busy(error) or self._locked_for() > _BUSY_S:
                    fail(error)
            else:
                self._locked_since = None
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _locked_for(self) -> float:
        """Seconds for which somebody else has been writing, as far as we met it."""
        now = asyncio.get_running_loop().time()
        if self._locked_since is None or now - self._locked_at > _BUSY_AGAIN_S:
            self._locked_since = now
        self._locked_at = now
        return now - self._locked_since

    def _look(self) -> None:
        """Notice that the file is not ours any more: what we wrote to would be found by nobody."""
        there = _identity(self._path) == self._file
        if there != self._there:
            self._there = there
            if there:
                _log.warning("the file of the SQLite store is back: %s", self._path)
            else:
                _log.error(
                    "the file of the SQLite store was removed or replaced: %s. Nothing is admitted until it"
                    " is back; to use another one start the server again",
                    self._path,
                )

    def _work(self, work: Callable[[sqlite3.Cursor], _T]) -> _T:
        try:
            return work(self.cursor)
        except sqlite3.IntegrityError:
            self._rollback()
            raise
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            self._rollback()
            if isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError):
                raise
            fail(error)
        except BaseException:
            self._rollback()
            raise

    async def _commit(self) -> None:
        try:
            if self._flushes:
                await self._flush()
            else:
                self.cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            fail(error)
        if self._timer is None:
            self._arm()

    async def _flush(self) -> None:
        """Commit in a thread. It cannot be cancelled, so this waits for its end in any case."""
        loop = asyncio.get_running_loop()
        flushing = loop.run_in_executor(self._threads["commit"], self.cursor.execute, "COMMIT")
        cancelled: asyncio.CancelledError | None = None
        while not flushing.done():
            try:
                await asyncio.wait([flushing])
            except asyncio.CancelledError as error:
                cancelled = error
        flushing.result()
        if cancelled is not None:
            raise cancelled

    def _rollback(self) -> None:
        with suppress(sqlite3.Error):  # some errors have rolled it back
            self.cursor.execute("ROLLBACK")

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_CHECKPOINT_S, self._start_checkpoint)

    def _start_checkpoint(self) -> None:
        """Move the log, if there is enough of it. The next write sets the timer again."""
        self._timer = None
        if self.writer.total_changes - self._moved_rows >= _ROWS and self._checkpoint is None:
            self._moved_rows = self.writer.total_changes
            self._checkpoint = asyncio.ensure_future(self._move_log())

    async def _move_log(self) -> None:
        """Move the log into the file. Under steady writes it has no end of its own: a long one is cut."""
        try:
            await self._move("PASSIVE")
            if _size(self._path.with_name(self._path.name + "-wal")) > _LONG_LOG_BYTES:
                async with self._turn:  # what is left is little
                    await self._move("TRUNCATE")
        except sqlite3.Error as error:
            if not _is_busy(error):
                _log.error("the log of the SQLite store cannot be moved into it: %s", error)
        finally:
            self._checkpoint = None

    async def _move(self, mode: str) -> None:
        await asyncio.get_running_loop().run_in_executor(
            self._threads["checkpoint"],
            self._beside["checkpoint"].execute,
            f"PRAGMA wal_checkpoint({mode})",
        )


def _reading(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    try:
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")
    except (sqlite3.ProgrammingError, sqlite3.DataError):
        raise
    except sqlite3.Error as error:
        fail(error)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None: to none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _own(path: Path) -> filelock.FileLock:
    """Only one server at a time: it alone decides about money."""
    if not path.parent.is_dir():
        raise StoreError(f"The store {path} cannot be opened: there is no folder {path.parent}.")
    lock = filelock.FileLock(path.with_name(path.name + ".lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise StoreError(
            f"The store {path} belongs to a server that runs already. Stop it, or use another file."
        ) from error
    except OSError as error:
        raise StoreError(f"The store {path} cannot be opened: {error}.") from error
    return lock


def _create(path: Path) -> None:
    """Make the file, if need be, so that nobody but us can read it: its keys are hashed, its money is not."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _connect(path: Path, *, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute(f"PRAGMA journal_size_limit = {_LONG_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(path: Path, migrations: list[Migration]) -> None:
    """Bring the schema up to date, each step whole or not at all. StoreError for a file that is not ours."""
    connection = _connect(path, timeout=_READ_BUSY_S)
    try:
        _version(connection, path, migrations)
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # of a new file only
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        while _step(connection, path, migrations):
            pass
    finally:
        connection.close()


def _step(connection: sqlite3.Connection, path: Path, migrations: list[Migration]) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path, migrations)
        if version == len(migrations):
            return False
        for statement in _statements(migrations[version].sql):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
        return True
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection, path: Path, migrations: list[Migration]) -> int:
    """How many steps the file has seen."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or version or tables):
        raise StoreError(f"The file {path} is a database of another program.")
    if version > len(migrations):
        raise StoreError(
            f"The store {path} was written by a newer version of Onward: its schema is {version}, this"
            f" version knows {len(migrations)}. Use the newer one."
        )
    return version


def _statements(sql: str) -> list[str]:
    statements: list[str] = []
    begun = ""
    for part in sql.split(";")[:-1]:
        begun += part + ";"
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements
