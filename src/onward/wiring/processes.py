"""`onward serve`: one supervisor that owns what lives once per host.

It binds every socket, starts an engine process per embedded deployment and answers HTTP itself,
or, with several workers, through processes of its own. All of them end with it, however it ends:
each watches a socket or pipe whose other end is here.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from onward.core.failure import Failure
from onward.wiring import listen, private
from onward.wiring.config import Config, ConfigError
from onward.wiring.engines import Engines
from onward.wiring.listen import ServeError
from onward.wiring.plan import Plan, Reloaded
from onward.wiring.reload import Alone, Processes, Reloads, Source, fetch_files

if TYPE_CHECKING:
    from onward.http.log import LogWriter
    from onward.wiring.authority import Authority

__all__ = ["Ready", "ServeError", "Source", "serve"]
logger = logging.getLogger("onward")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller needs to know of a server that answers."""

    base_url: str
    """With the path of the first dialect, as clients want it: ``http://127.0.0.1:8000/v1``."""
    model: str
    """ID of the first model."""
    needs_key: bool


def serve(config: Config, source: Source, ready: Callable[[Ready], None]) -> None:
    """Serve a checked config until a signal ends it. `ready` is called once when all is up.

    SIGTERM and SIGINT end running requests within `shutdown_grace_s`; a second one ends at once. SIGHUP reads
    the config again from its `source`, if that is a file. Raises `ServeError` with one line that says what is
    wrong.
    """
    if source.path is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until we can obey it: the config was read just now
    sockets = listen.bind(config)
    try:
        listen.raise_file_limit()
        known: dict[str, str] = {}
        files, faults = fetch_files(config, known, shows=sys.stderr.isatty())
        if faults:
            raise ServeError(faults[0].partition(": ")[2])
        folder = private.make_folder()
        try:
            engines = Engines(folder)
            paths = engines.prepare(0, config, files.models, files.projectors)
            plan = Plan(config=config, model_files=files.models, sockets=paths)
            supervisor = Supervisor(
                plan, engines, source=source, known=known, sockets=sockets, folder=folder, ready=ready
            )
            uvloop.run(supervisor.run())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        for one in sockets:
            one.close()


