"""The HTTP side of one process: applications on its sockets, one after the other, until it is drained."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from onward.admission.limits import RateLimits
from onward.admission.store import Store
from onward.engines.llama.client import LlamaEngine
from onward.http.admin.reload import Reload
from onward.http.cycle import Connection
from onward.http.exchange import Exchange
from onward.http.head import Head
from onward.http.log import LogWriter
from onward.http.server import Server
from onward.providers.protocol import Provider
from onward.wiring import config as settings
from onward.wiring.admission import Admission
from onward.wiring.build import Built, Lasting, build, read_text_sides
from onward.wiring.plan import Plan
from onward.wiring.providers import policy_of, provider_of
from onward.wiring.text_side import TextSide

_NEW_OBJECTS = 20_000
"""So many more are made than let go until garbage is looked for: each running request has some hundred."""


class _Provider(msgspec.Struct, frozen=True, eq=False):
    """A provider, and what it was made of."""

    made_of: tuple[settings.Provider, settings.Routing]
    provider: Provider


class _Serving(msgspec.Struct, frozen=True, eq=False):
    """All that answers by one plan. Parts that did not change it shares with the one before."""

    plan: Plan
    built: Built
    engines: dict[str, LlamaEngine]
    """By socket."""
    providers: dict[str, _Provider]
    texts: dict[str, TextSide]


class _Current:
    """The application in force, for connections that outlive it."""

    def __init__(self, built: Built) -> None:
        self.built = built

    def open(self, connection: Connection, head: Head, length: int | None, body: bytes | None) -> Exchange:
        """See `shared.Application`. Who opens a request answers it."""
        return self.built.app.open(connection, head, length, body)

    def refuse(self, *arguments: Any, **about: Any) -> Any:
        """See `App.refuse`."""
        return self.built.app.refuse(*arguments, **about)


class HttpSide:
    """Answers requests by the engines behind the plan's sockets, and by providers.

    Another plan is taken up in two steps: `prepare`, which can fail, and `commit`, which cannot.
    """

    def __init__(
        self,
        plan: Plan,
        writer: LogWriter,
        store: Store | None,
        limits: RateLimits,
        *,
        over: Callable[[int], Awaitable[None]],
        reload: Reload | None,
    ) -> None:
        """`over` is awaited once the last request of a former plan has ended. `reload`: see `Reload`."""
        self._over = over
        self._admission = Admission(plan.config, store, limits, lease=plan.lease)
        self._lasting = Lasting(plan.config, writer, self._admission, store, reload)
        self._prepared: _Serving | None = None
        self._live: list[_Serving] = []
        """Those in which something may run; the last one is in force."""
        first = self._made(plan, read_text_sides(plan, {}))
        self._live.append(first)
        self._lasting.models = first.built.models
        self._current = _Current(first.built)
        self._server = Server(self._current, first.built.limits, self._current.refuse)
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections. Engines may still be starting, or the store be down: requests say so then."""
        self._connect()
        await self._admission.start()
        await self._server.start(sockets)
        _collect_seldom()

    async def ready(self) -> None:
        """Return once every engine is connected. Raises `Failure` if that takes long."""
        for engine in self._live[-1].engines.values():
            await engine.wait_ready()

    async def prepare(self, plan: Plan) -> None:
        """Make everything for another plan, and change nothing. Raises `ServeError`."""
        known = self._live[-1].texts
        texts = await asyncio.to_thread(read_text_sides, plan, known)
        await self.abort(plan.number)
        self._prepared = self._made(plan, texts)

    def commit(self, number: int) -> bool:
        """Answer all further requests by a plan that was prepared. False: it was not."""
        new = self._prepared
        if new is None or new.plan.number != number:
            return False
        self._prepared = None
        old = self._live[-1]
        _keep_rests(old, new, self._lasting)
        newcomers = self._lasting.lifecycle.newcomers
        newcomers |= new.plan.sockets.keys() - old.plan.sockets.keys()
        newcomers &= new.plan.sockets.keys()
        self._live.append(new)
        self._admission.take_up(new.plan.config)
        self._lasting.models = new.built.models
        self._current.built = new.built
        self._server.limits = new.built.limits
        self._connect()
        task = asyncio.get_running_loop().create_task(self._end(old))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return True

    async def abort(self, number: int) -> None:  # noqa: ARG002 - there is one at a time
        """Forget what was prepared, if anything was."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            await self._close(prepared)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Take no more requests and end the running ones, within the grace of the config or at once in a
        hurry.
        """
        self._lasting.lifecycle.draining = True
        await self._server.drain(self._live[-1].plan.config.server.shutdown_grace_s, hurry)
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._admission.stop()
        await self.abort(0)
        while self._live:
            await self._close(self._live.pop())

    def _made(self, plan: Plan, texts: dict[str, TextSide]) -> _Serving:
        engines: dict[str, LlamaEngine] = {}
        for path in plan.sockets.values():
            known = [one.engines[path] for one in self._live if path in one.engines]
            engines[path] = known[0] if known else LlamaEngine(path)
        providers = {one.name: self._provider(one, plan.config.routing) for one in plan.config.providers}
        built = build(
            plan,
            {name: engines[path] for name, path in plan.sockets.items()},
            {name: one.provider for name, one in providers.items()},
            texts,
            self._lasting,
        )
        return _Serving(plan, built, engines, providers, texts)

    def _provider(self, config: settings.Provider, routing: settings.Routing) -> _Provider:
        made_of = (config, routing)
        for one in self._live:
            known = one.providers.get(config.name)
            if known is not None and known.made_of == made_of:
                return known
        rests = self._lasting.metrics.replica_rests
        return _Provider(made_of, provider_of(config, policy_of(routing), rests))

    def _connect(self) -> None:
        for engine in self._live[-1].engines.values():
            engine.status()  # the first look connects

    async def _end(self, old: _Serving) -> None:
        """Let go of what only a former plan has, behind its last request."""
        await old.built.app.work.over()
        self._live.remove(old)
        await self._close(old)
        number = old.plan.number
        del old
        _collect_seldom()
        await self._over(number)

    async def _close(self, serving: _Serving) -> None:
        """Close its connections but those that others use too."""
        engines = {id(engine) for one in self._live for engine in one.engines.values()}
        providers = {id(one) for live in self._live for one in live.providers.values()}
        for engine in serving.engines.values():
            if id(engine) not in engines:
                await engine.close()
        for one in serving.providers.values():
            if id(one) not in providers:
                await one.provider.close()


def _collect_seldom() -> None:
    """Let Python look for garbage in cycles, of which requests make next to none, less often.

    By default it walks over everything that some dozen running requests have made, again and again, at a
    sixth of what a request costs. What lives as long as the process is not walked over at all.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


def _keep_rests(old: _Serving, new: _Serving, lasting: Lasting) -> None:
    """What is known of the health of a deployment stays known, as long as it is the same."""
    before, after = _deployments(old), _deployments(new)
    for name, breaker in old.built.breakers.troubled.items():
        if name in after and after[name] == before.get(name):
            new.built.breakers.troubled[name] = breaker
        else:
            lasting.metrics.rests(name, None)


def _deployments(serving: _Serving) -> dict[str, tuple[settings.Deployment, Any]]:
    """What each deployment is, by name."""
    plan = serving.plan
    return {
        one.name: (
            one,
            serving.providers[one.provider].made_of if one.provider else plan.sockets.get(one.name),
        )
        for model in plan.config.models
        for one in model.deployments
    }
