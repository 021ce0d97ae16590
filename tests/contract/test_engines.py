"""What every engine must do, whatever it is made of."""

import pytest

from onward.core.generate import EngineFinish
from onward.engines.protocol import EngineState

from .conftest import FRANCE, collect, ids, prompt, request, tokens


async def test_greedy_output_repeats(engine):
    assert ids(await collect(engine, request())) == ids(await collect(engine, request()))


@pytest.mark.parametrize("count", [1, 2, 5, 9])
async def test_it_stops_after_max_tokens(engine, count):
    chunks = await collect(engine, request(max_tokens=count))
    assert len(ids(chunks)) == count
    assert [chunk.finish for chunk in chunks if chunk.finish] == [EngineFinish.LENGTH]
    assert chunks[-1].finish is EngineFinish.LENGTH


@pytest.mark.parametrize("index", [0, 1, 2, 3])
async def test_a_stop_token_ends_it_and_is_the_last_token(engine, index):
    free = ids(await collect(engine, request()))
    stop = free[index]
    chunks = await collect(engine, request(stop_token_ids=[48000, stop]))
    assert ids(chunks) == free[: free.index(stop) + 1]
    assert chunks[-1].finish is EngineFinish.STOP_TOKEN


async def test_the_first_chunk_says_how_much_of_the_prompt_was_cached(engine):
    first, *rest = await collect(engine, request())
    assert first.cached_tokens is not None
    assert 0 <= first.cached_tokens <= len(FRANCE)
    assert all(chunk.cached_tokens is None for chunk in rest)


async def test_no_log_probabilities_unless_asked_for(engine):
    assert all(
        token.logprob is None and token.top is None for token in tokens(await collect(engine, request()))
    )


@pytest.mark.parametrize("count", [0, 1, 5, 20])
async def test_as_many_alternatives_as_asked_for(engine, count):
    for token in tokens(await collect(engine, request(alternatives=count))):
        assert token.logprob is not None
        assert token.logprob <= 0
        assert len(token.top) == count
        assert len({other for other, _ in token.top}) == count
        values = [value for _, value in token.top]
        assert values == sorted(values, reverse=True)
        assert all(value <= 0 for value in values)
        assert dict(token.top).get(token.id, token.logprob) == token.logprob


@pytest.mark.parametrize("max_tokens", [0, 3])
async def test_a_prompt_is_scored_token_by_token(engine, max_tokens):
    chunks = await collect(engine, request(max_tokens=max_tokens, prompt_alternatives=2))
    scored = chunks[0].prompt_tokens
    assert [token.id for token in scored] == FRANCE
    assert scored[0].logprob is None
    assert scored[0].top is None
    assert all(token.logprob <= 0 and len(token.top) == 2 for token in scored[1:])
    assert chunks[0].cached_tokens == 0
    assert all(chunk.prompt_tokens is None for chunk in chunks[1:])
    assert len(ids(chunks)) == max_tokens
    assert chunks[-1].finish is EngineFinish.LENGTH


async def test_closing_the_generator_ends_the_request(engine):
    running = engine.generate(request(prompt(40), max_tokens=500))
    await anext(running)
    await running.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(running)
    assert len(ids(await collect(engine, request()))) == 8


async def test_its_status_says_that_it_is_ready(engine):
    await collect(engine, request(max_tokens=1))
    status = engine.status()
    assert status.state is EngineState.READY
    assert status.slots >= 1
    assert status.context_length >= 1024
