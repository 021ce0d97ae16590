"""A plan goes to every HTTP process in two steps, whatever becomes of some of them meanwhile."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from onward.wiring import plan as words
from onward.wiring import workers
from onward.wiring.config import Config
from onward.wiring.workers import Workers, _Worker


class Process:
    """What a worker reads, and the supervisor's view of it."""

    def __init__(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        self.worker = worker
        self._reader = reader

    async def reads(self) -> words.ToWorker:
        async with asyncio.timeout(5):
            return words.to_worker(await self._reader.readline())

    async def prepares(self, number: int, fault: str | None = None) -> None:
        word = await self.reads()
        assert isinstance(word, words.Prepare)
        assert word.plan.number == number
        self.worker.answered(words.Prepared(number, fault))


class Host:
    """`Workers` whose processes a test makes up."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.over: list[int] = []
        nobody: Any = None
        self.workers = Workers(plan(0), [], Path(), nobody, over=self._over, reload=nobody)

    async def _over(self, number: int) -> None:
        self.over.append(number)

    async def joins(self, pid: int) -> Process:
        ours, theirs = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=ours)
        reader, back = await asyncio.open_connection(sock=theirs)
        worker = self.workers._workers[pid] = _Worker(writer, self.workers._plan.number)
        for one in (writer, back):
            self._stack.push_async_callback(_closed, one)
        return Process(worker, reader)

    def ends(self, pid: int) -> None:
        """As the end of a process does."""
        self.workers._workers.pop(pid).gone()
        self.workers._look_for_over()

    async def has(self, *over: int) -> None:
        async with asyncio.timeout(5):
            while self.over != list(over):
                await asyncio.sleep(0)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def plan(number: int) -> words.Plan:
    return words.Plan(config=Config(), model_files={}, sockets={}, number=number)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:
        yield Host(stack)


async def test_all_prepare_then_all_commit_and_the_old_plan_ends_behind_the_last(host: Host):
    one, two = await host.joins(1), await host.joins(2)
    preparing = asyncio.create_task(host.workers.prepare(plan(1)))
    await one.prepares(1)
    assert not preparing.done()
    await two.prepares(1)
    assert await preparing == []
    await host.workers.commit(plan(1))
    assert [await one.reads(), await two.reads()] == [words.Commit(1)] * 2
    host.workers._heard(one.worker, words.Over(0), asyncio.Future())
    await asyncio.sleep(0)
    assert host.over == []
    host.workers._heard(two.worker, words.Over(0), asyncio.Future())
    await host.has(0)


@pytest.mark.parametrize("dies", [False, True])
async def test_one_that_cannot_keeps_all_from_it(host: Host, dies: bool):
    one, two = await host.joins(1), await host.joins(2)
    preparing = asyncio.create_task(host.workers.prepare(plan(1)))
    await one.prepares(1)
    if dies:
        await two.reads()
        host.ends(2)
    else:
        await two.prepares(1, "x.gguf cannot be served")
    [fault] = await preparing
    assert ("ended while" in fault) if dies else (fault == "x.gguf cannot be served")
    await host.workers.abort(1)
    assert await one.reads() == words.Abort(1)


async def test_one_that_never_answers(host: Host, monkeypatch):
    monkeypatch.setattr(workers, "PREPARE_S", 0.05)
    await host.joins(1)
    [fault] = await host.workers.prepare(plan(1))
    assert "was not ready for it within" in fault


async def test_one_that_comes_between_the_steps_takes_both(host: Host):
    one = await host.joins(1)
    preparing = asyncio.create_task(host.workers.prepare(plan(1)))
    await one.prepares(1)
    await preparing
    late = await host.joins(2)
    await host.workers.commit(plan(1))
    assert await one.reads() == words.Commit(1)
    word = await late.reads()
    assert isinstance(word, words.Prepare)
    assert await late.reads() == words.Commit(1)
    later = await host.joins(3)
    assert later.worker.plans == {1}
    host.ends(2)
    host.ends(1)
    await host.has(0)
