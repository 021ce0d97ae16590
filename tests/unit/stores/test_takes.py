"""The gate's ways to limits."""

import asyncio

import pytest

from onward.admission.limits import Exceeded, GiveBack, Take
from onward.core.failure import Failure, FailureKind
from onward.stores import takes as takes_module
from onward.stores.limits import MemoryLimits
from onward.stores.takes import GatheredLimits, direct
from tests.contract.limits import HeldClock


def take(name: str, limit: int = 1) -> Take:
    return Take(
        request_id=name,
        lease="lease",
        subject="key",
        tokens=0,
        requests_per_minute=None,
        tokens_per_minute=None,
        concurrency=limit,
    )


def end(name: str) -> GiveBack:
    return GiveBack(request_id=name, subject="key", tokens=0, counts=True)


class Recording(MemoryLimits):
    """Limits that tell what they were asked, and can be down."""

    def __init__(self) -> None:
        super().__init__(HeldClock().read)
        self.calls: list[list[str]] = []
        self.down = False

    def _record(self, what: str, items) -> None:
        self.calls.append([what, *(item.request_id for item in items)])
        if self.down:
            raise Failure(FailureKind.STORE_DOWN, "Down.")

    async def take(self, takes):
        self._record("take", takes)
        return await super().take(takes)

    async def give_back(self, ends):
        self._record("end", ends)
        await super().give_back(ends)


async def test_direct_limits_answer_at_once():
    ways = direct(MemoryLimits(HeldClock().read))
    assert await ways.take(take("a")) is None
    assert await ways.take(take("b")) is not None
    ways.give_back(end("a"))
    assert await ways.take(take("b")) is None
    assert await ways.give_back(end("b")) is None


async def test_what_comes_in_one_turn_is_one_call():
    limits = Recording()
    ways = GatheredLimits(limits).takes
    results = await asyncio.gather(*(ways.take(take(name, 2)) for name in "abc"))
    assert [isinstance(one, Exceeded) for one in results] == [False, False, True]
    assert limits.calls == [["take", "a", "b", "c"]]


async def test_ends_make_room_for_the_takes_of_the_same_turn():
    limits = Recording()
    ways = GatheredLimits(limits).takes
    await ways.take(take("a"))
    taken = ways.take(take("b"))
    ways.give_back(end("a"))
    assert await taken is None


async def test_an_end_stays_behind_the_take_of_the_same_turn():
    limits = Recording()
    ways = GatheredLimits(limits).takes
    taken = ways.take(take("a"))
    await ways.give_back(end("a"))
    assert await taken is None
    assert await ways.take(take("b")) is None, "the place is free"


async def test_takes_fail_and_ends_are_sent_again_while_the_limits_are_down(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(takes_module, "_AGAIN_S", 0.001)
    limits = Recording()
    gathered = GatheredLimits(limits)
    ways = gathered.takes
    await ways.take(take("a"))
    limits.down = True
    ways.give_back(end("a"))
    for name in "bc":
        with pytest.raises(Failure) as failure:
            await ways.take(take(name))
        assert failure.value.kind is FailureKind.STORE_DOWN
    limits.down = False
    while isinstance(await ways.take(take("d")), Exceeded):
        await asyncio.sleep(0.001)
    await gathered.close()


async def test_a_take_that_nobody_waits_for_any_more():
    limits = Recording()
    ways = GatheredLimits(limits).takes
    waiting = asyncio.ensure_future(ways.take(take("a")))
    await asyncio.sleep(0)
    waiting.cancel()
    ways.give_back(end("a"))
    assert await ways.take(take("b")) is None


async def test_what_is_left_is_sent_when_they_are_closed():
    limits = Recording()
    gathered = GatheredLimits(limits)
    await gathered.takes.take(take("a"))
    limits.down = True
    gathered.takes.give_back(end("a"))
    while len(limits.calls) < 2:
        await asyncio.sleep(0)
    limits.down = False
    await gathered.close()
    assert limits.take_one(take("b")) is None
