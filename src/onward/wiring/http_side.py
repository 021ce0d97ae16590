"""The HTTP side of one process: the application on its sockets, until it is drained."""

import asyncio
import socket
from collections.abc import Sequence

from onward.engines.llama.client import LlamaEngine
from onward.http.log import LogWriter
from onward.http.server import Server
from onward.wiring.build import build
from onward.wiring.plan import Plan


class HttpSide:
    """Answers requests by the engines behind the plan's sockets."""

    def __init__(self, plan: Plan, writer: LogWriter) -> None:
        self._engines = {name: LlamaEngine(path) for name, path in plan.sockets.items()}
        self.built = build(plan, self._engines, writer)
        self._server = Server(self.built.app, self.built.limits, self.built.app.refuse)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections. The engines may still be starting: requests say so then."""
        for engine in self._engines.values():
            engine.status()  # the first look connects
        await self._server.start(sockets)

    async def ready(self) -> None:
        """Return once every engine is connected. Raises `Failure` if that takes long."""
        for engine in self._engines.values():
            await engine.wait_ready()

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> None:
        """Take no more requests and end the running ones: in `grace_s` seconds, or at once in a hurry."""
        self.built.lifecycle.draining = True
        await self._server.drain(grace_s, hurry)
        for engine in self._engines.values():
            await engine.close()
