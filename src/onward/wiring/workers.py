"""The HTTP processes of a server with several: started, watched, started again."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from onward.wiring.authority import Authority
from onward.wiring.listen import ServeError
from onward.wiring.plan import DRAIN, HURRY, READY, Plan

logger = logging.getLogger("onward")
_SETTLED_S = 10.0
"""A process that lived this long starts again at once when it dies."""
_LONGEST_PAUSE_S = 5.0
_FIRST_TRIES = 3


class Workers:
    """`count` processes that answer on the same sockets. Each can die alone."""

    def __init__(
        self, plan: Plan, count: int, sockets: Sequence[socket.socket], folder: Path, authority: Authority
    ) -> None:
        self._plan = plan
        self._authority = authority
        self._grace_s = plan.config.server.shutdown_grace_s
        self._count = count
        self._sockets = sockets
        self._metrics = folder / "metrics"
        self._stopping = False
        self._controls: dict[int, socket.socket] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all and wait until each accepts connections. Raises `ServeError`."""
        self._metrics.mkdir(exist_ok=True)
        started = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        self._tasks = [asyncio.create_task(self._keep(first)) for first in started]
        await asyncio.gather(*started)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain all; in a hurry end them at once. None is left when this returns."""
        self._stopping = True
        self._tell(DRAIN)
        done = asyncio.ensure_future(asyncio.gather(*self._tasks, return_exceptions=True))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait([done, hurried], timeout=self._grace_s + 5, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not done.done():
            self._tell(HURRY)
            await asyncio.wait([done], timeout=5)
        for control in self._controls.values():
            control.close()  # the end of its control socket ends a process, whatever it does
        if not done.done():
            for task in self._tasks:
                task.cancel()
            await asyncio.wait([done], timeout=5)

    def _tell(self, word: bytes) -> None:
        for control in self._controls.values():
            with contextlib.suppress(OSError):
                control.send(word)

    async def _keep(self, first: asyncio.Future[None]) -> None:
        """Keep one process running until we stop."""
        deaths = 0
        while not self._stopping:
            began = time.monotonic()
            code = await self._run_one(first)
            if self._stopping:
                break
            deaths = 1 if time.monotonic() - began > _SETTLED_S else deaths + 1
            if not first.done() and deaths >= _FIRST_TRIES:
                first.set_exception(
                    ServeError(f"HTTP processes do not start (exit code {code}); the log says why")
                )
                return
            pause = min(_LONGEST_PAUSE_S, 0.1 * 2 ** (deaths - 1))
            logger.warning("an HTTP process ended (exit code %s); another starts in %.1f s", code, pause)
            await asyncio.sleep(pause)
        if not first.done():
            first.cancel()

    async def _run_one(self, first: asyncio.Future[None]) -> int:
        lease = self._authority.new_lease()
        try:
            return await self._run_with(lease, first)
        finally:
            await self._authority.bury(lease)

    async def _run_with(self, lease: str, first: asyncio.Future[None]) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), *(one.fileno() for one in self._sockets)]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "onward.wiring.worker",
                *map(str, descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._metrics)},
            )
        ours.setblocking(False)
        self._controls[process.pid] = ours
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                plan = msgspec.structs.replace(self._plan, lease=lease)
                await loop.sock_sendall(ours, msgspec.json.encode(plan) + b"\n")
                if await loop.sock_recv(ours, len(READY)) and not first.done():
                    first.set_result(None)
            return await process.wait()
        finally:
            del self._controls[process.pid]
            ours.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
            for gauges in self._metrics.glob(f"gauge_live*_{process.pid}.db"):
                gauges.unlink(missing_ok=True)
