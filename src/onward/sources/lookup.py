"""Names to addresses without the event loop's own threads: a slow name must not hold up anything else."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""A name and a port to every address of it, in the order to try; none: there is no such name."""

MOST_LOOKUPS: Final = 64
"""At once. Threads cannot be stopped, so one whose caller has gone still counts until it ends."""
_free: Final = threading.BoundedSemaphore(MOST_LOOKUPS)


async def resolve(host: str, port: int) -> list[str]:
    """What this machine's own resolver says: the hosts file and all its rules included."""
    loop, free = asyncio.get_running_loop(), _free
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str]) -> None:
        if not found.done():
            found.set_result(addresses)

    def look() -> None:
        addresses: list[str] = []
        try:
            with suppress(OSError, UnicodeError):
                answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = [str(answer[4][0]) for answer in answers]
        finally:
            free.release()
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle, addresses)

    if not free.acquire(blocking=False):
        return []
    # a daemon, so that the process can end while a name server is silent
    threading.Thread(target=look, name="lookup", daemon=True).start()
    return await found
