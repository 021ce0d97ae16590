"""Stores over a socket: everything crosses as it is, and nobody waits for ever."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from onward.admission import ledger
from onward.admission.idempotency import Binding, Claim, Claimed, Conflict, Kept, KeptAnswer, Running
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Account, AccountKind, Entry, State
from onward.admission.store import (
    Directory,
    EntryPage,
    EntryQuery,
    Money,
    StoredKey,
    UsageQuery,
    UsageRow,
)
from onward.core.attempt import Attempt
from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.stores import calls
from onward.stores import remote as remote_module
from onward.stores.limits import MemoryLimits
from onward.stores.remote import RemoteLimits, RemoteStore, StoreConnection
from onward.stores.remote_server import serve_stores
from tests.contract.limits import Bench, HeldClock, listen

KEY = Key(
    id="k",
    name="né",
    sha256=b"\x00\xff" * 16,
    tenant="t",
    models=frozenset(("a", "b")),
    monthly_cap=9 * 10**18,
    concurrency=3,
)
STORED = StoredKey(key=KEY, prefix="on-ab", created_ms=1, last_used_ms=None, revoked_ms=2)
TENANT = Tenant(name="t", prepaid=True, agreements=frozenset("m"))
ATTEMPT = Attempt(deployment="d", outcome="ok", status=200, started_ms=1, first_ms=2, took_ms=3)
MONEY = Money(id="balance:t", credited=5, spent=3, held=1)
ENTRY = Entry(
    request_id="r",
    label="l",
    key_id=None,
    key_name=None,
    tenant="t",
    model="m",
    surface="chat",
    state=State.EXPIRED,
    held=9,
    charged=8,
    usage=Usage(1, 2, 1),
    estimated=True,
    overdraft=False,
    outcome="expired",
    attempts=(ATTEMPT,),
    at_ms=1,
    ended_ms=None,
    config_version="v",
)


def reserve(amount: int, request_id: str = "r") -> ledger.Reserve:
    accounts = (Account("balance:t", AccountKind.BALANCE), Account("key:k", AccountKind.KEY_MONTH, 10**18))
    return ledger.Reserve(
        request_id=request_id,
        lease="l",
        key_id="k",
        key_name=None,
        tenant="t",
        model="m",
        surface="chat",
        at_ms=1,
        amount=amount,
        accounts=accounts,
    )


CLAIM = Claim(scope="k", name="n", path="/p", body_sha256=b"\xff", request_id="r", lease="l", at_ms=1)
ANSWER = KeptAnswer(status=200, headers=((b"a", b"\xff"),), body=b"\x00\xff")
BINDING = Binding(scope="k", name="n", answer=ANSWER)

OPERATIONS: list[ledger.Operation] = [
    reserve(100),
    reserve(101),
    ledger.Progress(request_id="r", usage=Usage(1, 2, 0), charge=3),
    ledger.Settle(request_id="r", charge=5, usage=Usage(4, 5, 1), at_ms=6, attempts=(ATTEMPT, ATTEMPT)),
    ledger.Settle(request_id="r", charge=5, usage=Usage(4, 5, 1), at_ms=6, binding=BINDING),
    ledger.Release(request_id="r", at_ms=6, outcome="engine_full", attempts=(ATTEMPT,)),
    ledger.Expire(lease="l", at_ms=7),
]
RESULTS: list[ledger.Result] = [
    ledger.Granted(),
    ledger.Refused(AccountKind.BALANCE, 100),
    ledger.Done(),
    ledger.Done(ended=False),
]

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("apply", (OPERATIONS,), {}, RESULTS),
    ("renew", ("lease", 2**53), {}, None),
    ("expire_leases", (1, frozenset(("a", "b"))), {}, 4),
    ("revision", (), {}, 7),
    ("directory", (), {}, Directory(revision=7, keys=[KEY], tenants=[TENANT])),
    ("add_key", (KEY,), {"prefix": "on-", "at_ms": 5}, STORED),
    ("change_key", (KEY,), {}, None),
    ("revoke_key", ("k", 5), {}, STORED),
    ("keys", (), {"after": None, "limit": 5}, [STORED]),
    ("key", ("k",), {}, STORED),
    ("touch_keys", ({"k": 5},), {}, None),
    ("add_tenant", (TENANT, 5), {}, None),
    ("change_tenant", (TENANT,), {}, True),
    ("cancel", ("r",), {}, True),
    ("credit", ("t", -5), {"note": "n", "at_ms": 5, "once": None}, MONEY),
    ("money", (["balance:t", "x"],), {}, [MONEY]),
    ("entries", (EntryQuery(state=State.HELD, cursor="c"),), {}, EntryPage(entries=[ENTRY], cursor="d")),
    (
        "usage",
        (UsageQuery(group_by=("model", "day")),),
        {},
        [UsageRow(group={"model": "m", "day": None}, requests=1, usage=Usage(1), charged=2, estimated=0)],
    ),
    ("prune", (5,), {}, 6),
    ("claim", ([CLAIM] * 4,), {}, [Claimed(), Running("r", "l"), Kept("r", ANSWER), Conflict()]),
    ("unclaim", ([CLAIM],), {}, None),
    ("forget_answers", (5,), {}, 7),
]


class Recording:
    """A store that gives what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.results = {name: result for name, _, _, result in CALLS}

    def __getattr__(self, name: str):
        async def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments, keywords))
            return self.results[name]

        return call


