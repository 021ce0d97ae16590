"""Names gathered into few calls, and names of a process without a store."""

import asyncio

import pytest

from onward.admission.idempotency import Binding, Claim, Claimed, Conflict, Kept, KeptAnswer, Running
from onward.core.failure import Failure
from onward.stores.claims import GatheredClaims, MemoryClaims
from onward.stores.down import down

pytestmark = pytest.mark.covers("P-8")
ANSWER = KeptAnswer(status=200, headers=(), body=b"words")


class Clock:
    now = 1000.0

    def unix(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def named(name: str = "n", request_id: str = "r", **fields) -> Claim:
    values = {"scope": "k", "path": "/p", "body_sha256": b"x", "lease": "l", "at_ms": 1_000_000}
    return Claim(name=name, request_id=request_id, **(values | fields))


def bound(name: str = "n", body: bytes = b"words") -> Binding:
    return Binding(scope="k", name=name, answer=KeptAnswer(status=200, headers=(), body=body))


class Unsteady(MemoryClaims):
    """Can be down or slow, and counts calls."""

    def __init__(self) -> None:
        super().__init__(Clock(), keep_ms=3_600_000)
        self.calls: list[int] = []
        self.broken = False
        self.slow: asyncio.Event | None = None

    async def claim(self, claims):
        self.calls.append(len(claims))
        results = await super().claim(claims)
        if self.slow is not None:
            await self.slow.wait()
        if self.broken:
            raise down()  # though it was written
        return results

    async def unclaim(self, claims):
        if self.broken:
            raise down()
        await super().unclaim(claims)


# In memory


async def test_a_name_is_taken_once():
    claims = MemoryClaims(Clock(), keep_ms=1000)
    assert await claims.claim([named(), named(request_id="s")]) == [Claimed(), Running("r", "l")]
    assert await claims.claim([named()]) == [Claimed()]
    assert await claims.claim([named(scope="other", request_id="t")]) == [Claimed()]
    for other in (named(path="/q", request_id="s"), named(body_sha256=b"y", request_id="s")):
        assert await claims.claim([other]) == [Conflict()]


async def test_an_answer_is_for_the_request_that_has_the_name():
    claims = MemoryClaims(Clock(), keep_ms=1000)
    claims.bind("r", bound())
    await claims.claim([named()])
    claims.bind("s", bound())
    assert await claims.claim([named(request_id="s")]) == [Running("r", "l")]
    claims.bind("r", bound())
    claims.bind("r", bound(body=b"others"))
    assert await claims.claim([named(request_id="s")]) == [Kept("r", ANSWER)]
    await claims.unclaim([named()])
    assert await claims.claim([named()]) == [Kept("r", ANSWER)]


async def test_a_name_that_was_let_go_is_free():
    claims = MemoryClaims(Clock(), keep_ms=1000)
    await claims.claim([named()])
    await claims.unclaim([named(request_id="s"), named("never")])
    assert await claims.claim([named(request_id="s")]) == [Running("r", "l")]
    await claims.unclaim([named()])
    assert await claims.claim([named(request_id="s")]) == [Claimed()]


async def test_answers_are_forgotten_in_time_and_where_there_is_no_room():
    clock = Clock()
    claims = MemoryClaims(clock, keep_ms=10_000, most_bytes=5000)
    for name in "abc":
        await claims.claim([named(name)])
        claims.bind("r", bound(name, b"x" * 1000))
    assert await claims.claim([named("c", "s")]) == [Kept("r", bound("c", b"x" * 1000).answer)]
    assert await claims.claim([named("a", "s")]) == [Claimed()]  # the oldest had to go
    clock.now += 11
    assert await claims.claim([named("b", "s"), named("c", "s")]) == [Claimed(), Claimed()]
    assert await claims.claim([named("a", "t")]) == [Running("s", "l")]  # what runs stays


# Gathered


async def test_what_comes_in_one_turn_is_one_call():
    store = Unsteady()
    claims = GatheredClaims(store)
    results = await asyncio.gather(*[claims.claim(named(str(n // 2), str(n))) for n in range(6)])
    assert results == [
        Claimed(),
        Running("0", "l"),
        Claimed(),
        Running("2", "l"),
        Claimed(),
        Running("4", "l"),
    ]
    assert store.calls == [6]


async def test_a_crowd_that_repeats_large_answers_does_not_get_all_of_them_into_memory():
    store = Unsteady()
    claims = GatheredClaims(store)
    await claims.claim(named())
    store.bind("r", bound())
    results = await asyncio.gather(*[claims.claim(named(request_id=str(n))) for n in range(100)])
    assert results == [Kept("r", ANSWER)] * 100
    assert max(store.calls) <= 16


async def test_a_claim_of_which_nothing_is_known_is_let_go():
    store = Unsteady()
    claims = GatheredClaims(store)
    store.broken = True
    with pytest.raises(Failure):
        await claims.claim(named())
    with pytest.raises(Failure):
        await claims.retry()
    store.broken = False
    assert await claims.claim(named(request_id="s")) == Running("r", "l")
    await claims.retry()
    assert await claims.claim(named(request_id="s")) == Claimed()


async def test_who_is_cancelled_while_claiming_has_no_name():
    store = Unsteady()
    store.slow = asyncio.Event()
    claims = GatheredClaims(store)
    claiming = asyncio.create_task(claims.claim(named()))
    await asyncio.sleep(0.01)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await claims.retry()  # not before it is known to be written
    store.slow.set()
    store.slow = None
    assert await claims.claim(named(request_id="s")) == Running("r", "l")
    await claims.retry()
    assert await claims.claim(named(request_id="s")) == Claimed()


async def test_a_name_is_let_go_later_while_the_store_is_down():
    store = Unsteady()
    claims = GatheredClaims(store)
    assert await claims.claim(named()) == Claimed()
    store.broken = True
    await claims.let_go(named())
    store.broken = False
    await claims.retry()
    assert await claims.claim(named(request_id="s")) == Claimed()
    await claims.retry()
    await claims.let_go(named(request_id="s"))
    assert await claims.claim(named(request_id="t")) == Claimed()
