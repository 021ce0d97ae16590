"""The embedded engine's sampling, on the real model."""

import asyncio
import itertools

import pytest

from onward.core.generate import EngineFinish, Sampling

from .conftest import FRANCE, collect, ids, prompt, request, tokens

SEEDS = [0, -1, 1, 2**63 - 1, -(2**63)]


@pytest.fixture
def engine(embedded):
    return embedded.client


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_seed_repeats(engine, seed):
    wanted = request(sampling=Sampling(seed=seed), max_tokens=12)
    assert ids(await collect(engine, wanted)) == ids(await collect(engine, wanted))


async def test_seeds_differ_from_each_other(engine):
    outputs = [
        ids(await collect(engine, request(sampling=Sampling(seed=seed), max_tokens=12))) for seed in SEEDS
    ]
    assert all(left != right for left, right in itertools.combinations(outputs, 2))


async def test_without_a_seed_every_call_differs(engine):
    wanted = request(sampling=Sampling(), max_tokens=12)
    outputs = await asyncio.gather(*(collect(engine, wanted) for _ in range(3)))
    assert all(ids(left) != ids(right) for left, right in itertools.combinations(outputs, 2))


async def test_a_bias_forces_and_bans_but_log_probabilities_stay_raw(engine):
    free = tokens(await collect(engine, request(alternatives=20, max_tokens=1)))[0]
    second = free.top[1]
    banned = tokens(
        await collect(
            engine,
            request(
                alternatives=20, max_tokens=1, sampling=Sampling(temperature=0, logit_bias={free.id: -100})
            ),
        )
    )[0]
    assert (banned.id, banned.logprob) == second
    assert banned.top == free.top
    forced = await collect(engine, request(max_tokens=4, sampling=Sampling(logit_bias={123: 100})))
    assert ids(forced) == [123] * 4


async def test_min_tokens_holds_stops_back(engine):
    free = ids(await collect(engine, request()))
    first = free[0]
    chunks = await collect(engine, request(stop_token_ids=[first], min_tokens=3))
    assert first not in ids(chunks)[:3]
    assert len(ids(chunks)) >= 3
    everything = list(range(0, 49152, 1))
    chunks = await collect(engine, request(stop_token_ids=everything[:49000], min_tokens=2, max_tokens=8))
    assert ids(chunks)[0] >= 49000
    assert ids(chunks)[1] >= 49000
    assert chunks[-1].finish is EngineFinish.STOP_TOKEN or len(ids(chunks)) == 8


async def test_presence_and_frequency_count_output_only(engine):
    repeated = [123] * 20
    free = tokens(await collect(engine, request(repeated, max_tokens=1, alternatives=1)))[0]
    sampling = Sampling(temperature=0, presence_penalty=2, frequency_penalty=2)
    assert ids(await collect(engine, request(repeated, max_tokens=1, sampling=sampling))) == [free.id]
    # A token forced by a bias of 3 is no longer the likeliest once a penalty outweighs the bias.
    bias = {321: 30.0}
    plain = ids(
        await collect(engine, request(max_tokens=30, sampling=Sampling(temperature=0, logit_bias=bias)))
    )
    assert plain.count(321) == 30
    sampling = Sampling(temperature=0, logit_bias=bias, frequency_penalty=2)
    assert ids(await collect(engine, request(max_tokens=30, sampling=sampling))).count(321) < 30


async def test_repetition_penalty_counts_the_prompt(engine):
    repeated = FRANCE * 3 + FRANCE[:2]
    assert ids(await collect(engine, request(repeated, max_tokens=1))) == [FRANCE[2]]
    sampling = Sampling(temperature=0, repetition_penalty=2.0)
    assert ids(await collect(engine, request(repeated, max_tokens=1, sampling=sampling))) != [FRANCE[2]]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=1, seed=3),
        Sampling(top_p=1e-6, seed=3),
        Sampling(min_p=1.0, seed=3),
        Sampling(temperature=1e-6),
    ],
    ids=["top_k", "top_p", "min_p", "temperature"],
)
async def test_filters_at_their_ends_are_greedy(engine, sampling):
    greedy = ids(await collect(engine, request(max_tokens=12)))
    assert ids(await collect(engine, request(max_tokens=12, sampling=sampling))) == greedy


async def test_prompts_that_fill_the_context(make_embedded):
    full = prompt(256)
    async with make_embedded(context_length=256) as embedded:
        chunks = await collect(embedded.client, request(full, max_tokens=5))
        assert ids(chunks) == []
        assert chunks[-1].finish is EngineFinish.LENGTH
        chunks = await collect(embedded.client, request(full[:252], max_tokens=50))
        assert len(ids(chunks)) == 4
        assert chunks[-1].finish is EngineFinish.LENGTH
