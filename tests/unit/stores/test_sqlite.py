"""What is peculiar to a store in a SQLite file: the file, its log, other processes, a disk that fails."""

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.admission.ledger import Done, Granted
from onward.admission.store import EntryQuery
from onward.core.failure import Failure, FailureKind
from onward.stores.error import StoreError
from onward.stores.sqlite import SqliteStore, database
from onward.stores.sqlite.database import APPLICATION, MIGRATIONS, migrate
from onward.stores.statements import Migration
from tests.contract.stores import apply, credit, entry, money, reserve, settle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["process", "disk"])
async def store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, durability=request.param)
    yield store
    await store.close()


async def test_nobody_else_can_read_it(store: SqliteStore, path: Path):
    await credit(store, 1)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


async def test_one_server_at_a_time(path: Path):
    store = await SqliteStore.open(path)
    with pytest.raises(StoreError, match="belongs to a server that runs already"):
        await SqliteStore.open(path)
    beside = await SqliteStore.open(path, owner=False)
    await beside.close()
    await store.close()
    await (await SqliteStore.open(path)).close()


async def test_a_store_that_could_not_be_opened_is_free_again(path: Path):
    path.write_bytes(b"something else altogether" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="not a database"):
            await SqliteStore.open(path)


async def test_what_cannot_be_opened(path: Path, tmp_path: Path):
    with pytest.raises(StoreError, match="there is no folder"):
        await SqliteStore.open(tmp_path / "missing" / "store.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        await SqliteStore.open(tmp_path)


async def test_a_database_of_another_program_is_left_as_it_is(path: Path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_newer_schema_is_refused(store: SqliteStore, path: Path):
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer version of Onward"):
        await SqliteStore.open(path)


def test_migrations_go_forward_each_whole_or_not_at_all(path: Path):
    first = Migration(1, "one", "CREATE TABLE a (x); INSERT INTO a VALUES (1); -- done; really\n")
    second = Migration(
        2, "two", "ALTER TABLE a ADD COLUMN y; UPDATE a SET y = ';'; INSERT INTO missing VALUES (1);"
    )
    migrate(path, [first])
    with pytest.raises(sqlite3.OperationalError):
        migrate(path, [first, second])

    def state() -> tuple:
        connection = sqlite3.connect(path)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        rows = connection.execute("SELECT * FROM a").fetchall()
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        connection.close()
        return version, rows

    assert state() == (1, [(1,)])
    migrate(path, [first, second._replace(sql=second.sql.replace("missing", "a (x)"))])
    assert state() == (2, [(1, ";"), (1, None)])
    migrate(path, [first, second])
    assert state() == (2, [(1, ";"), (1, None)])


def holding(path: Path) -> sqlite3.Connection:
    """Another process that writes and does not end."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def test_a_write_waits_for_another_process_and_the_loop_does_not(store: SqliteStore, path: Path):
    await credit(store, 10)
    other = holding(path)
    waiting = asyncio.create_task(apply(store, reserve("r", 4)))
    turns = 0
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10
    assert not waiting.done()
    assert await money(store) == (10, 0, 0), "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert await waiting == [Granted()]


async def test_a_write_does_not_wait_for_ever(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(database, "_BUSY_S", 0.05)
    await credit(store, 10)
    other = holding(path)
    with pytest.raises(Failure) as caught:
        await apply(store, reserve("r", 4))
    assert (caught.value.kind, bool(caught.value.retry_after)) == (FailureKind.STORE_DOWN, True)
    assert "lock" not in caught.value.message
    assert "SQLITE_BUSY" in caplog.text
    other.close()
    assert await money(store) == (10, 0, 0)
    assert await apply(store, reserve("r", 4)) == [Granted()]


async def test_writes_that_wait_for_a_lock_give_up_together(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Not one after the other: whoever came later would wait as often as long. A later lock is a new one."""
    monkeypatch.setattr(database, "_BUSY_S", 0.2)
    monkeypatch.setattr(database, "_BUSY_AGAIN_S", 0.1)
    await credit(store, 100)
    other = holding(path)
    began = time.monotonic()
    writes = [store.renew(f"lease{n}", 1) for n in range(3)] + [apply(store, reserve("r", 4))]
    failures = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(failure, Failure) for failure in failures)
    assert time.monotonic() - began < 0.5
    assert "another process has it locked" in caplog.text
    other.close()
    assert await apply(store, reserve("r", 4)) == [Granted()]
    other = holding(path)
    waiting = asyncio.create_task(apply(store, reserve("later", 4)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    other.close()
    assert await waiting == [Granted()]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_gone_is_noticed(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture, replaced: bool
):
    """What is written to it nobody would find: nothing is, until it is back."""
    await credit(store, 100)
    away = path.with_name("away.db")
    path.rename(away)
    if replaced:
        path.write_bytes(away.read_bytes())
    with pytest.raises(Failure) as caught:
        await store.revision()  # which is asked once a second
    assert caught.value.kind is FailureKind.STORE_DOWN
    with pytest.raises(Failure):
        await apply(store, reserve("r", 4))
    with pytest.raises(Failure):
        await store.renew("lease", 1)
    assert caplog.text.count("was removed or replaced") == 1
    away.rename(path)
    await store.revision()
    assert await apply(store, reserve("r", 4)) == [Granted()]
    assert await money(store) == (100, 0, 4)


async def test_a_full_disk(store: SqliteStore, caplog: pytest.LogCaptureFixture):
    """Nothing is given away, nothing is half written, and when there is room again all goes on."""
    await credit(store, 10**6)
    connection = store._database.writer
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    admitted = 0

    async def fill() -> None:
        nonlocal admitted
        while True:
            await apply(store, *[reserve(f"r{admitted}-{number}", 1) for number in range(10)])
            admitted += 10

    with pytest.raises(Failure) as caught:
        await fill()
    assert caught.value.kind is FailureKind.STORE_DOWN
    assert "SQLITE_FULL" in caplog.text
    assert "full" not in caught.value.message
    assert await money(store) == (10**6, 0, admitted)
    connection.execute("PRAGMA max_page_count = 1000000")
    assert await apply(store, reserve("more", 1), settle("r0-0", 1)) == [Granted(), Done(ended=admitted > 0)]
    assert (await money(store))[1:] == (int(admitted > 0), admitted + 1 - int(admitted > 0))


async def test_a_disk_that_takes_no_writes(store: SqliteStore, caplog: pytest.LogCaptureFixture):
    store._database.writer.execute("PRAGMA query_only = ON")
    for call in (apply(store, reserve("r", 1)), credit(store, 1), store.renew("lease", 1)):
        with pytest.raises(Failure) as caught:
            await call
        assert caught.value.kind is FailureKind.STORE_DOWN
    assert "SQLITE_READONLY" in caplog.text
    store._database.writer.execute("PRAGMA query_only = OFF")
    assert await apply(store, reserve("r", 0)) == [Granted()]


async def test_a_file_that_is_spoilt(path: Path, caplog: pytest.LogCaptureFixture):
    store = await SqliteStore.open(path)
    await apply(store, *[reserve(f"r{number}", 0) for number in range(5000)])
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 2))
    store = await SqliteStore.open(path)
    with pytest.raises(Failure) as caught:
        await apply(store, settle("r1", 1))
    assert caught.value.kind is FailureKind.STORE_DOWN
    assert "SQLITE_CORRUPT" in caplog.text
    await store.close()


async def test_cancelling_a_write_leaves_the_books_right(path: Path):
    """Whether it was written or not: what is decided next is decided by what the file says."""
    store = await SqliteStore.open(path, durability="disk")
    await credit(store, 1000)
    for number in range(30):
        task = asyncio.create_task(apply(store, reserve(f"r{number}", 10)))
        for _ in range(number % 6):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await apply(store)  # what was begun before is over
    held = (await money(store))[2]
    assert await apply(store, reserve("rest", 1000 - held), reserve("more", 1)) != [Granted(), Granted()]
    assert await money(store) == (1000, 0, 1000)
    await store.close()


async def test_writes_and_commits_do_not_mix(store: SqliteStore):
    """Everything that writes at once, over one connection."""
    await credit(store, 100_000)
    work = []
    for number in range(40):
        name = f"r{number}"
        work += [
            apply(store, reserve(name, 10), settle(name, 7)),
            credit(store, 1),
            store.renew(f"lease-{number}", 10),
            money(store),
            store.expire_leases(0, frozenset({"lease"})),
        ]
    await asyncio.gather(*work)
    assert await money(store) == (100_040, 280, 0)


async def test_the_log_stays_small(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also while writes never stop."""
    monkeypatch.setattr(database, "_CHECKPOINT_S", 0.01)
    monkeypatch.setattr(database, "_ROWS", 100)
    monkeypatch.setattr(database, "_LONG_LOG_BYTES", 200_000)
    store = await SqliteStore.open(path)
    log = path.with_name("store.db-wal")
    number = cuts = before = largest = 0
    async with asyncio.timeout(60):
        while cuts < 5:
            await apply(store, reserve(f"r{number}", 0))
            number += 1
            size = log.stat().st_size
            cuts += size < before
            largest = max(largest, size)
            before = size
            await asyncio.sleep(0)
    assert largest < 100 * 200_000
    assert await money(store) == (0, 0, 0)
    assert [len((await store.entries(EntryQuery(limit=number + 1))).entries)] == [number]
    await store.close()
    assert not log.exists()


async def test_a_long_read_holds_nothing_up(store: SqliteStore):
    release = threading.Event()
    reading = asyncio.create_task(store._database.read(lambda _: release.wait(60), long=True))
    try:
        assert await apply(store, reserve("r", 0)) == [Granted()]
        assert await store.revision() == 1
        assert not reading.done()
    finally:
        release.set()
    assert await reading


KILLED = """
import asyncio, sys
from pathlib import Path
from onward.stores.batch import GroupCommit
from onward.stores.sqlite import SqliteStore
from tests.contract.stores import reserve, settle

async def one(group, name):
    await group.submit(reserve(name, 10))
    print("+", name, flush=True)
    await group.submit(settle(name, 7))
    print("-", name, flush=True)

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    group = GroupCommit(store.write)
    number = 0
    while True:
        await asyncio.gather(*[one(group, f"{sys.argv[2]}-{number + index}") for index in range(7)])
        number += 7

asyncio.run(main())
"""


async def test_what_was_answered_survives_a_kill(path: Path):
    """After kill -9 at any moment: all that was said to be held or settled is, and ends once."""
    store = await SqliteStore.open(path)
    await credit(store, 10**12)
    await store.close()
    settled: set[str] = set()
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(turn)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(30 + 111 * turn)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait()
        said = [line for line in said if line.endswith("\n")]
        begun = {line[2:].strip() for line in said if line[0] == "+"}
        ended = {line[2:].strip() for line in said if line[0] == "-"}
        store = await SqliteStore.open(path)
        results = await store.apply([settle(name, 7) for name in sorted(begun)])
        open_still = {name for name, result in zip(sorted(begun), results, strict=True) if result == Done()}
        assert not open_still & ended
        settled |= begun
        await store.expire_leases(2**40, frozenset())
        credited, spent, held = await money(store)
        assert (credited, held) == (10**12, 0)
        assert (await entry(store, max(begun))).charged == 7
        assert spent % 7 == 0
        assert spent >= 7 * len(settled)
        settled |= {f"unsaid-{turn}-{number}" for number in range(spent // 7 - len(settled))}
        await store.close()
