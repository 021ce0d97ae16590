"""The HTTP processes of a server with several: started, watched, started again, told of another plan."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from onward.wiring import plan as words
from onward.wiring.authority import Authority
from onward.wiring.listen import ServeError
from onward.wiring.plan import LONGEST_LINE, Plan

logger = logging.getLogger("onward")
_SETTLED_S = 10.0
"""A process that lived this long starts again at once when it dies."""
_LONGEST_PAUSE_S = 5.0
_FIRST_TRIES = 3
PREPARE_S = 120.0
"""How long a process may take to make ready for another plan: it reads models' vocabularies for it."""


class _Worker:
    """The supervisor's end of one process's control socket."""

    def __init__(self, writer: asyncio.StreamWriter, number: int) -> None:
        self._writer = writer
        self.plans = {number}
        """Numbers of the plans by which something may run in it."""
        self.prepared: int | None = None
        """The plan that it can go over to."""
        self._preparing: asyncio.Future[str | None] | None = None

    def tell(self, word: words.ToWorker) -> None:
        """Send it a word. Where it has gone nothing happens."""
        if not self._writer.is_closing():
            self._writer.write(words.line(word))

    async def prepare(self, plan: Plan) -> str | None:
        """Why it cannot serve by a plan; None: it can."""
        self._preparing = asyncio.get_running_loop().create_future()
        self.tell(words.Prepare(plan))
        try:
            async with asyncio.timeout(PREPARE_S):
                return await self._preparing
        except TimeoutError:
            return f"an HTTP process was not ready for it within {PREPARE_S:g} s"

    def answered(self, word: words.Prepared) -> None:
        """It has said what came of `prepare`."""
        self.prepared = word.number if word.fault is None else None
        if self._preparing is not None and not self._preparing.done():
            self._preparing.set_result(word.fault)

    def commit(self, plan: Plan) -> None:
        """Let it go over to a plan. One that was started meanwhile prepares it first."""
        if self.prepared != plan.number:
            self.tell(words.Prepare(plan))
        self.prepared = None
        self.plans.add(plan.number)
        self.tell(words.Commit(plan.number))

    def close(self) -> None:
        """End its control socket, and with it the process."""
        self._writer.close()

    def gone(self) -> None:
        """Its process has ended."""
        if self._preparing is not None and not self._preparing.done():
            self._preparing.set_result("an HTTP process ended while it made ready for it; the log says why")


class Workers:
    """`count` processes that answer on the same sockets. Each can die alone."""

    def __init__(
        self,
        plan: Plan,
        sockets: Sequence[socket.socket],
        folder: Path,
        authority: Authority,
        *,
        over: Callable[[int], Awaitable[None]],
        reload: Callable[[int], Awaitable[words.Reloaded]],
    ) -> None:
        """`over` is awaited once nothing runs by a plan in any of them. `reload`: an operator asks for it."""
        self._plan = plan
        self._authority = authority
        self._count = plan.config.server.workers
        self._sockets = sockets
        self._metrics = folder / "metrics"
        self._over = over
        self._reload = reload
        self._stopping = False
        self._workers: dict[int, _Worker] = {}
        self._old: set[int] = set()
        """Plans that are not in force any more, and that something may still run by."""
        self._tasks: list[asyncio.Task[None]] = []
        self._jobs: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start all and wait until each accepts connections. Raises `ServeError`."""
        self._metrics.mkdir(exist_ok=True)
        started = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        self._tasks = [asyncio.create_task(self._keep(first)) for first in started]
        await asyncio.gather(*started)

    async def prepare(self, plan: Plan) -> list[str]:
        """See `reload.Processes`."""
        answers = await asyncio.gather(*(one.prepare(plan) for one in self._workers.values()))
        return list(dict.fromkeys(answer for answer in answers if answer is not None))

    async def commit(self, plan: Plan) -> None:
        """See `reload.Processes`."""
        self._old.add(self._plan.number)
        self._plan = plan
        for worker in self._workers.values():
            worker.commit(plan)
        self._look_for_over()

    async def abort(self, number: int) -> None:
        """See `reload.Processes`."""
        for worker in self._workers.values():
            worker.prepared = None
            worker.tell(words.Abort(number))

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain all; in a hurry end them at once. None is left when this returns."""
        self._stopping = True
        grace_s = self._plan.config.server.shutdown_grace_s
        self._tell(words.Drain())
        done = asyncio.ensure_future(asyncio.gather(*self._tasks, return_exceptions=True))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait([done, hurried], timeout=grace_s + 5, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not done.done():
            self._tell(words.Hurry())
            await asyncio.wait([done], timeout=5)
        for worker in self._workers.values():
            worker.close()  # the end of its control socket ends a process, whatever it does
        if not done.done():
            for task in self._tasks:
                task.cancel()
            await asyncio.wait([done], timeout=5)
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _tell(self, word: words.ToWorker) -> None:
        for worker in self._workers.values():
            worker.tell(word)

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
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        worker = self._workers[process.pid] = _Worker(writer, self._plan.number)
        worker.tell(words.Begin(msgspec.structs.replace(self._plan, lease=lease)))
        if self._stopping:
            worker.tell(words.Drain())
        try:
            with contextlib.suppress(OSError):
                while text := await reader.readline():
                    self._heard(worker, words.from_worker(text), first)
            return await process.wait()
        finally:
            del self._workers[process.pid]
            worker.gone()
            worker.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
            for gauges in self._metrics.glob(f"gauge_live*_{process.pid}.db"):
                gauges.unlink(missing_ok=True)
            self._look_for_over()

    def _heard(self, worker: _Worker, word: words.FromWorker, first: asyncio.Future[None]) -> None:
        match word:
            case words.Ready():
                if not first.done():
                    first.set_result(None)
            case words.Prepared():
                worker.answered(word)
            case words.Over():
                worker.plans.discard(word.number)
                self._look_for_over()
            case words.Reload():
                self._do(self._answer(worker, word.call))

    async def _answer(self, worker: _Worker, call: int) -> None:
        worker.tell(await self._reload(call))

    def _look_for_over(self) -> None:
        """Tell of every old plan by which nothing can run any more."""
        used = set[int]().union(*(worker.plans for worker in self._workers.values()))
        for number in self._old - used:
            self._old.discard(number)
            self._do(self._over(number))

    def _do(self, work: Awaitable[None]) -> None:
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
