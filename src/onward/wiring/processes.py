"""`onward serve`: one supervisor that owns what lives once per host.

It binds every socket, starts an engine process per embedded deployment and answers HTTP itself,
or, with several workers, through processes of its own. All of them end with it, however it ends:
each watches a socket or pipe whose other end is here.
"""

import asyncio
import logging
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from onward.core.failure import Failure
from onward.sources import SourceError, fetch
from onward.wiring import listen, private
from onward.wiring.config import Config
from onward.wiring.engines import Engines
from onward.wiring.listen import ServeError
from onward.wiring.plan import Plan

if TYPE_CHECKING:
    from onward.http.log import LogWriter
    from onward.wiring.authority import Authority

__all__ = ["Ready", "ServeError", "serve"]
logger = logging.getLogger("onward")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller needs to know of a server that answers."""

    base_url: str
    """With the path of the first dialect, as clients want it: ``http://127.0.0.1:8000/v1``."""
    model: str
    """ID of the first model."""
    needs_key: bool


def serve(config: Config, ready: Callable[[Ready], None]) -> None:
    """Serve a checked config until a signal ends it. `ready` is called once when all is up.

    SIGTERM and SIGINT end running requests within `shutdown_grace_s`; a second one ends at once.
    Raises `ServeError` with one line that says what is wrong.
    """
    sockets = listen.bind(config)
    try:
        listen.raise_file_limit()
        files, projectors = _fetch_models(config), _fetch_projectors(config)
        folder = private.make_folder()
        try:
            engines = Engines(config, files, projectors, folder)
            plan = Plan(config=config, model_files=files, sockets=engines.sockets)
            uvloop.run(Supervisor(plan, engines, sockets, folder, ready).run())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        for one in sockets:
            one.close()


def _fetch_models(config: Config) -> dict[str, str]:
    files: dict[str, str] = {}
    for model in config.models:
        for deployment in model.deployments:
            if deployment.engine is None:
                continue
            try:
                files[deployment.name] = str(fetch(deployment.source, progress=sys.stderr.isatty()))
            except SourceError as error:
                raise ServeError(str(error)) from None
    return files


def _fetch_projectors(config: Config) -> dict[str, str]:
    deployments = [deployment for model in config.models for deployment in model.deployments]
    try:
        return {one.name: str(fetch(one.mmproj)) for one in deployments if one.mmproj}
    except SourceError as error:
        raise ServeError(str(error)) from None


class Supervisor:
    """Everything that lives once per host, while it lives."""

    def __init__(
        self,
        plan: Plan,
        engines: Engines,
        sockets: list[socket.socket],
        folder: Path,
        ready: Callable[[Ready], None],
    ) -> None:
        self._plan = plan
        self._config = plan.config
        self._sockets = sockets
        self._folder = folder
        self._announce = ready
        self._engines = engines
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._needs_key = bool(plan.config.keys)

    async def run(self) -> None:
        """Serve until a signal ends it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number.name)
        authority = await self._authority()
        try:
            await self._engines.start()
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
            if store is not None:
                self._needs_key = self._needs_key or bool(await store.keys(after=None, limit=1))
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
        side = HttpSide(plan, log, authority.store, authority.limits)
        await side.start(self._sockets)
        try:
            await self._until_stopped(self._engines.ready, side.ready)
        finally:
            await side.stop(self._config.server.shutdown_grace_s, self._hurry)
            await authority.bury(lease)

    async def _serve_in_workers(self, authority: "Authority") -> None:
        from onward.wiring.workers import Workers  # noqa: PLC0415 - the engines come first

        path = self._folder / "stores.sock"
        await authority.listen(private.unix_socket(path))
        plan = msgspec.structs.replace(self._plan, stores=str(path))
        workers = Workers(plan, self._config.server.workers, self._sockets, self._folder, authority)
        try:
            await workers.start()
            await self._until_stopped(self._engines.ready)
        finally:
            for one in self._sockets:
                one.close()
            await workers.stop(self._hurry)

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