async def test_every_method_of_the_store_crosses_as_it_is(tmp_path: Path):
    store, path = Recording(), tmp_path / "s"
    server = await serve_stores(listen(path), store, MemoryLimits(time.monotonic))  # type: ignore[arg-type]
    connection = StoreConnection(str(path))
    remote = RemoteStore(connection)
    for name, arguments, keywords, result in CALLS:
        assert await getattr(remote, name)(*arguments, **keywords) == result
        assert store.calls.pop() == (name, arguments, keywords)
    assert {name for name, *_ in CALLS} == {method.name for method in calls.STORE_METHODS}
    await connection.close()
    await server.close()


class Owner:
    """The process at the other end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        module = "tests.unit.stores.remote_process"
        self.process = subprocess.Popen([sys.executable, "-m", module, str(self.path)])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    owner = Owner(tmp_path_factory.mktemp("stores") / "s")
    owner.start()
    yield owner
    owner.kill()


@pytest.fixture
async def connection(owner: Owner) -> AsyncIterator[StoreConnection]:
    if owner.process is None:
        owner.start()
    connection = StoreConnection(str(owner.path), connect_s=20)
    await RemoteStore(connection).revision()
    yield connection
    await connection.close()


async def test_another_process_answers(owner: Owner, connection: StoreConnection):
    store = RemoteStore(connection)
    assert owner.process is not None
    assert await store.revision() == owner.process.pid != os.getpid()
    assert await store.apply([reserve(100), reserve(101)]) == RESULTS[:2]


def test_on_the_loop_that_servers_use(owner: Owner):
    async def call() -> list[ledger.Result]:
        connection = StoreConnection(str(owner.path))
        try:
            return await RemoteStore(connection).apply([reserve(100), reserve(101)])
        finally:
            await connection.close()

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(call()) == RESULTS[:2]
    finally:
        loop.close()


async def test_calls_are_answered_as_they_end(connection: StoreConnection):
    store = RemoteStore(connection)
    slow = asyncio.ensure_future(store.prune(300))
    assert await store.prune(1) == 1
    assert not slow.done()
    many = [store.apply([reserve(number)]) for number in range(200)]
    results = await asyncio.gather(*many)
    assert results == [[RESULTS[0] if number <= 100 else RESULTS[1]] for number in range(200)]
    assert await slow == 300


async def test_a_call_that_fails_keeps_nothing(connection: StoreConnection):
    """What its callers hold, such as answers of others in the same batch, goes without a search for garbage."""

    class Answer:
        """Is held while it is asked."""

    held: list[weakref.ref[Answer]] = []

    async def ask() -> None:
        answer = Answer()
        held.append(weakref.ref(answer))
        with contextlib.suppress(ValueError):
            await RemoteStore(connection).money([""])

    gc.disable()
    try:
        await ask()
        await asyncio.sleep(0)  # the step of the loop in which it failed is over
        assert held[0]() is None
    finally:
        gc.enable()


async def test_failures_cross_as_they_are(connection: StoreConnection, caplog: pytest.LogCaptureFixture):
    store = RemoteStore(connection)
    with pytest.raises(Failure) as failure:
        await store.credit("t", -5, note="n", at_ms=7, once="o")
    raised = failure.value
    assert raised.kind is FailureKind.INVALID_REQUEST
    assert raised.message == "t -5 n 7 o"
    assert (raised.param, raised.retry_after, raised.upstream_status) == ("amount", 3, 418)
    with pytest.raises(ValueError, match="no such account"):
        await store.money(["such account"])
    with pytest.raises(Failure) as failure:
        await store.touch_keys({})
    assert failure.value.kind is FailureKind.INTERNAL
    assert "secret" not in failure.value.message
    assert await store.prune(0) == 0, "the connection goes on"


async def test_limits_over_there(connection: StoreConnection):
    limits = RemoteLimits(connection)
    bench = Bench(HeldClock(), limits, limits)
    await limits.renew("lease")
    first = await bench.take(concurrency=1)
    assert not isinstance(await bench.take(concurrency=1), str)
    await bench.end(first)
    assert isinstance(await bench.take(concurrency=1), str)
    await limits.drop_lease("lease")
    assert isinstance(await bench.take(concurrency=1), str)


async def test_a_frame_that_is_too_long_is_not_sent(
    connection: StoreConnection, monkeypatch: pytest.MonkeyPatch
):
    store = RemoteStore(connection)
    with pytest.raises(ValueError, match="too long"):
        await store.keys(after=None, limit=calls.MAX_FRAME)
    monkeypatch.setattr(calls, "MAX_FRAME", 1000)
    with pytest.raises(ValueError, match="too long"):
        await store.apply([reserve(1)] * 100)
    assert await store.prune(0) == 0


async def test_more_calls_at_once_than_are_bearable(
    connection: StoreConnection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(remote_module, "MAX_PENDING", 10)
    store = RemoteStore(connection)
    results = await asyncio.gather(*(store.prune(20) for _ in range(12)), return_exceptions=True)
    assert [isinstance(result, Failure) for result in results] == [False] * 10 + [True] * 2


async def test_a_caller_that_gives_up(connection: StoreConnection):
    store = RemoteStore(connection)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.prune(50), 0.01)
    assert await store.prune(100) == 100, "the answer that nobody waited for came before this one"


async def test_a_process_that_dies_and_comes_back(owner: Owner, connection: StoreConnection):
    store = RemoteStore(connection)
    pending = [asyncio.ensure_future(store.prune(100_000)) for _ in range(3)]
    await store.prune(0)
    owner.kill()
    for call in pending:
        with pytest.raises(Failure) as failure:
            await call
        assert failure.value.kind is FailureKind.STORE_DOWN
        assert failure.value.retry_after
    owner.start()
    assert owner.process is not None
    pids = await asyncio.gather(*(store.revision() for _ in range(3)))
    assert set(pids) == {owner.process.pid}


async def test_nobody_is_there(tmp_path: Path):
    connection = StoreConnection(str(tmp_path / "nobody"), connect_s=0.05)
    began = time.monotonic()
    failures = await asyncio.gather(
        *(RemoteStore(connection).revision() for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(one, Failure) and one.kind is FailureKind.STORE_DOWN for one in failures)
    assert time.monotonic() - began < 5
    await connection.close()
    with pytest.raises(Failure):
        await RemoteStore(connection).revision()


async def test_a_process_that_hangs(owner: Owner, connection: StoreConnection):
    impatient = StoreConnection(str(owner.path), call_s=0.2)
    store = RemoteStore(impatient)
    await store.prune(0)
    assert owner.process is not None
    owner.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Failure) as failure:
            await store.prune(0)
        assert failure.value.kind is FailureKind.STORE_DOWN
    finally:
        owner.process.send_signal(signal.SIGCONT)
    assert await store.prune(0) == 0
    await impatient.close()


async def test_a_closed_connection_fails_what_is_pending(connection: StoreConnection):
    pending = asyncio.ensure_future(RemoteStore(connection).prune(100_000))
    await RemoteStore(connection).prune(0)
    await connection.close()
    with pytest.raises(Failure):
        await pending


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x00",
        bytes(calls.encode(1, 250, ())),
        bytes(calls.encode(1, calls.APPLY.code, ["no operations"])),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_whoever_speaks_another_protocol_is_cut_off(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
):
    server = await serve_stores(listen(tmp_path / "s"), None, MemoryLimits(time.monotonic))
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    writer.write(sent)
    writer.write(bytes(20))
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    await server.close()
    assert "cut off" in caplog.text


async def test_answers_that_make_no_sense_end_the_connection(tmp_path: Path):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(frames.pop(0))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        answered.release()

    answered = asyncio.Semaphore(0)
    frames = [
        bytes(calls.encode(77, 0, 1)),
        bytes(calls.encode(0, 0, "no number")),
        bytes(calls.encode(0, 9, 1)),
        bytes(calls.encode(0, calls.Answer.FAILURE, ["no such kind"])),
    ]
    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    for _ in range(len(frames)):
        connection = StoreConnection(str(tmp_path / "s"))
        with pytest.raises(Failure) as failure:
            await RemoteStore(connection).revision()
        assert failure.value.kind is FailureKind.STORE_DOWN
        await connection.close()
        await answered.acquire()
    server.close()
    assert not frames
