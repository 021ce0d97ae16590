"""Nothing but the request decides what the embedded engine answers: equality here is to the bit."""

import asyncio

import pytest

from onward.core.generate import Sampling
from onward.engines.llama.binding import Context, Library, Model
from onward.engines.llama.sampling import Softmax
from onward.engines.llama.slots import CHUNK

from .conftest import FRANCE, collect, prompt, request, tokens


@pytest.fixture(scope="session")
def model(gguf):
    """The model in this process, straight from the library."""
    model = Model(Library(), str(gguf))
    yield model
    model.close()


async def test_company_and_caches_change_nothing(make_embedded):
    """Alone on a fresh engine, in company, and out of the cache; short and beyond 512 positions."""
    cases = [prompt(5, 700), prompt(CHUNK, 2000), prompt(CHUNK * 2 + 1, 3000), prompt(520, 9000)]
    wanted = [
        request(ids, max_tokens=10, alternatives=3, sampling=Sampling(seed=number, temperature=1.5))
        for number, ids in enumerate(cases)
    ]
    async with make_embedded() as fresh:
        alone = [tokens(await collect(fresh.client, one)) for one in wanted]
        again = [await collect(fresh.client, one) for one in wanted]
    assert [tokens(chunks) for chunks in again] == alone
    # Less than a chunk does not keep a slot from being overwritten.
    assert [chunks[0].cached_tokens for chunks in again] == [0, *(len(ids) for ids in cases[1:])]
    async with make_embedded() as busy:
        together = await asyncio.gather(*(collect(busy.client, one) for one in wanted))
        assert [tokens(chunks) for chunks in together] == alone
        # Beside prompts that go on from the same prefixes.
        longer = [request(ids + prompt(70, 20000), max_tokens=15) for ids in cases]
        crowd = [asyncio.create_task(collect(busy.client, one)) for one in longer]
        for one, expected in zip(wanted, alone, strict=True):
            assert tokens(await collect(busy.client, one)) == expected
        await asyncio.gather(*crowd)


def test_company_changes_nothing_with_two_threads(model):
    """Beyond 512 positions flash attention would split a lone sequence's keys among the threads."""
    library = model.library
    library.ffi.cdef("void llama_set_n_threads(struct llama_context * ctx, int32_t one, int32_t batch);")
    context = Context(model, sequences=2, length=1024, threads=2, batch=CHUNK)
    long = prompt(516, 9000)
    library.c.llama_set_n_threads(context._handle, 1, 1)  # two threads on busy cores are slow
    for start in range(0, len(long), CHUNK):
        context.decode_chunk(0, long[start : start + CHUNK], start, outputs="none")
    context.decode_chunk(1, FRANCE, 0, outputs="none")
    library.c.llama_set_n_threads(context._handle, 2, 2)
    context.decode_rows([(0, 5, len(long))])
    alone = context.logits(0).copy()
    context.truncate(0, len(long))
    context.decode_rows([(0, 5, len(long)), (1, 6, len(FRANCE))])
    assert (context.logits(0) == alone).all()
    context.close()


async def test_choices_of_one_prompt_compute_it_once(make_embedded):
    """Slots copy the whole prompt from each other, and say so."""
    ids = prompt(CHUNK * 2 + 9, 5000)
    wanted = [request(ids, alternatives=2, sampling=Sampling(seed=seed)) for seed in range(4)]
    async with make_embedded() as engine:
        alone = [tokens(await collect(engine.client, one)) for one in wanted]
    async with make_embedded() as engine:
        together = await asyncio.gather(*(collect(engine.client, one) for one in wanted))
    assert [tokens(chunks) for chunks in together] == alone
    assert sorted(chunks[0].cached_tokens for chunks in together) == [0] + [len(ids)] * 3


async def test_a_prefix_belongs_to_its_scope(make_embedded):
    ids = prompt(CHUNK + 5, 6000)
    async with make_embedded(slots=1) as engine:

        async def cached(scope: str | None) -> int:
            return (await collect(engine.client, request(ids, max_tokens=1, cache_scope=scope)))[
                0
            ].cached_tokens

        assert await cached("a") == 0
        assert await cached("a") == len(ids)
        assert await cached("b") == 0
        assert await cached(None) == 0
        assert await cached(None) == len(ids)


async def test_decoded_tokens_are_never_reused(make_embedded):
    """A chunk that decoding completed has other bits than one that was prefilled."""
    ids = prompt(CHUNK - 4, 7000)
    async with make_embedded(slots=1) as engine:
        first = tokens(await collect(engine.client, request(ids, max_tokens=20)))
        longer = ids + [token.id for token in first]
        second = await collect(engine.client, request(longer, alternatives=3))
    assert second[0].cached_tokens == 0
    async with make_embedded(slots=1) as engine:
        assert tokens(await collect(engine.client, request(longer, alternatives=3))) == tokens(second)


@pytest.mark.parametrize("length", [2, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK * 3 + 7])
async def test_prompt_scores_are_the_librarys_own(embedded, model, length):
    ids = prompt(length, 8000)
    chunks = await collect(embedded.client, request(ids, max_tokens=0, prompt_alternatives=5))
    context = Context(model, sequences=1, length=1024, threads=1, batch=CHUNK)
    expected = [None]
    for start in range(0, length, CHUNK):
        part = ids[start : start + CHUNK]
        context.decode_chunk(0, part, start, outputs="all")
        expected += [
            Softmax(context.logits(row)).logprob(following)
            for row, following in enumerate(ids[start + 1 : start + 1 + len(part)])
        ]
    context.close()
    scored = chunks[0].prompt_tokens
    assert [token.id for token in scored] == ids
    assert scored[0].logprob is None
    assert [token.logprob for token in scored[1:]] == pytest.approx(expected[1:], abs=1e-4)


async def test_scoring_first_changes_nothing_that_follows(embedded):
    ids = prompt(CHUNK + 20, 11000)
    plain = request(ids, alternatives=3)
    scored = request(ids, alternatives=3, prompt_alternatives=1)
    expected = tokens(await collect(embedded.client, plain))
    assert tokens(await collect(embedded.client, scored)) == expected


async def test_a_known_prompt_has_its_known_scores(embedded):
    """Measured on this model with another program; kernels differ in the second digit."""
    chunks = await collect(
        embedded.client, request(FRANCE, max_tokens=1, alternatives=1, prompt_alternatives=1)
    )
    assert [token.logprob for token in chunks[0].prompt_tokens[1:]] == pytest.approx(
        [-11.4496, -0.3111, -2.5327, -0.4414], abs=0.05
    )
    assert tokens(chunks)[0].id == 7042
    assert tokens(chunks)[0].logprob == pytest.approx(-0.259, abs=0.05)
