"""An HTTP process does what its supervisor says, and ends with it, however that ends."""

import asyncio
import contextlib
import os
import socket

import pytest

from onward.wiring import plan as words
from onward.wiring import worker
from onward.wiring.config import Config
from onward.wiring.listen import ServeError


class Side:
    """An HTTP side that can be told what cannot be prepared."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.prepared: int | None = None
        self.committed: list[int] = []

    async def prepare(self, plan: words.Plan) -> None:
        if self.fault is not None:
            raise ServeError(self.fault)
        self.prepared = plan.number

    def commit(self, number: int) -> bool:
        if self.prepared != number:
            return False
        self.committed.append(number)
        return True

    async def abort(self, number: int) -> None:
        self.prepared = None


@pytest.fixture
def codes(monkeypatch) -> list[int]:
    found: list[int] = []

    def leave(code: int) -> None:
        found.append(code)
        raise asyncio.CancelledError

    monkeypatch.setattr(os, "_exit", leave)
    return found


@pytest.fixture
async def connected():
    """The supervisor's end of a control socket, and the worker's."""
    theirs, ours = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    yield theirs, worker.Supervisor(reader, writer)
    theirs.close()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def plan(number: int) -> words.Plan:
    return words.Plan(config=Config(), model_files={}, sockets={}, number=number)


async def heard(theirs: socket.socket) -> words.FromWorker:
    theirs.setblocking(False)
    async with asyncio.timeout(5):
        return words.from_worker(await asyncio.get_running_loop().sock_recv(theirs, 10_000))


@pytest.mark.parametrize("read", [True, False])
async def test_a_supervisor_that_is_gone_ends_it(codes, connected, read: bool):
    """Also one that was killed before it had read that we are ready: its end is an error then."""
    theirs, supervisor = connected
    supervisor.tell(words.Ready())
    await asyncio.sleep(0)
    theirs.send(words.line(words.Drain()))
    obeying = asyncio.create_task(supervisor.obey(Side()))  # pyright: ignore[reportArgumentType]
    async with asyncio.timeout(5):
        await supervisor.drain.wait()
        if read:
            assert isinstance(await heard(theirs), words.Ready)
        theirs.close()
        await asyncio.wait([obeying])
    assert codes == [1]
    assert not supervisor.hurry.is_set()


async def test_a_plan_is_taken_up_in_two_steps(codes, connected):
    theirs, supervisor = connected
    side = Side()
    obeying = asyncio.create_task(supervisor.obey(side))  # pyright: ignore[reportArgumentType]
    theirs.send(words.line(words.Prepare(plan(7))))
    assert await heard(theirs) == words.Prepared(7)
    assert side.committed == []
    theirs.send(words.line(words.Commit(7)))
    side.fault = "no.gguf cannot be served"
    theirs.send(words.line(words.Prepare(plan(8))))
    assert await heard(theirs) == words.Prepared(8, "no.gguf cannot be served")
    assert side.committed == [7]
    theirs.send(words.line(words.Commit(9)))  # never prepared: a fresh process knows better
    await asyncio.wait([obeying], timeout=5)
    assert codes == [1]
    theirs.close()


async def test_what_an_operator_asked_for_comes_back(codes, connected):
    theirs, supervisor = connected
    obeying = asyncio.create_task(supervisor.obey(Side()))  # pyright: ignore[reportArgumentType]
    asking = asyncio.create_task(supervisor.reload())
    word = await heard(theirs)
    assert isinstance(word, words.Reload)
    theirs.send(words.line(words.Reloaded(word.call, faults=["server.port: is fixed"])))
    with pytest.raises(worker.ReloadRefused) as caught:
        await asking
    assert caught.value.faults == ["server.port: is fixed"]
    theirs.close()
    await asyncio.wait([obeying], timeout=5)