class Supervisor:
    """Everything that lives once per host, while it lives."""

    def __init__(
        self,
        plan: Plan,
        engines: Engines,
        *,
        source: Source,
        known: dict[str, str],
        sockets: list[socket.socket],
        folder: Path,
        ready: Callable[[Ready], None],
    ) -> None:
        """`known`: files of models by their source."""
        self._plan = plan
        self._source = source
        self._known = known
        self._config = plan.config
        self._sockets = sockets
        self._folder = folder
        self._announce = ready
        self._engines = engines
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._reloads: Reloads | None = None
        self._needs_key = bool(plan.config.keys)

    async def run(self) -> None:
        """Serve until a signal ends it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number.name)
        if self._source.path is not None:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)
        authority = await self._authority()
        try:
            await self._engines.start(0)
            # The engines are starting by now: what HTTP needs is imported meanwhile.
            from onward.http.log import configure  # noqa: PLC0415

            log = configure(text=self._config.server.log_format == "text")
            try:
                several = self._config.server.workers > 1
                await (self._serve_in_workers(authority) if several else self._serve_here(log, authority))
            finally:
                log.close()
        finally:
            await self._engines.stop()
            await authority.close()

    async def _authority(self) -> "Authority":
        """Open the stores. Raises `ServeError`, also where nobody who could reach us would need a key."""
        from onward.wiring.authority import Authority, open_limits, open_store  # noqa: PLC0415

        store = await open_store(self._config, owner=True)
        authority = Authority(self._config, store, open_limits(self._config))
        try:
            self._needs_key = self._needs_key or await authority.has_keys()
            listen.check_open(self._config, has_keys=self._needs_key)
            await authority.start()
        except Failure as failure:
            await authority.close()
            raise ServeError(f"the store cannot be used: {failure.message} Check [store]") from None
        except BaseException:
            await authority.close()
            raise
        return authority

    def _signalled(self, name: str) -> None:
        if self._stop.is_set():
            self._hurry.set()
        doing = "ending at once" if self._hurry.is_set() else "finishing running requests"
        logger.info("%s: %s", name, doing)
        self._stop.set()

    async def _serve_here(self, log: "LogWriter", authority: "Authority") -> None:
        from onward.wiring.http_side import HttpSide  # noqa: PLC0415 - the engines come first

        lease = authority.new_lease()
        plan = msgspec.structs.replace(self._plan, lease=lease)
        side = HttpSide(
            plan, log, authority.store, authority.limits, over=self._over, reload=self._reload_for_admin
        )
        try:
            async with self._reloading(plan, authority, Alone(side)):
                await side.start(self._sockets)
                await self._until_stopped(lambda: self._engines.ready(0), side.ready)
        finally:
            await side.stop(self._hurry)
            await authority.bury(lease)

    async def _serve_in_workers(self, authority: "Authority") -> None:
        from onward.wiring.workers import Workers  # noqa: PLC0415 - the engines come first

        path = self._folder / "stores.sock"
        await authority.listen(private.unix_socket(path))
        plan = msgspec.structs.replace(self._plan, stores=str(path))
        workers = Workers(
            plan, self._sockets, self._folder, authority, over=self._over, reload=self._reload_for_worker
        )
        try:
            async with self._reloading(plan, authority, workers):
                await workers.start()
                await self._until_stopped(lambda: self._engines.ready(0))
        finally:
            for one in self._sockets:
                one.close()
            await workers.stop(self._hurry)

    @contextlib.asynccontextmanager
    async def _reloading(
        self, plan: Plan, authority: "Authority", processes: Processes
    ) -> AsyncGenerator[None]:
        """Take up changed configs while this lasts."""
        self._reloads = Reloads(
            self._source,
            plan,
            self._known,
            engines=self._engines,
            authority=authority,
            processes=processes,
        )
        listener = asyncio.create_task(self._reloads.on_signal(self._hung_up))
        try:
            yield
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _over(self, number: int) -> None:
        if self._reloads is not None:
            await self._reloads.over(number)

    async def _reload_for_admin(self) -> dict[str, Any]:
        """See `http.admin.reload.Reload`."""
        from onward.http.admin.reload import ReloadRefused  # noqa: PLC0415 - it is imported by now

        reloaded = await self._reload_for_worker(0)
        if reloaded.answer is None:
            raise ReloadRefused(reloaded.faults)
        return reloaded.answer

    async def _reload_for_worker(self, call: int) -> Reloaded:
        if self._reloads is None or self._stop.is_set():
            return Reloaded(call, faults=["the server is ending"])
        try:
            return Reloaded(call, await self._reloads.reload())
        except ConfigError as error:
            return Reloaded(call, faults=error.faults)
        except Failure as failure:
            return Reloaded(call, faults=[f"store: {failure.message}"])

    async def _until_stopped(self, *conditions: Callable[[], Awaitable[None]]) -> None:
        """Tell that all is up once all conditions are met, and return when a signal came."""

        async def start() -> None:
            for condition in conditions:
                await condition()

        server = self._config.server
        if server.no_auth and not self._needs_key and not listen.is_loopback(server.host):
            logger.warning("no key is needed: everybody who can reach %s can use this server", server.host)
        stopped = asyncio.create_task(self._stop.wait())
        started = asyncio.create_task(start())
        try:
            await asyncio.wait([stopped, started], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                started.result()
                self._announce(self._ready())
                await stopped
        finally:
            stopped.cancel()
            started.cancel()

    def _ready(self) -> Ready:
        mount = next(iter(self._config.dialects.values())).rstrip("/")
        return Ready(
            base_url=listen.base_url(self._config, self._sockets) + mount,
            model=self._config.models[0].id,
            needs_key=self._needs_key,
        )
