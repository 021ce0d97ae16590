"""The images that requests name by their address: few at once, in bounded time and memory (G26)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from onward.core.failure import Failure, FailureKind
from onward.core.remote_image import RemoteImageError
from onward.sources.guarded_get import NOT_FETCHED, Bytes, GuardedGet

AT_ONCE: Final = 4
"""Connections of one request."""
MOST_REQUESTS: Final = 8
"""Requests of this process that fetch, or hold what they fetched, at once."""
MOST_TOGETHER: Final = 2
"""Of the largest images: how many the bytes of one request may make."""


class GuardedImages:
    """`RemoteImages` over `get`, at most `most` different ones in a request, in `timeout_s` altogether."""

    def __init__(self, get: GuardedGet, *, largest: int, most: int, timeout_s: float) -> None:
        self._get = get
        self._largest = largest
        self._most = most
        self._timeout_s = timeout_s
        self._requests = asyncio.Semaphore(MOST_REQUESTS)

    @asynccontextmanager
    async def fetched(self, addresses: Sequence[str]) -> AsyncGenerator[Mapping[str, bytes]]:
        """What lies at each address; see `RemoteImages`."""
        different = list(dict.fromkeys(addresses))
        if len(different) > self._most:
            raise RemoteImageError(
                f"is one address too many: at most {self._most} images are fetched for a request",
                different[self._most],
                too_large=True,
            )
        await self._enter()
        try:
            yield dict(zip(different, await self._all(different), strict=True))
        finally:
            self._requests.release()

    async def _enter(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._requests.acquire()
        except TimeoutError:
            message = "Too many images are being fetched; try again later."
            raise Failure(FailureKind.ENGINE_FULL, message, retry_after=1) from None

    async def _all(self, addresses: list[str]) -> list[bytes]:
        room = Bytes(self._largest, MOST_TOGETHER * self._largest)
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(address: str) -> bytes:
            async with at_once:
                try:
                    return await self._get.get(address, room)
                except RemoteImageError as error:
                    error.address = address
                    raise

        tasks = [asyncio.create_task(one(address)) for address in addresses]
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.gather(*tasks)
        except TimeoutError:
            late = [
                address
                for address, task in zip(addresses, tasks, strict=True)
                if not task.done() or task.cancelled()
            ]
            raise RemoteImageError(NOT_FETCHED, (late or addresses)[0]) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
