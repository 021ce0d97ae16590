"""The transport under test, in both event loops, and what it talks to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvloop

from onward.providers.openai import OpenAiProvider
from tests.mock_provider import MockProvider
from tests.providers.raw import KEY, RawHost


def pytest_asyncio_loop_factories(config, item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Servers run in uvloop, where there is one."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    """A provider that misbehaves where a prompt says so."""
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def host() -> AsyncIterator[RawHost]:
    """A server that answers with the bytes that a test gives it."""
    async with RawHost() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[Callable[..., OpenAiProvider]]:
    """Makes the transport under test: `client(base_url, ...)`. Nothing of it is left open behind a test."""
    made: list[OpenAiProvider] = []

    def make(base_url: str, **settings: Any) -> OpenAiProvider:
        provider = OpenAiProvider(name="up", base_url=base_url, **({"api_key": KEY} | settings))
        made.append(provider)
        return provider

    yield make
    for provider in made:
        await provider.close()
        assert provider.status().open == 0
