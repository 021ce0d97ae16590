"""A provider at several addresses: who is asked, who is passed over, and that nothing is sent twice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from onward.core.failure import Failure, FailureKind
from onward.providers.openai import OpenAiProvider
from onward.providers.replicas import Replicas
from onward.routing.breaker import Breakers, Policy, State
from tests.conftest import free_port
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider
from tests.providers.raw import KEY, ask, body_of, fails


@pytest.fixture
def mocks() -> Iterator[list[MockProvider]]:
    with MockProvider() as one, MockProvider() as two, MockProvider() as three:
        yield [one, two, three]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def over() -> AsyncIterator[Callable[..., Replicas]]:
    """Makes a provider over some addresses, whose breakers open after two failures."""
    made: list[Replicas] = []

    def make(*where: MockProvider | str, clock: Clock | None = None, **more: float) -> Replicas:
        urls = [one if isinstance(one, str) else one.base_url for one in where]
        health = Breakers(Policy(failures=2), clock or Clock())
        each = [OpenAiProvider(name="up", base_url=url, api_key=KEY, **more) for url in urls]
        made.append(Replicas(each, health))
        return made[-1]

    yield make
    for one in made:
        assert [replica.in_flight for replica in one.status().replicas] == [0] * len(one.status().replicas)
        await one.close()
        assert one.status().open == 0


def nobody() -> str:
    """An address where nothing listens."""
    return f"http://127.0.0.1:{free_port()}/v1"


def counts(mocks: list[MockProvider]) -> list[int]:
    return [len(mock.requests) for mock in mocks]


async def whole(provider: Replicas, prompt: str = "hello") -> bytes:
    """The body of its answer, which is closed as every answer has to be."""
    answer = await ask(provider, prompt)
    try:
        return await body_of(answer)
    finally:
        answer.close()


async def test_they_take_turns(mocks, over):
    provider = over(*mocks)
    for _ in range(9):
        await whole(provider)
    assert counts(mocks) == [3, 3, 3]


async def test_the_least_loaded_is_asked(mocks, over):
    provider = over(*mocks)
    held = [await ask(provider, "[[hold=1]]", stream=True) for _ in range(2)]
    busy = [mock for mock in mocks if mock.requests]
    [free] = [mock for mock in mocks if not mock.requests]
    assert [one.in_flight for one in provider.status().replicas].count(1) == 2
    for _ in range(5):
        await whole(provider)
    assert len(free.requests) == 5
    for mock in busy:
        mock.let_go()
    for answer in held:
        await body_of(answer)
        answer.close()


@pytest.mark.parametrize("streams", [True, False])
async def test_many_at_once_are_spread(mocks, over, streams: bool):
    provider = over(*mocks)

    async def one() -> None:
        answer = await ask(provider, stream=streams)
        assert await body_of(answer)
        assert answer.ended
        answer.close()
        answer.close()  # any number of times

    await asyncio.gather(*[one() for _ in range(60)])
    assert counts(mocks) == [20, 20, 20]


async def test_one_that_cannot_be_connected_to_is_replaced(mocks, over):
    provider = over(nobody(), mocks[0], nobody())
    for _ in range(10):
        assert b"w0" in await whole(provider)
    assert len(mocks[0].requests) == 10
    dead = [one.health for one in provider.status().replicas]
    assert [one.state for one in dead] == [State.OPEN, State.CLOSED, State.OPEN]
    assert dead[0].last_failure is FailureKind.UPSTREAM_UNAVAILABLE


async def test_where_none_can_be_connected_to_that_is_said(over):
    provider = over(nobody(), nobody())
    for _ in range(4):
        failure = await fails(whole(provider))
        assert failure.message == "The provider of this model cannot be reached. Try again later."


@pytest.mark.parametrize("order", ["[[drop]]", "[[reset]]", "[[status=503]]"])
async def test_what_was_sent_is_not_sent_again(mocks, over, order: str):
    provider = over(*mocks)
    if "status" in order:
        answer = await ask(provider, order)
        assert answer.status == 503
        answer.close()
    else:
        await fails(whole(provider, order))
    assert sum(counts(mocks)) == 1


async def test_one_that_is_blamed_rests_and_is_asked_again(mocks, over):
    clock = Clock()
    provider = over(*mocks[:2], clock=clock)
    mocks[0].always(Behaviour(status=500))

    async def call() -> int:
        answer = await ask(provider)
        if answer.status != 200:
            answer.blame(Failure(FailureKind.UPSTREAM_UNAVAILABLE, "No."))
        await body_of(answer)
        answer.close()
        return answer.status

    assert sorted([await call() for _ in range(4)]) == [200, 200, 500, 500]
    assert [await call() for _ in range(6)] == [200] * 6
    mocks[0].always(Behaviour())
    clock.now += 5
    before = counts(mocks)
    assert [await call() for _ in range(4)] == [200] * 4
    assert [after - then for after, then in zip(counts(mocks), before, strict=False)][:2] == [2, 2]
    assert provider.status().replicas[0].health.state is State.CLOSED


async def test_an_answer_that_is_left_is_no_load_and_no_failure(mocks, over):
    provider = over(mocks[0])
    for _ in range(5):
        answer = await ask(provider, "[[stall=2]]", stream=True)
        assert await answer.read()
        answer.close()
    waiting = asyncio.ensure_future(ask(provider, "[[never]]"))
    await mocks[0].comes(lambda: len(mocks[0].requests) == 6)
    assert provider.status().replicas[0].in_flight == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    [replica] = provider.status().replicas
    assert (replica.in_flight, replica.health.failures) == (0, 0)


async def test_where_all_are_full_one_is_waited_for_once(mocks, over):
    """They are busy, not ill."""
    provider = over(mocks[0], mocks[1], connections=1, connect_timeout_s=0.2)
    held = [await ask(provider, "[[hold=1]]", stream=True) for _ in range(2)]
    began = asyncio.get_running_loop().time()
    await fails(ask(provider), FailureKind.UPSTREAM_TIMEOUT)
    assert asyncio.get_running_loop().time() - began < 0.39
    assert [one.health.failures for one in provider.status().replicas] == [0, 0]
    mocks[0].let_go()
    mocks[1].let_go()
    for answer in held:
        await body_of(answer)
        answer.close()


async def test_one_with_a_full_queue_is_replaced_and_not_called_ill(mocks, over):
    provider = over(mocks[0], mocks[1], connections=1, waiting=0)
    held = await ask(provider, "[[hold=1]]", stream=True)
    [free] = [mock for mock in mocks[:2] if not mock.requests]
    provider._replicas[mocks.index(free)].in_flight = 5  # as if the full one were the least loaded
    await whole(provider)
    provider._replicas[mocks.index(free)].in_flight = 0
    assert len(free.requests) == 1
    assert [one.health.failures for one in provider.status().replicas] == [0, 0]
    for mock in mocks:
        mock.let_go()
    await body_of(held)
    held.close()


async def test_the_whole_is_the_sum(mocks, over):
    provider = over(*mocks[:2])
    held = [await ask(provider, "[[hold=1]]", stream=True) for _ in range(3)]
    status = provider.status()
    assert (status.open, status.busy, status.waiting) == (3, 3, 0)
    assert sorted(one.busy for one in status.replicas) == [1, 2]
    assert provider.conceal(f"the key {KEY}!") == "the key …!"
    for mock in mocks:
        mock.let_go()
    for answer in held:
        await body_of(answer)
        answer.close()
