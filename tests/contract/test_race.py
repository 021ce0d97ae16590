"""Several gateways that share a balance: it is spent to the last unit, and not once more."""

import asyncio
import sys
from pathlib import Path

from onward.admission.store import UsageQuery
from tests.contract.racer import AMOUNT
from tests.contract.stores import ACCOUNTS, POSTGRES, SCHEMA, credit, money, postgres

PROCESSES = 4
REQUESTS = 1000
AFFORDABLE = 100


async def test_g01_a_balance_for_a_hundred_requests_admits_a_hundred(tmp_path: Path):
    """A thousand at once from four processes, each of which uses its whole reservation."""
    async with postgres(tmp_path) as place:
        store = await place.open()
        await credit(store, AFFORDABLE * AMOUNT)
        racers = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.contract.racer", POSTGRES, SCHEMA),
                *(f"racer-{number}", str(REQUESTS // PROCESSES)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for number in range(PROCESSES)
        ]
        async with asyncio.timeout(60):
            for racer in racers:
                assert await racer.stdout.readline() == b"ready\n"
            for racer in racers:
                racer.stdin.write(b"\n")
            said = [await racer.communicate() for racer in racers]
        assert sum(int(stdout) for stdout, _ in said) == AFFORDABLE
        assert [racer.returncode for racer in racers] == [0] * PROCESSES
        assert await money(store) == (AFFORDABLE * AMOUNT, AFFORDABLE * AMOUNT, 0)
        for account in ACCOUNTS[1:]:
            assert await money(store, account) == (0, AFFORDABLE * AMOUNT, 0)
        [sums] = await store.usage(UsageQuery())
        assert (sums.requests, sums.charged) == (AFFORDABLE, AFFORDABLE * AMOUNT)
