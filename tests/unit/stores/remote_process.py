"""A process that owns stores, for the tests of those who call it: `python -m ... SOCKET`."""

import asyncio
import os
import socket
import sys
import time

import uvloop

from onward.admission.ledger import Done, Granted, Operation, Refused, Reserve, Result
from onward.core.failure import Failure, FailureKind
from onward.stores.limits import MemoryLimits
from onward.stores.remote_server import serve_stores


class OddStore:
    """Answers what the tests can tell apart."""

    async def apply(self, operations: list[Operation]) -> list[Result]:
        """Holds up to 100, as if nothing was held before."""
        return [
            Done()
            if not isinstance(operation, Reserve)
            else Granted()
            if operation.amount <= 100
            else Refused(operation.accounts[0].kind, 100)
            for operation in operations
        ]

    async def revision(self) -> int:
        return os.getpid()

    async def prune(self, attempts_before_ms: int) -> int:
        """Takes so many milliseconds."""
        await asyncio.sleep(attempts_before_ms / 1000)
        return attempts_before_ms

    async def credit(self, tenant: str, amount: int, *, note: str, at_ms: int, once: str | None = None):
        raise Failure(
            FailureKind.INVALID_REQUEST,
            f"{tenant} {amount} {note} {at_ms} {once}",
            param="amount",
            retry_after=3,
            upstream_status=418,
        )

    async def money(self, account_ids: list[str]) -> list:
        raise ValueError(f"no {account_ids[0]}")

    async def touch_keys(self, used: dict[str, int]) -> None:
        raise RuntimeError("a secret of the server")

    async def keys(self, *, after: str | None, limit: int) -> str:
        return "x" * limit

    def __getattr__(self, name: str):
        async def call(*_, **__) -> None:
            raise AssertionError(name)

        return call


async def main(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    await serve_stores(listener, OddStore(), MemoryLimits(time.monotonic))  # type: ignore[arg-type]
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
