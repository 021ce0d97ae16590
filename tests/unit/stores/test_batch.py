"""Group commit: in order, one batch at a time, each item's fate its own."""

import asyncio
import contextlib

import pytest

from onward.core.failure import Failure, FailureKind
from onward.stores.batch import GroupCommit


class Writer:
    """Notes its batches; waits for `go` where it is told to; fails for what is in `wrong`."""

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.wrong: dict[int, Exception] = {}
        self.waits = waits
        self.go = asyncio.Event()
        self.running = 0

    def write(self, items: list[int]):
        return self._later(items) if self.waits else self._result(items)

    async def _later(self, items: list[int]) -> list[str]:
        self.running += 1
        assert self.running == 1
        await self.go.wait()
        try:
            return self._result(items)
        finally:
            self.running -= 1

    def _result(self, items: list[int]) -> list[str]:
        self.batches.append(items)
        for item in items:
            if item in self.wrong:
                raise self.wrong[item]
        return [f"={item}" for item in items]


def down() -> Failure:
    return Failure(FailureKind.STORE_DOWN, "It is down.", retry_after=3)


@pytest.fixture(params=["at once", "later"])
def writer(request: pytest.FixtureRequest) -> Writer:
    writer = Writer(waits=request.param == "later")
    writer.go.set()
    return writer


async def test_what_one_turn_submits_shares_a_batch(writer: Writer):
    group = GroupCommit(writer.write)
    futures = [group.submit(number) for number in range(5)]
    assert writer.batches == []
    assert await asyncio.gather(*futures) == ["=0", "=1", "=2", "=3", "=4"]
    assert writer.batches == [[0, 1, 2, 3, 4]]
    assert await group.submit(5) == "=5"
    assert writer.batches[1:] == [[5]]


async def test_the_next_batch_gathers_while_one_is_written():
    writer = Writer(waits=True)
    group = GroupCommit(writer.write)
    first = group.submit(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert writer.running == 1
    rest = []
    for number in (2, 3, 4):
        rest.append(group.submit(number))
        await asyncio.sleep(0)
    writer.go.set()
    assert await asyncio.gather(first, *rest) == ["=1", "=2", "=3", "=4"]
    assert writer.batches == [[1], [2, 3, 4]]


async def test_batches_are_bounded_and_in_order(writer: Writer):
    group = GroupCommit(writer.write, largest=3)
    futures = [group.submit(number) for number in range(8)]
    await asyncio.gather(*futures)
    assert writer.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_a_failure_of_the_store_fails_the_batch_and_no_other(writer: Writer):
    group = GroupCommit(writer.write, largest=2)
    writer.wrong = {1: down()}
    results = await asyncio.gather(*[group.submit(number) for number in range(4)], return_exceptions=True)
    assert results[2:] == ["=2", "=3"]
    assert writer.batches == [[0, 1], [2, 3]]
    for failure in results[:2]:
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.message, failure.retry_after) == (
            FailureKind.STORE_DOWN,
            "It is down.",
            3,
        )
    assert results[0] is not results[1], "each has a traceback of its own"


async def test_an_item_at_fault_fails_alone(writer: Writer):
    group = GroupCommit(writer.write)
    writer.wrong = {2: ValueError("two"), 4: OverflowError("four")}
    results = await asyncio.gather(*[group.submit(number) for number in range(6)], return_exceptions=True)
    assert [str(result) for result in results] == ["=0", "=1", "two", "=3", "four", "=5"]
    assert await group.submit(7) == "=7"


async def test_who_stops_waiting_does_not_undo_the_write(writer: Writer):
    group = GroupCommit(writer.write)
    waiting = asyncio.create_task(_wait(group, 1))
    await asyncio.sleep(0)
    other = group.submit(2)
    waiting.cancel()
    assert await other == "=2"
    assert writer.batches == [[1, 2]]
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_who_stops_waiting_while_it_is_written():
    writer = Writer(waits=True)
    group = GroupCommit(writer.write)
    waiting = asyncio.create_task(_wait(group, 1))
    while not writer.running:
        await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    writer.go.set()
    assert await group.submit(2) == "=2"
    assert writer.batches == [[1], [2]]


async def test_a_failure_that_nobody_waits_for_is_no_noise(writer: Writer):
    """Ends of requests are handed over without waiting; the loop's handler must not hear of them."""
    heard: list[dict] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    try:
        group = GroupCommit(writer.write)
        writer.wrong = {1: down(), 2: ValueError("two"), 3: ValueError("three")}
        group.submit(1)
        await group.drain()
        group.submit(2)
        group.submit(3)
        await group.drain()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert heard == []


async def test_a_writer_that_forgets_a_result():
    group = GroupCommit(lambda items: [1])
    results = await asyncio.gather(group.submit(1), group.submit(2), return_exceptions=True)
    assert [type(result) for result in results] == [RuntimeError, RuntimeError]
    assert await group.submit(3) == 1


async def test_drain_waits_for_everything(writer: Writer):
    group = GroupCommit(writer.write, largest=2)
    await group.drain()
    futures = [group.submit(number) for number in range(5)]
    await group.drain()
    assert all(future.done() for future in futures)


async def _wait(group: GroupCommit, item: int) -> object:
    return await group.submit(item)
