"""One suite for every sort of rate limits: what `admission/limits.py` promises."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.admission.limits import Exceeded, GiveBack, LimitKind, Take
from tests.contract.limits import BENCHES, Bench


@pytest.fixture(params=BENCHES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with BENCHES[request.param](tmp_path) as bench:
        yield bench


def exceeded(kind: LimitKind, limit: int, retry_after_s: int) -> Exceeded:
    return Exceeded(kind=kind, limit=limit, retry_after_s=retry_after_s)


@pytest.mark.covers("K-11")
async def test_no_more_requests_than_the_limit_within_any_minute(bench: Bench):
    for _ in range(3):
        assert isinstance(await bench.take(requests=3), str)
        bench.clock.now += 10
    refused = await bench.take(requests=3)
    # The first came at .25 of its second; that second is all past 61 s after it began.
    assert refused == exceeded(LimitKind.REQUESTS, 3, 31)
    bench.clock.now += 30
    assert await bench.take(requests=3) == exceeded(LimitKind.REQUESTS, 3, 1)
    bench.clock.now += 1
    assert isinstance(await bench.take(requests=3), str)
    assert await bench.take(requests=3) == exceeded(LimitKind.REQUESTS, 3, 10)


async def test_retry_after_is_exact_to_the_second(bench: Bench):
    """Whoever waits for it is let in, and a second earlier is not, however the slices are filled."""
    draw = random.Random(5)
    for _ in range(12):
        for _ in range(draw.randrange(1, 6)):
            await bench.take(tokens=100, cost=draw.randrange(1, 60))
            bench.clock.now += draw.uniform(0, 20)
        cost = draw.randrange(1, 101)
        refused = await bench.take(tokens=100, cost=cost)
        if isinstance(refused, Exceeded):
            bench.clock.now += refused.retry_after_s - 1
            assert isinstance(await bench.take(tokens=100, cost=cost), Exceeded)
            bench.clock.now += 1
            assert isinstance(await bench.take(tokens=100, cost=cost), str)


async def test_no_minute_ever_sees_more_than_the_limit(bench: Bench):
    """Drawn at random and counted by hand, exact to the event."""
    draw = random.Random(7)
    passed: list[tuple[float, int]] = []
    refusals = 0
    for _ in range(300):
        bench.clock.now += draw.choice((0, 0.1, 0.7, 3, 11))
        cost = draw.randrange(30)
        if isinstance(await bench.take(requests=12, tokens=150, cost=cost), Exceeded):
            refusals += 1
        else:
            passed.append((bench.clock.now, cost))
    assert len(passed) > 50
    assert refusals > 50
    for at, _ in passed:
        minute = [cost for when, cost in passed if at - 60 <= when <= at]
        assert len(minute) <= 12
        assert sum(minute) <= 150


@pytest.mark.covers("K-11")
async def test_requests_at_once(bench: Bench):
    first = await bench.take(concurrency=2)
    await bench.take(concurrency=2)
    assert await bench.take(concurrency=2) == exceeded(LimitKind.CONCURRENCY, 2, 1)
    await bench.end(first)
    assert isinstance(await bench.take(concurrency=2), str)
    assert isinstance(await bench.take(concurrency=2), Exceeded)


async def test_a_request_holds_one_place_however_often_it_takes_it(bench: Bench):
    for _ in range(3):
        assert await bench.take(requests=2, concurrency=2, request_id="same") == "same"
    other = await bench.take(requests=2, concurrency=2)
    assert isinstance(other, str)
    assert isinstance(await bench.take(requests=2, concurrency=2), Exceeded)


async def test_ending_twice_or_what_never_began_changes_nothing(bench: Bench):
    first = await bench.take(requests=5, concurrency=2)
    await bench.take(requests=5, concurrency=2)
    for _ in range(3):
        await bench.end(first, counts=False)
        await bench.end("never", counts=False)
    assert isinstance(await bench.take(requests=5, concurrency=2), str)
    assert isinstance(await bench.take(requests=5, concurrency=2), Exceeded)


@pytest.mark.covers("K-11")
async def test_unused_tokens_come_back(bench: Bench):
    request = await bench.take(tokens=100, cost=90)
    assert isinstance(await bench.take(tokens=100, cost=20), Exceeded)
    bench.clock.now += 5
    await bench.end(request, used=30)
    assert isinstance(await bench.take(tokens=100, cost=70), str)
    refused = await bench.take(tokens=100, cost=1)
    assert refused == exceeded(LimitKind.TOKENS, 100, 56)  # when the 30 of the first are past


async def test_more_tokens_than_were_taken_count_from_when_they_are_known(bench: Bench):
    request = await bench.take(tokens=100, cost=10)
    bench.clock.now += 50
    await bench.end(request, used=100)
    assert await bench.take(tokens=100, cost=1) == exceeded(LimitKind.TOKENS, 100, 11)
    bench.clock.now += 11
    assert await bench.take(tokens=100, cost=11) == exceeded(LimitKind.TOKENS, 100, 50)
    assert isinstance(await bench.take(tokens=100, cost=10), str)


async def test_what_is_given_back_late_is_past_already(bench: Bench):
    request = await bench.take(requests=1, tokens=100, cost=100)
    bench.clock.now += 61
    later = await bench.take(requests=1, tokens=100, cost=100)
    assert isinstance(later, str)
    await bench.end(request, counts=False)
    assert isinstance(await bench.take(requests=1, tokens=100, cost=1), Exceeded)


async def test_a_request_above_the_limit_never_passes(bench: Bench):
    assert await bench.take(tokens=100, cost=101) == exceeded(LimitKind.TOKENS, 100, 0)
    await bench.take(requests=1, tokens=100, cost=50)
    refused = await bench.take(requests=1, tokens=100, cost=101)
    assert refused == exceeded(LimitKind.TOKENS, 100, 0)


async def test_the_refusal_names_what_lasts_longest(bench: Bench):
    await bench.take(requests=3, tokens=100, cost=1)
    bench.clock.now += 20
    await bench.take(requests=3, tokens=100, cost=99, concurrency=2)
    both = await bench.take(requests=2, tokens=100, cost=99, concurrency=2)
    assert both == exceeded(LimitKind.TOKENS, 100, 61)
    assert await bench.take(requests=2, tokens=100, concurrency=2) == exceeded(LimitKind.REQUESTS, 2, 41)
    assert await bench.take(requests=3, tokens=100, concurrency=2) == exceeded(LimitKind.CONCURRENCY, 2, 1)


async def test_g14_a_refused_request_costs_nothing(bench: Bench):
    """Refused by one limit, it takes nothing of the others; refused later, it gives all back."""
    for _ in range(10):
        assert isinstance(await bench.take(requests=5, tokens=10, cost=11), Exceeded)
    for _ in range(10):
        await bench.end(await bench.take(requests=5, tokens=10, cost=10), counts=False)
    taken = [await bench.take(requests=5, tokens=10, cost=2) for _ in range(6)]
    assert [isinstance(one, str) for one in taken] == [True] * 5 + [False]


async def test_g15_limits_are_shared(bench: Bench):
    """Two gateways, a limit of 10, 40 requests: 10 pass."""
    takes = (bench.take(requests=10, limits=limits) for limits in (bench.limits, bench.other) * 20)
    results = await asyncio.gather(*takes)
    assert sum(isinstance(one, str) for one in results) == 10


async def test_subjects_are_apart(bench: Bench):
    assert isinstance(await bench.take(requests=1, subject="one"), str)
    assert isinstance(await bench.take(requests=1, subject="two"), str)
    assert isinstance(await bench.take(requests=1, subject="one"), Exceeded)


async def test_a_limit_that_changes_counts_what_was_before(bench: Bench):
    for _ in range(4):
        await bench.take(requests=9)
    assert isinstance(await bench.take(requests=4), Exceeded)
    assert isinstance(await bench.take(requests=5), str)


async def test_a_dropped_lease_frees_its_places(bench: Bench):
    """But nobody knows what they used: that stays counted."""
    dead = await bench.take(tokens=100, cost=50, concurrency=2, lease="dead")
    await bench.take(tokens=100, cost=20, concurrency=2, lease="alive")
    await bench.limits.drop_lease("dead")
    await bench.limits.drop_lease("dead")
    await bench.limits.drop_lease("never")
    assert await bench.take(tokens=100, cost=40, concurrency=2) == exceeded(LimitKind.TOKENS, 100, 61)
    assert isinstance(await bench.take(tokens=100, concurrency=2), str)
    await bench.end(dead, counts=False)
    assert isinstance(await bench.take(tokens=100, concurrency=2), Exceeded)


async def test_a_lease_falls_a_minute_after_its_last_sign_of_life(bench: Bench):
    await bench.limits.renew("renewed")
    for lease in ("renewed", "silent"):
        await bench.take(concurrency=9, lease=lease)
    bench.clock.now += 40
    await bench.limits.renew("renewed")
    assert isinstance(await bench.take(concurrency=2), Exceeded)
    bench.clock.now += 19.9
    assert isinstance(await bench.take(concurrency=2), Exceeded)
    bench.clock.now += 0.1
    assert isinstance(await bench.take(concurrency=2, lease="new"), str)
    assert isinstance(await bench.take(concurrency=2), Exceeded)
    bench.clock.now += 39.9
    assert isinstance(await bench.take(concurrency=2), Exceeded)
    bench.clock.now += 0.1
    assert isinstance(await bench.take(concurrency=2), str)


async def test_a_lease_that_fell_begins_again(bench: Bench):
    await bench.take(concurrency=1, lease="lease")
    bench.clock.now += 60
    await bench.limits.renew("lease")
    bench.clock.now += 59
    assert isinstance(await bench.take(concurrency=1, lease="lease"), str)
    bench.clock.now += 1
    assert isinstance(await bench.take(concurrency=1, lease="other"), str), "its life began with `renew`"


async def test_a_batch_is_taken_in_order(bench: Bench):
    takes = [
        Take(
            request_id=f"r{number}",
            lease="lease",
            subject="key",
            tokens=cost,
            requests_per_minute=None,
            tokens_per_minute=100,
            concurrency=None,
        )
        for number, cost in enumerate((60, 50, 40, 1, 0))
    ]
    results = await bench.limits.take(takes)
    assert [result is None for result in results] == [True, False, True, False, True]
    ends = [GiveBack(request_id=f"r{number}", subject="key", tokens=0, counts=True) for number in range(5)]
    await bench.limits.give_back(ends)
    assert isinstance(await bench.take(tokens=100, cost=100), str)


async def test_empty_batches(bench: Bench):
    assert await bench.limits.take([]) == []
    await bench.limits.give_back([])
