"""What every store promises about the names of requests (P-8)."""

import asyncio

import msgspec
import pytest

from onward.admission.idempotency import Binding, Claim, Claimed, Conflict, Kept, KeptAnswer, Running
from onward.admission.ledger import Expire
from onward.admission.store import Store
from tests.contract import stores
from tests.contract.stores import NOVEMBER, Place, apply, entry, release, settle

ANSWER = KeptAnswer(
    status=200,
    headers=((b"content-type", b"text/event-stream"), (b"x-provider-class", b"primary")),
    body=b"data: {}\n\n\x00\xff" * 3,
)


def named(name: str = "n", request_id: str = "r", **fields) -> Claim:
    values = {"scope": "ci", "path": "/v1/completions", "body_sha256": b"\x00" * 32, "lease": "lease"}
    return Claim(name=name, request_id=request_id, **({"at_ms": NOVEMBER} | values | fields))


def reserve(request_id: str, amount: int, **fields):
    return stores.reserve(request_id, amount, (stores.KEY,), **fields)


def bound(name: str = "n", scope: str = "ci") -> Binding:
    return Binding(scope=scope, name=name, answer=ANSWER)


async def test_the_first_request_of_a_name_runs(store: Store):
    assert await store.claim([]) == []
    assert await store.claim([named()]) == [Claimed()]
    assert await store.claim([named()]) == [Claimed()], "as often as it is repeated"
    assert await store.claim([named(request_id="second")]) == [Running("r", "lease")]
    assert await store.claim([named(request_id="third", scope="other")]) == [Claimed()], (
        "each key has its own"
    )


@pytest.mark.covers("P-8")
async def test_another_path_or_body_conflicts(store: Store):
    await store.claim([named()])
    others = [{"path": "/v1/chat/completions"}, {"body_sha256": b"\x01" * 32}]
    assert await store.claim([named(request_id="s", **other) for other in others]) == [Conflict()] * 2
    await apply(store, reserve("r", 5), settle("r", 5, binding=bound()))
    assert await store.claim([named(request_id="s", **other) for other in others]) == [Conflict()] * 2


async def test_a_batch_is_in_order(store: Store):
    results = await store.claim(
        [named("b", "1"), named("a", "2"), named("b", "3"), named("a", "2"), named("c", "4")]
    )
    assert results == [Claimed(), Claimed(), Running("1", "lease"), Claimed(), Claimed()]


@pytest.mark.covers("P-8")
@pytest.mark.parametrize("times", [0, 1, 100_000])
async def test_what_is_settled_is_kept(place: Place, store: Store, times: int):
    """Its answer, byte for byte, also for a server that starts after a crash."""
    answer = msgspec.structs.replace(ANSWER, body=ANSWER.body * times)
    await store.claim([named()])
    await apply(store, reserve("r", 60))
    await apply(store, settle("r", 45, binding=Binding(scope="ci", name="n", answer=answer)))
    assert await store.claim([named(request_id="s")]) == [Kept("r", answer)]
    await store.unclaim([named()])
    assert await store.claim([named(request_id="s")]) == [Kept("r", answer)], "it is not let go any more"
    again = await place.crash()
    assert await again.claim([named(request_id="t")]) == [Kept("r", answer)]
    assert (await entry(again, "r")).charged == 45


async def test_reserved_and_settled_in_one_batch(store: Store):
    await store.claim([named()])
    await apply(store, reserve("r", 60), settle("r", 45, binding=bound()), settle("r", 45, binding=bound()))
    assert await store.claim([named(request_id="s")]) == [Kept("r", ANSWER)]


async def test_what_is_not_settled_is_not_kept(store: Store):
    """Its reservation had ended, or the name is another request's by now."""
    await store.claim([named()])
    await apply(store, reserve("r", 60), release("r"), settle("r", 45, binding=bound()))
    assert await store.claim([named(request_id="s")]) == [Running("r", "lease")]
    await store.unclaim([named()])
    assert await store.claim([named(request_id="s")]) == [Claimed()]
    await store.unclaim([named()])
    assert await store.claim([named(request_id="t")]) == [Running("s", "lease")], "only its own is let go"
    await apply(store, reserve("q", 60), settle("q", 45, binding=bound()))
    assert await store.claim([named(request_id="t")]) == [Running("s", "lease")]


async def test_a_dead_process_lets_go_of_its_names(store: Store):
    await store.claim([named("a", "1", lease="dead"), named("b", "2", lease="dead"), named("c", "3")])
    await apply(store, reserve("2", 5, lease="dead"), settle("2", 5, binding=bound("b")))
    await apply(store, Expire(lease="dead", at_ms=NOVEMBER))
    again = [named("a", "4"), named("b", "5"), named("c", "6")]
    assert await store.claim(again) == [Claimed(), Kept("2", ANSWER), Running("3", "lease")]


async def test_a_lease_that_ran_out_lets_go_of_its_names(store: Store):
    await store.renew("lives", NOVEMBER + 10**9)
    await store.claim(
        [named("a", "1", lease="over"), named("b", "2", lease="lives"), named("c", "3", lease="mine")]
    )
    await store.expire_leases(NOVEMBER, frozenset({"mine"}))
    again = [named("a", "4"), named("b", "5"), named("c", "6")]
    assert await store.claim(again) == [Claimed(), Running("2", "lives"), Running("3", "mine")]


async def test_old_answers_are_forgotten(store: Store):
    old, young, running = named("old", "1"), named("young", "2", at_ms=NOVEMBER + 10), named("running", "3")
    await store.claim([old, young, running])
    for request_id, name in (("1", "old"), ("2", "young")):
        await apply(store, reserve(request_id, 5), settle(request_id, 5, binding=bound(name)))
    assert await store.forget_answers(NOVEMBER) == 0
    assert await store.forget_answers(NOVEMBER + 10) == 1
    again = [named("old", "4"), named("young", "5", at_ms=NOVEMBER), named("running", "6")]
    assert await store.claim(again) == [Claimed(), Kept("2", ANSWER), Running("3", "lease")]


async def test_many_are_forgotten(store: Store):
    names = [str(number) for number in range(1100)]
    await store.claim([named(name, name) for name in names])
    small = KeptAnswer(status=200, headers=(), body=b"{}")
    await store.apply(
        [
            operation
            for name in names
            for operation in (
                reserve(name, 0),
                settle(name, 0, binding=Binding(scope="ci", name=name, answer=small)),
            )
        ]
    )
    assert await store.forget_answers(NOVEMBER + 1) == 1100


async def test_one_of_many_who_claim_at_once_runs(place: Place, store: Store):
    """Of several processes, each with names in another order."""
    stores = [store, await place.beside(), await place.beside()]
    names = [str(number) for number in range(20)]
    batches = [
        one.claim([named(name, f"{number}-{name}") for name in (names if number % 2 else names[::-1])])
        for number, one in enumerate([*stores, *stores])
    ]
    results = await asyncio.gather(*batches)
    assert sum(result == Claimed() for batch in results for result in batch) == len(names)
    for name in names:
        winners = {
            result.request_id
            for number, batch in enumerate(results)
            for result in [batch[names.index(name) if number % 2 else -1 - names.index(name)]]
            if isinstance(result, Running)
        }
        assert len(winners) == 1
