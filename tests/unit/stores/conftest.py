"""What tests of PostgreSQL share: an empty schema, and what lies between."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from onward.stores.postgres import PostgresStore
from tests.contract.stores import POSTGRES, SCHEMA, postgres
from tests.unit.stores.between import Between

Open = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens stores on an empty schema; all of them are closed in the end."""
    stores: list[PostgresStore] = []

    async def open_store(url: str = POSTGRES, **options) -> PostgresStore:
        store = await PostgresStore.open(url, schema=SCHEMA, **options)
        stores.append(store)
        return store

    async with postgres(tmp_path):
        yield open_store
        for store in stores:
            await store.close()


@pytest.fixture
async def between() -> AsyncIterator[Between]:
    """What lies between a gateway and the database."""
    async with Between(POSTGRES) as between:
        yield between
