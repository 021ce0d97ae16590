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
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from onward.sources import SourceError, fetch
from onward.wiring import listen, private
from onward.wiring.config import Config
from onward.wiring.engines import Engines
from onward.wiring.listen import ServeError
from onward.wiring.plan import Plan

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
    listen.check_open(config)
    sockets = listen.bind(config)
    try:
        listen.raise_file_limit()
        files = _fetch_models(config)
        folder = private.make_folder()
        try:
            uvloop.run(_supervise(config, files, sockets, folder, ready))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        for one in sockets:
            one.close()


def _fetch_models(config: Config) -> dict[str, str]:
    files: dict[str, str] = {}
    for model in config.models:
        for deployment in model.deployments:
            try:
                files[deployment.name] = str(fetch(deployment.source, progress=sys.stderr.isatty()))
            except SourceError as error:
                raise ServeError(str(error)) from None
    return files


async def _supervise(
    config: Config,
    files: dict[str, str],
    sockets: list[socket.socket],
    folder: Path,
    ready: Callable[[Ready], None],
) -> None:
    stop, hurry = _signals()
    engines = Engines(config, files, folder)
    plan = Plan(config=config, model_files=files, sockets=engines.sockets)
    try:
        await engines.start()
        if config.server.workers == 1:
            await _serve_here(plan, sockets, engines, stop, hurry, ready)
        else:
            await _serve_in_workers(plan, sockets, folder, engines, stop, hurry, ready)
    finally:
        await engines.stop()


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events that the first and the second SIGTERM or SIGINT set."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def receive(name: str) -> None:
        if stop.is_set():
            hurry.set()
        logger.info("%s: %s", name, "ending at once" if hurry.is_set() else "finishing running requests")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, receive, number.name)
    return stop, hurry


async def _serve_here(
    plan: Plan,
    sockets: list[socket.socket],
    engines: Engines,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    ready: Callable[[Ready], None],
) -> None:
    # The engine is starting by now: what HTTP needs is imported meanwhile.
    from onward.http.log import configure  # noqa: PLC0415
    from onward.wiring.http_side import HttpSide  # noqa: PLC0415

    log = configure(text=plan.config.server.log_format == "text")
    try:
        side = HttpSide(plan, log)
        await side.start(sockets)
        try:
            await _until_stopped(plan.config, sockets, engines, stop, ready)
        finally:
            await side.stop(plan.config.server.shutdown_grace_s, hurry)
    finally:
        log.close()


async def _serve_in_workers(
    plan: Plan,
    sockets: list[socket.socket],
    folder: Path,
    engines: Engines,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    ready: Callable[[Ready], None],
) -> None:
    from onward.http.log import configure  # noqa: PLC0415
    from onward.wiring.workers import Workers  # noqa: PLC0415

    log = configure(text=plan.config.server.log_format == "text")
    workers = Workers(plan, plan.config.server.workers, sockets, folder)
    try:
        try:
            await workers.start()
            await _until_stopped(plan.config, sockets, engines, stop, ready)
        finally:
            for one in sockets:
                one.close()
            await workers.stop(hurry)
    finally:
        log.close()


async def _until_stopped(
    config: Config,
    sockets: list[socket.socket],
    engines: Engines,
    stop: asyncio.Event,
    ready: Callable[[Ready], None],
) -> None:
    if config.server.no_auth and not config.keys and not listen.is_loopback(config.server.host):
        logger.warning("no key is needed: everybody who can reach %s can use this server", config.server.host)
    stopped = asyncio.create_task(stop.wait())
    started = asyncio.create_task(engines.ready())
    try:
        await asyncio.wait([stopped, started], return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result()
            mount = next(iter(config.dialects.values())).rstrip("/")
            ready(
                Ready(
                    base_url=listen.base_url(config, sockets) + mount,
                    model=config.models[0].id,
                    needs_key=bool(config.keys),
                )
            )
            await stopped
    finally:
        stopped.cancel()
        started.cancel()
