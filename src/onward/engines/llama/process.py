"""The supervisor's side of an embedded engine: its socket, its process, and what to do when it dies."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from onward.engines.llama import frames
from onward.engines.llama.settings import EXIT_UNUSABLE, LlamaSettings
from onward.engines.protocol import EngineState

FAILURES_IN_A_ROW = 5
"""Deaths before a child was ever ready, after which it is not started any more."""
STOP_WAIT = 5.0
"""Seconds between asking a child to end and killing it."""
_BACKLOG = 128
STEADY = 5.0
"""Seconds that a child must have been ready for its death to be no sign of a fault that stays."""


class EngineProcess:
    """Starts ``python -m onward.engines.llama`` and keeps it running, until `stop`.

    The listening socket is bound once and inherited by every child, so clients find the next one
    at the same place. Its folder must be closed to other users.
    """

    def __init__(self, settings: LlamaSettings, socket_path: str) -> None:
        self._settings = settings
        self._path = Path(socket_path)
        self._listener: socket.socket | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._turn_away: asyncio.Server | None = None
        self._stderr: deque[str] = deque(maxlen=20)
        self._settled = asyncio.Event()
        self.state = EngineState.STARTING
        self.detail = ""
        """Why the state is what it is, in one line; empty when ready."""
        self.restarts = 0
        """How often a child was started after the first."""

    @property
    def pid(self) -> int | None:
        """Of the child that runs now."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    async def start(self) -> None:
        """Bind the socket and start the first child, without waiting for it to be ready."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._path.chmod(0o600)
        self._listener.listen(_BACKLOG)
        self._keeper = asyncio.get_running_loop().create_task(self._keep_running())

    async def wait_settled(self) -> EngineState:
        """Return once the engine is ready, or known not to start."""
        await self._settled.wait()
        return self.state

    async def stop(self) -> None:
        """End the child and remove the socket."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        if self._turn_away is not None:
            self._turn_away.close()
            self._turn_away = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._path.unlink(missing_ok=True)

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            ready_for, code = await self._run_child()
            reason = self._stderr[-1] if self._stderr else f"it ended with status {code}"
            failures = 0 if ready_for is not None and ready_for > STEADY else failures + 1
            if code == EXIT_UNUSABLE or (ready_for is None and failures >= FAILURES_IN_A_ROW):
                await self._give_up(reason)
                return
            self._change(EngineState.STARTING, reason)
            await asyncio.sleep(pause(failures))
            self.restarts += 1

    async def _run_child(self) -> tuple[float | None, int]:
        """One life of a child: for how long it was ready, None if never, and its exit status."""
        listener = self._listener
        if listener is None:
            raise RuntimeError("not started")
        self._stderr.clear()
        descriptor = listener.fileno()
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "onward.engines.llama",
            str(descriptor),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(descriptor,),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self._child = child
        errors = asyncio.create_task(self._read_errors(child))
        ready_at: float | None = None
        try:
            if child.stdin is None or child.stdout is None:
                raise RuntimeError("no pipes")
            with contextlib.suppress(ConnectionError):
                child.stdin.write(msgspec.json.encode(self._settings) + b"\n")
                await child.stdin.drain()
            if await child.stdout.readline():
                ready_at = time.monotonic()
                self._change(EngineState.READY, "")
            code = await child.wait()
            await errors
        finally:
            errors.cancel()
            await self._end(child)
        return None if ready_at is None else time.monotonic() - ready_at, code

    async def _read_errors(self, child: asyncio.subprocess.Process) -> None:
        if child.stderr is None:
            return
        while True:
            try:
                line = await child.stderr.readline()
            except ValueError:  # longer than the reader's limit
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                self._stderr.append(text[:500])

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        """Close the child's standard input, at which it ends: signals are not for it."""
        if child.stdin is not None:
            child.stdin.close()
        if child.returncode is None:
            try:
                async with asyncio.timeout(STOP_WAIT):
                    await child.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()

    async def _give_up(self, reason: str) -> None:
        """Answer clients ourselves: the engine does not start, and why."""
        self._change(EngineState.FAILED, reason)

        async def turn_away(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(frames.encode(frames.Down(reason)))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()

        if self._listener is not None:
            # Known before it listens: `stop` may come in between, and must close it properly.
            self._turn_away = await asyncio.start_unix_server(
                turn_away, sock=self._listener, start_serving=False
            )
            await self._turn_away.start_serving()

    def _change(self, state: EngineState, detail: str) -> None:
        self.state, self.detail = state, detail
        if state is EngineState.STARTING:
            self._settled.clear()
        else:
            self._settled.set()


def pause(failures: int) -> float:
    """Seconds before the next child after deaths in a row: none at first, then 0.5, doubled, to 30."""
    return 0.0 if failures <= 1 else min(30.0, 0.25 * 2 ** (failures - 1))
