"""A server with two dialects and the real model, whose context is short enough to be filled."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from tests.api import Api
from tests.conftest import MODEL_SOURCE, RunningServer, start_server
from tests.unit.rendering.families import oracle

CONTEXT = 512
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONFIG = f"""
[dialects]
openai = "/v1"
tinker = "/tinker/api/v1"

[[models]]
id = "small"
repo = "{REPO}"
context_length = {CONTEXT}

[[models.deployments]]
name = "local"
engine = "llama"
source = "{MODEL_SOURCE}"
slots = 2
"""


@pytest.fixture(scope="session")
def two_mounts(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(tmp_path_factory.mktemp("mounts"), config=CONFIG)
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture(scope="session")
def tinker_url(two_mounts: RunningServer) -> str:
    return f"{two_mounts.base_url}/tinker/api/v1"


@pytest.fixture(scope="session")
async def tinker(tinker_url: str) -> AsyncIterator[Api]:
    """A caller of the tinker mount, who names the model by its public repository."""
    async with httpx.AsyncClient(base_url=f"{tinker_url}/", timeout=120) as client:
        yield Api(client, REPO)


@pytest.fixture(scope="session")
def seeing(official: Path) -> SimpleNamespace:
    """The text side of a model that takes images."""
    tokenizer = oracle.tokenizer_of(official / "qwen3.5")[0]
    renderer = NativeRenderer(registry.BY_NAME["qwen3.5"], tokenizer)
    return SimpleNamespace(tokenizer=tokenizer, renderer=renderer, context_length=8192)
