"""Engines and stores for the contract suite. Every one of them must pass the same tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest

from onward.admission.store import Store
from onward.core.generate import Chunk, GenerateRequest, Sampling
from onward.engines.llama.client import LlamaEngine
from onward.engines.llama.process import EngineProcess
from onward.engines.llama.settings import LlamaSettings
from onward.engines.protocol import Engine, EngineState
from onward.engines.scripted import ScriptedEngine
from tests.contract.stores import PLACES, Place

CONTEXT_LENGTH = 1024
SLOTS = 4
QUEUE = 8

FRANCE = [504, 3575, 282, 4649, 314]
"""The capital of France is"""


def prompt(length: int, start: int = 1000) -> list[int]:
    """Some tokens in a row."""
    return list(range(start, start + length))


def request(ids: list[int] = FRANCE, **fields) -> GenerateRequest:
    fields.setdefault("max_tokens", 8)
    fields.setdefault("sampling", Sampling(temperature=0))
    return GenerateRequest(request_id="r", prompt=ids, **fields)


async def collect(engine: Engine, wanted: GenerateRequest) -> list[Chunk]:
    return [chunk async for chunk in engine.generate(wanted)]


def tokens(chunks: list[Chunk]) -> list:
    return [token for chunk in chunks for token in chunk.tokens]


def ids(chunks: list[Chunk]) -> list[int]:
    return [token.id for token in tokens(chunks)]


class Embedded:
    """An engine process and one client of it."""

    def __init__(self, settings: LlamaSettings, folder: Path) -> None:
        self.socket_path = str(folder / "engine.sock")
        self.process = EngineProcess(settings, self.socket_path)
        self.client = LlamaEngine(self.socket_path, start_wait=30)

    async def __aenter__(self) -> Self:
        await self.process.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.client.close()
        await self.process.stop()


MakeEmbedded = Callable[..., Embedded]


@pytest.fixture(scope="session")
def make_embedded(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeEmbedded:
    def make(**settings) -> Embedded:
        settings = {
            "model_path": str(gguf),
            "slots": SLOTS,
            "queue": QUEUE,
            "threads": 1,
            "context_length": CONTEXT_LENGTH,
            **settings,
        }
        return Embedded(LlamaSettings(**settings), tmp_path_factory.mktemp("engine"))

    return make


@pytest.fixture(scope="session")
async def embedded(make_embedded: MakeEmbedded) -> AsyncIterator[Embedded]:
    """The real model, shared by all tests that leave it as it was."""
    async with make_embedded() as engine:
        assert await engine.process.wait_settled() is EngineState.READY, engine.process.detail
        yield engine


def _script(wanted: GenerateRequest) -> list[list[int]]:
    """Steps of one and of two tokens, without an end of their own."""
    return [[1005], [1006, 1007]] * wanted.max_tokens


@pytest.fixture(params=["scripted", "llama"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "scripted":
        return ScriptedEngine(_script)
    return request.getfixturevalue("embedded").client


@pytest.fixture(params=sorted(PLACES))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Where a store keeps what it keeps."""
    async with PLACES[request.param](tmp_path) as place:
        yield place


@pytest.fixture
async def store(place: Place) -> Store:
    """A new store, as a server has it."""
    return await place.open()


Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Wait until a condition holds, as long as a loaded machine may need; fail if it never does."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    return wait
