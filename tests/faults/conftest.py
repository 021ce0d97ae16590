"""Every known fault is run against a real server with a real model."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.api import Api


@pytest.fixture(scope="session")
async def api(server) -> AsyncIterator[Api]:
    async with httpx.AsyncClient(base_url=f"{server.base_url}/v1/", timeout=60) as client:
        models = (await client.get("models")).json()
        yield Api(client, models["data"][0]["id"])


@pytest.fixture(autouse=True)
async def still_serving(api: Api) -> AsyncIterator[None]:
    """Whatever was sent, the server answers a plain request afterwards."""
    yield
    await api.alive()
