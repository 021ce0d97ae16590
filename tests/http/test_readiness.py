"""Readiness says in words why nothing can be admitted, while it cannot."""

import asyncio
import time
from pathlib import Path

import pytest

from onward.stores.down import down
from onward.stores.limits import MemoryLimits
from onward.wiring import admission
from tests.http.gateway import Gateway, gateway
from tests.mock_provider import MockProvider


class FrailLimits(MemoryLimits):
    """Limits that do not answer while `broken`."""

    broken = False
    renewals = 0

    async def renew(self, lease: str) -> None:
        self.renewals += 1
        if self.broken:
            raise down()
        await super().renew(lease)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def often(monkeypatch):
    """What is asked every few seconds is asked at once."""
    for name in ("RENEW_S", "REFRESH_S"):
        monkeypatch.setattr(admission, name, 0.02)


async def reasons(running: Gateway, wanted: list[str]) -> None:
    """Wait until these are the reasons; none: until it is ready."""
    async with asyncio.timeout(5):
        while True:
            answer = await running.client.get("/readyz")
            assert answer.status_code == (503 if answer.json().get("reasons") else 200)
            if answer.json().get("reasons", []) == wanted:
                assert not wanted or answer.headers["retry-after"]
                return
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("often")
async def test_a_store_that_cannot_be_written(tmp_path, mock, monkeypatch):
    async with gateway(tmp_path, mock) as running:
        await reasons(running, [])

        async def renew(lease: str, until_ms: int) -> None:
            raise down()

        with monkeypatch.context() as patched:
            patched.setattr(running.store, "renew", renew)
            await reasons(running, ["the store cannot be written"])
            assert (await running.client.get("/healthz")).status_code == 200
        await reasons(running, [])


@pytest.mark.parametrize("looks", [1, 20])
async def test_limits_that_cannot_be_counted(tmp_path, mock, looks: int):
    """It shows within a second, and a look asks nobody."""
    limits = FrailLimits(lambda: 0.0)
    async with gateway(tmp_path, mock, rate_limits=limits) as running:
        for broken, wanted in ((True, ["the limits cannot be counted: Redis does not answer"]), (False, [])):
            limits.broken, limits.renewals = broken, 0
            began = time.monotonic()
            await asyncio.gather(*[reasons(running, wanted) for _ in range(looks)])
            assert time.monotonic() - began < 1.5, "and some time for a machine that is busy"
            assert limits.renewals <= 2


@pytest.mark.usefixtures("often")
async def test_a_store_whose_file_is_gone(tmp_path: Path, mock):
    """Nobody is let in by what nobody would find again."""
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        assert (await running.complete()).status_code == 200
        (tmp_path / "onward.db").rename(tmp_path / "away.db")
        await reasons(running, ["the store cannot be read", "the store cannot be written"])
        await running.refused(503, "store_down")
        await running.logged("was removed or replaced")
        (tmp_path / "away.db").rename(tmp_path / "onward.db")
        await reasons(running, [])
        assert (await running.complete()).status_code == 200
        await running.ended(2)
