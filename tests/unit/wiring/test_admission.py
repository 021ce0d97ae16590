"""An HTTP process that starts while the store, or what counts the limits, does not answer."""

import asyncio
import time

import pytest

from onward.core.failure import Failure, FailureKind
from onward.stores.down import down
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite.store import SqliteStore
from onward.wiring import admission as wired
from onward.wiring.admission import Admission
from onward.wiring.config import Config

KEPT = ["renew", "revision"]


class Frail:
    """What it stands before; each call is noted, and fails while `broken`."""

    def __init__(self, whole):
        self.whole, self.broken, self.calls = whole, True, []

    def __getattr__(self, name):
        found = getattr(self.whole, name)

        async def call(*args, **kwargs):
            self.calls.append(name)
            if self.broken:
                raise down()
            return await found(*args, **kwargs)

        return call


@pytest.fixture
async def store(tmp_path):
    opened = await SqliteStore.open(tmp_path / "ledger.db", durability="process", owner=True)
    yield opened
    await opened.close()


async def test_a_process_that_starts_without_its_store_refuses_until_it_is_there(store, monkeypatch):
    """Whoever takes the place of a dead process finds the store as it is. Nobody slips in meanwhile."""
    monkeypatch.setattr(wired, "REFRESH_S", 0.01)
    frail = Frail(store)
    admission = Admission(Config(), frail, MemoryLimits(time.monotonic), lease="one")
    await admission.start()
    with pytest.raises(Failure) as refused:
        admission.keys.find(None)
    assert refused.value.kind is FailureKind.STORE_DOWN
    frail.calls.clear()
    frail.broken = False
    async with asyncio.timeout(10):
        while not admission.keys.available:
            await asyncio.sleep(0.005)
    assert [call for call in frail.calls if call in KEPT][:2] == KEPT  # nothing is held without a lease
    assert admission.keys.find(None) is None
    await admission.stop()


async def test_a_process_that_starts_without_its_limits_knows_the_keys(store):
    admission = Admission(Config(), store, Frail(MemoryLimits(time.monotonic)), lease="one")
    await admission.start()
    assert admission.keys.available
    await admission.stop()
