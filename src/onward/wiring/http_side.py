"""The HTTP side of one process: the application on its sockets, until it is drained."""

import asyncio
import socket
from collections.abc import Sequence

from onward.admission.limits import RateLimits
from onward.admission.store import Store
from onward.engines.llama.client import LlamaEngine
from onward.http.log import LogWriter
from onward.http.server import Server
from onward.wiring.admission import Admission
from onward.wiring.build import build
from onward.wiring.plan import Plan
from onward.wiring.providers import providers_of


class HttpSide:
    """Answers requests by the engines behind the plan's sockets, and by providers."""

    def __init__(self, plan: Plan, writer: LogWriter, store: Store | None, limits: RateLimits) -> None:
        self._engines = {name: LlamaEngine(path) for name, path in plan.sockets.items()}
        self._providers = providers_of(plan.config)
        self._admission = Admission(plan.config, store, limits, lease=plan.lease)
        self.built = build(
            plan, self._engines, self._providers, writer, admission=self._admission, store=store
        )
        self._server = Server(self.built.app, self.built.limits, self.built.app.refuse)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections. Engines may still be starting, or the store be down: requests say so then."""
        for engine in self._engines.values():
            engine.status()  # the first look connects
        await self._admission.start()
        await self._server.start(sockets)

    async def ready(self) -> None:
        """Return once every engine is connected. Raises `Failure` if that takes long."""
        for engine in self._engines.values():
            await engine.wait_ready()

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> None:
        """Take no more requests and end the running ones: in `grace_s` seconds, or at once in a hurry."""
        self.built.lifecycle.draining = True
        await self._server.drain(grace_s, hurry)
        await self._admission.stop()
        for engine in self._engines.values():
            await engine.close()
        for provider in self._providers.values():
            await provider.close()
