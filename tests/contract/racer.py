"""A gateway's ledger in a process of its own, for races: `python -m tests.contract.racer URL SCHEMA NAME COUNT`.

It says ``ready``, waits for a line, makes its requests all at once, each of which uses the whole of its
reservation, and says how many were admitted.
"""

import asyncio
import sys

import uvloop

from onward.admission.ledger import Granted
from onward.stores.postgres import PostgresStore
from tests.contract.stores import apply, reserve, settle

AMOUNT = 7


async def main(url: str, schema: str, name: str, count: int) -> None:
    store = await PostgresStore.open(url, schema=schema)

    async def request(number: int) -> bool:
        request_id = f"{name}-{number}"
        [result] = await apply(store, reserve(request_id, AMOUNT, lease=name))
        if isinstance(result, Granted):
            await apply(store, settle(request_id, AMOUNT))
        return isinstance(result, Granted)

    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    admitted = await asyncio.gather(*(request(number) for number in range(count)))
    print(sum(admitted), flush=True)
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
