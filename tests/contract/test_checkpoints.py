"""Checkpoints in the embedded engine: side by side, nothing of one in another; equality is to the bit (TC-1)."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.generate import GenerateRequest, Sampling
from onward.engines.llama import lora
from onward.engines.llama.slots import CHUNK
from onward.engines.protocol import EngineState
from onward.rendering.gguf import read_metadata
from onward.sources.checkpoints import CheckpointFolder
from tests.checkpoints import save

from .conftest import collect, prompt, request, tokens
from .lora import write_adapter

SHARED = prompt(CHUNK * 2, 3000)
"""What several prompts begin with, whoever sends them."""
PROMPTS = [SHARED + prompt(9, 500), SHARED[:CHUNK] + prompt(20, 900), prompt(5, 700)]


@pytest.fixture(scope="module")
def adapters(gguf: Path, tmp_path_factory) -> dict[str, str]:
    """Converted checkpoints, by name."""
    root = tmp_path_factory.mktemp("checkpoints")
    with gguf.open("rb") as file:
        base = lora.base_of(read_metadata(file.read(8 << 20)))
    paths: dict[str, str] = {}
    for seed, name in enumerate("ABC"):
        save(root / "run" / "sampler_weights" / name, seed)
        saved = CheckpointFolder(root).read(f"tinker://run/sampler_weights/{name}")
        lora.convert(saved, base, root / f"{name}.gguf")
        paths[name] = str(root / f"{name}.gguf")
    return paths


@pytest.fixture(scope="module")
def ask(adapters):
    """Requests for a checkpoint, or for the base model where `name` is None."""

    def make(name: str | None, ids: list[int] = PROMPTS[0], **fields) -> GenerateRequest:
        fields = {"alternatives": 3, "max_tokens": 8, "sampling": Sampling(temperature=0), **fields}
        return request(ids, adapter=name, adapter_path=adapters.get(name), **fields)

    return make


@pytest.fixture(scope="module")
def work(ask):
    """What each of the base and two checkpoints is asked for."""
    return {
        name: [
            ask(name, ids, sampling=Sampling(temperature=number % 2 * 1.3, seed=number))
            for number, ids in enumerate(PROMPTS)
        ]
        for name in (None, "A", "B")
    }


@pytest.fixture(scope="module")
async def solo(make_embedded, work):
    """What each gives on an engine of its own that never knew another: one request after the other."""
    answers = {}
    for name, requests in work.items():
        async with make_embedded() as engine:
            answers[name] = [tokens(await collect(engine.client, one)) for one in requests]
    return answers


async def run(engine, requests: list[GenerateRequest]) -> list:
    return await asyncio.gather(*(collect(engine.client, one) for one in requests))


@pytest.mark.covers("TC-1")
async def test_each_answers_as_if_it_were_alone(make_embedded, work, solo, ask):
    """All at once, over shared prefixes, with chunks of long prompts between the decode steps; then again."""
    assert len({str(answers) for answers in solo.values()}) == 3, "the checkpoints change nothing"
    mixed = [(name, number) for number in range(len(PROMPTS)) for name in work]
    async with make_embedded(queue=32) as engine:
        for _ in range(2):
            crowd = [
                asyncio.create_task(
                    collect(engine.client, ask(name, SHARED + prompt(70, start), max_tokens=3))
                )
                for name, start in ((None, 5000), ("A", 6000), ("B", 7000))
            ]
            together = await run(engine, [work[name][number] for name, number in mixed])
            await asyncio.gather(*crowd)
            for (name, number), chunks in zip(mixed, together, strict=True):
                assert tokens(chunks) == solo[name][number], f"{name} {number}"


@pytest.mark.covers("TC-1")
async def test_keys_of_one_are_never_used_for_another(make_embedded, ask, solo):
    """In one slot, so that each finds what the one before it left."""
    async with make_embedded(slots=1) as engine:
        for name in (None, "A", "B", "A", None):
            chunks = await collect(engine.client, ask(name, sampling=Sampling(temperature=0, seed=0)))
            assert chunks[0].cached_tokens == 0
            assert tokens(chunks) == solo[name][0]
        assert (await collect(engine.client, ask(None)))[0].cached_tokens >= CHUNK * 2


@pytest.mark.covers("TC-1")
async def test_with_room_for_one_all_are_served(make_embedded, work, solo):
    """Others wait until the one that is loaded is no longer in use; the base model waits for none."""
    mixed = [(name, number) for number in range(2) for name in ("A", "B", None)]
    async with make_embedded(adapters=1) as engine:
        together = await run(engine, [work[name][number] for name, number in mixed])
        for (name, number), chunks in zip(mixed, together, strict=True):
            assert tokens(chunks) == solo[name][number], f"{name} {number}"


@pytest.mark.covers("TC-1")
async def test_one_that_was_unloaded_comes_back(make_embedded, ask):
    async with make_embedded(adapters=2) as engine:
        first = [tokens(await collect(engine.client, ask(name))) for name in "ABC"]
        again = [tokens(await collect(engine.client, ask(name))) for name in "ACB"]
    assert again == [first[0], first[2], first[1]]
    assert first[0] != first[1] != first[2] != first[0]


@pytest.mark.covers("TC-1")
async def test_after_a_crash_they_are_loaded_again(make_embedded, ask, eventually):
    async with make_embedded() as engine:
        before = tokens(await collect(engine.client, ask("A")))
        os.kill(engine.process.pid, signal.SIGKILL)
        await eventually(lambda: engine.client.status().restarts == 1)
        assert await engine.process.wait_settled() is EngineState.READY
        assert tokens(await collect(engine.client, ask("A"))) == before


@pytest.mark.covers("TC-1")
async def test_one_that_is_gone_ends_its_own_request_alone(make_embedded, ask, solo):
    async with make_embedded(slots=2) as engine:
        lost = request(PROMPTS[0], adapter="gone", adapter_path="/nowhere/gone.gguf")
        answers = await asyncio.gather(
            *(collect(engine.client, one) for one in (ask("A"), lost, ask(None), lost)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [list, Failure, list, Failure]
        assert answers[1].kind is FailureKind.INVALID_REQUEST
        assert "gone" in answers[1].message
        assert tokens(await collect(engine.client, ask("A"))) == tokens(answers[0])


async def test_cancelling_one_that_waits_for_room(make_embedded, ask, eventually):
    async with make_embedded(adapters=1, slots=2) as engine:
        long = asyncio.create_task(collect(engine.client, ask("A", max_tokens=400)))
        await eventually(lambda: engine.client.status().running == 1)
        waiting = asyncio.create_task(collect(engine.client, ask("B")))
        await eventually(lambda: engine.client.status().waiting == 1)
        waiting.cancel()
        await eventually(lambda: engine.client.status().waiting == 0)
        assert len(tokens(await collect(engine.client, ask("A", max_tokens=1)))) == 1
        long.cancel()
        await asyncio.gather(long, waiting, return_exceptions=True)
        assert len(tokens(await collect(engine.client, ask("B", max_tokens=1)))) == 1


async def test_kernels_that_depend_on_company_are_not_given_any(make_embedded, tmp_path):
    """Sums of floats have other bits in a batch than alone; quantized weights often hide it, not always."""
    write_adapter(tmp_path / "half.gguf", layers=30, width=576, scale=0.05, rank=8, half=True)
    wanted = [
        request(
            prompt(12, start),
            adapter="half",
            adapter_path=str(tmp_path / "half.gguf"),
            alternatives=2,
            max_tokens=6,
        )
        for start in (100, 2000, 3000)
    ]
    async with make_embedded() as engine:
        alone = [tokens(await collect(engine.client, one)) for one in wanted]
        together = await run(engine, wanted)
    assert [tokens(chunks) for chunks in together] == alone
