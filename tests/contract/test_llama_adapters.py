"""LoRA adapters of the embedded engine: loaded while it runs, side by side with the bare model."""

import asyncio

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.generate import Sampling
from onward.engines.llama.slots import CHUNK

from .conftest import collect, prompt, request, tokens
from .lora import write_adapter


@pytest.fixture(scope="module")
def adapter_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("adapter") / "adapter.gguf"
    write_adapter(path, layers=30, width=576, scale=0.05)
    return path


def wanted(adapter: str | None = None):
    return request(prompt(CHUNK + 6), adapter=adapter, alternatives=1, sampling=Sampling(seed=1))


async def test_an_adapter_changes_its_own_requests_alone(make_embedded, adapter_file):
    async with make_embedded() as embedded:
        engine = embedded.client
        bare = tokens(await collect(engine, wanted()))
        await engine.load_adapter("one", str(adapter_file))
        first = await collect(engine, wanted("one"))
        adapted = tokens(first)
        assert adapted != bare
        assert first[0].cached_tokens == 0, "keys of the bare model were used"
        names = [None, "one", None, "one"]
        together = await asyncio.gather(*(collect(engine, wanted(name)) for name in names))
        assert [tokens(chunks) for chunks in together] == [bare, adapted, bare, adapted]
        assert [chunks[0].cached_tokens for chunks in together] == [CHUNK + 6] * 4


async def test_a_reloaded_adapter_starts_without_cached_keys(make_embedded, adapter_file, tmp_path):
    async with make_embedded() as embedded:
        engine = embedded.client
        await engine.load_adapter("one", str(adapter_file))
        adapted = tokens(await collect(engine, wanted("one")))
        other = tmp_path / "other.gguf"
        write_adapter(other, layers=30, width=576, scale=0.1)
        await engine.load_adapter("one", str(other))
        chunks = await collect(engine, wanted("one"))
        assert chunks[0].cached_tokens == 0
        assert tokens(chunks) != adapted


@pytest.mark.parametrize("content", [b"", b"no adapter", None], ids=["empty", "text", "missing"])
async def test_what_is_no_adapter_is_refused(embedded, tmp_path, content):
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Failure) as caught:
        await embedded.client.load_adapter("broken", str(path))
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    with pytest.raises(Failure):
        await collect(embedded.client, wanted("broken"))


async def test_an_adapter_of_another_shape_is_refused(embedded, tmp_path):
    path = tmp_path / "wide.gguf"
    write_adapter(path, layers=2, width=640, scale=0.05)
    with pytest.raises(Failure) as caught:
        await embedded.client.load_adapter("wide", str(path))
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    assert "wide" in caught.value.message
