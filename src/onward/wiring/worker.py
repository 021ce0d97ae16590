"""One of several HTTP processes that share the listening sockets (``python -m onward.wiring.worker``).

It is told everything through its control socket: first the plan, in one line of JSON, then
``drain`` or ``hurry``. The socket's end means that the supervisor is gone: we go at once, whatever runs.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

import msgspec
import uvloop

from onward.http.log import configure
from onward.stores.remote import RemoteLimits, RemoteStore, StoreConnection
from onward.wiring.http_side import HttpSide
from onward.wiring.plan import HURRY, LONGEST_PLAN, READY, Plan


def main(arguments: Sequence[str]) -> int:
    """Serve until told otherwise. `arguments`: file descriptors of the control and listening sockets."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # sent to a whole group they are for the supervisor
    control, *listening = (socket.socket(fileno=int(number)) for number in arguments)
    return uvloop.run(_serve(control, listening))


async def _serve(control: socket.socket, listening: list[socket.socket]) -> int:
    control.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=control, limit=LONGEST_PLAN)
    plan = msgspec.json.decode(await reader.readline(), type=Plan)
    log = configure(text=plan.config.server.log_format == "text")
    stores = StoreConnection(plan.stores)
    store = None if plan.config.store.url == "none" else RemoteStore(stores)
    side = HttpSide(plan, log, store, RemoteLimits(stores))
    await side.start(listening)
    writer.write(READY)
    drain, hurry = asyncio.Event(), asyncio.Event()
    listener = asyncio.create_task(_obey(reader, drain, hurry))
    await drain.wait()
    await side.stop(plan.config.server.shutdown_grace_s, hurry)
    await stores.close()
    listener.cancel()
    log.close()
    return 0


async def _obey(reader: asyncio.StreamReader, drain: asyncio.Event, hurry: asyncio.Event) -> None:
    with contextlib.suppress(OSError):  # a supervisor that had not read all from us breaks the socket off
        while line := await reader.readline():
            drain.set()
            if line == HURRY:
                hurry.set()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
