"""One of several HTTP processes that share the listening sockets (``python -m onward.wiring.worker``).

It is told everything through its control socket (`wiring/plan.py`): first its plan. The socket's end
means that the supervisor is gone: we go at once, whatever runs.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import uvloop

from onward.http.admin.reload import ReloadRefused
from onward.http.log import configure
from onward.stores.remote import RemoteLimits, RemoteStore, StoreConnection
from onward.wiring import plan as words
from onward.wiring.http_side import HttpSide
from onward.wiring.listen import ServeError
from onward.wiring.plan import LONGEST_LINE


def main(arguments: Sequence[str]) -> int:
    """Serve until told otherwise. `arguments`: file descriptors of the control and listening sockets."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to a whole group they are for the supervisor
    control, *listening = (socket.socket(fileno=int(number)) for number in arguments)
    return uvloop.run(_serve(control, listening))


async def _serve(control: socket.socket, listening: list[socket.socket]) -> int:
    control.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=control, limit=LONGEST_LINE)
    begin = words.to_worker(await reader.readline())
    if not isinstance(begin, words.Begin):
        raise TypeError(begin)
    plan = begin.plan
    log = configure(text=plan.config.server.log_format == "text")
    stores = StoreConnection(plan.stores)
    store = None if plan.config.store.url == "none" else RemoteStore(stores)
    supervisor = Supervisor(reader, writer)
    side = HttpSide(plan, log, store, RemoteLimits(stores), over=supervisor.over, reload=supervisor.reload)
    await side.start(listening)
    supervisor.tell(words.Ready())
    listener = asyncio.create_task(supervisor.obey(side))
    await supervisor.drain.wait()
    await side.stop(supervisor.hurry)
    await stores.close()
    listener.cancel()
    log.close()
    return 0


class Supervisor:
    """The process that started us, as far as we know it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.drain = asyncio.Event()
        self.hurry = asyncio.Event()
        self._calls = itertools.count()
        self._reloads: dict[int, asyncio.Future[words.Reloaded]] = {}

    def tell(self, word: words.FromWorker) -> None:
        """Say something."""
        self._writer.write(words.line(word))

    async def over(self, number: int) -> None:
        """Nothing runs by a plan here any more."""
        self.tell(words.Over(number))

    async def reload(self) -> dict[str, Any]:
        """Have the config read again; what changed. Raises `ReloadRefused`."""
        call = next(self._calls)
        answered = self._reloads[call] = asyncio.get_running_loop().create_future()
        try:
            self.tell(words.Reload(call))
            reloaded = await answered
        finally:
            del self._reloads[call]
        if reloaded.answer is None:
            raise ReloadRefused(reloaded.faults)
        return reloaded.answer

    async def obey(self, side: HttpSide) -> None:
        """Do what is said, word for word, until the end."""
        with contextlib.suppress(OSError):  # a supervisor that had not read all from us breaks the socket off
            while text := await self._reader.readline():
                await self._do(words.to_worker(text), side)
        os._exit(1)

    async def _do(self, word: words.ToWorker, side: HttpSide) -> None:
        match word:
            case words.Prepare():
                fault = None
                try:
                    await side.prepare(word.plan)
                except ServeError as error:
                    fault = str(error)
                self.tell(words.Prepared(word.plan.number, fault))
            case words.Commit():
                if not side.commit(word.number):
                    os._exit(1)  # it was never prepared: whoever takes our place begins by the new plan
            case words.Abort():
                await side.abort(word.number)
            case words.Reloaded():
                answered = self._reloads.get(word.call)
                if answered is not None and not answered.done():
                    answered.set_result(word)
            case words.Drain():
                self.drain.set()
            case words.Hurry():
                self.drain.set()
                self.hurry.set()
            case words.Begin():
                raise TypeError(word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
