"""Reading the config again while the server runs: the whole of it is taken up, or nothing."""

import asyncio
import itertools
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from onward.core.failure import Failure
from onward.sources import SourceError, fetch
from onward.wiring import config as settings
from onward.wiring import config_check, listen
from onward.wiring.config_change import Change, change_of, fixed_faults
from onward.wiring.engines import Engines
from onward.wiring.listen import ServeError
from onward.wiring.plan import Plan

if TYPE_CHECKING:
    from onward.wiring.authority import Authority
    from onward.wiring.http_side import HttpSide

logger = logging.getLogger("onward")
_STILL_S: Final = 0.2
"""A file that was changed less long ago may be half written: whoever writes it is waited for."""
_STILL_MOST_S: Final = 5.0


class Source(msgspec.Struct, frozen=True):
    """Where a config came from, so that it can be read again."""

    path: str | None
    """None: there was no file."""
    overrides: settings.Overrides


class Processes(Protocol):
    """The HTTP processes of a server, one or many. `over` of the plan that they serve by comes later."""

    async def prepare(self, plan: Plan) -> list[str]:
        """Make everything for another plan in each of them; why it cannot be served. Nothing changes."""
        ...

    async def commit(self, plan: Plan) -> None:
        """Serve by the plan that all have prepared."""
        ...

    async def abort(self, number: int) -> None:
        """Forget a plan that was prepared, wherever it was."""
        ...


class Alone:
    """The HTTP side of a server that has no other process for it."""

    def __init__(self, side: "HttpSide") -> None:
        self._side = side

    async def prepare(self, plan: Plan) -> list[str]:
        try:
            await self._side.prepare(plan)
        except ServeError as error:
            return [str(error)]
        return []

    async def commit(self, plan: Plan) -> None:
        self._side.commit(plan.number)

    async def abort(self, number: int) -> None:
        await self._side.abort(number)


class Files(msgspec.Struct, frozen=True):
    """Files of models, by deployment."""

    models: dict[str, str]
    projectors: dict[str, str]


def fetch_files(config: settings.Config, known: dict[str, str], *, shows: bool) -> tuple[Files, list[str]]:
    """The files of every embedded deployment, and what is wrong with them, by its path in the config.

    `known`: files by source, which are not looked for again; what is fetched joins them. `shows`: progress.
    """
    files, faults = Files({}, {}), list[str]()
    for n, model in enumerate(config.models):
        for m, deployment in enumerate(model.deployments):
            if deployment.engine != "llama":
                continue
            for name, source, found in (
                ("source", deployment.source, files.models),
                ("mmproj", deployment.mmproj, files.projectors),
            ):
                if not source:
                    continue
                try:
                    path = known.get(source) or str(fetch(source, progress=shows))
                except SourceError as error:
                    faults.append(f"models[{n}].deployments[{m}].{name}: {error}")
                else:
                    known[source] = found[deployment.name] = path
    return files, faults


class Reloads:
    """Takes up changed configs, one after the other."""

    def __init__(
        self,
        source: Source,
        plan: Plan,
        known: dict[str, str],
        *,
        engines: Engines,
        authority: "Authority",
        processes: Processes,
    ) -> None:
        """`plan`: by which the server was started. `known`: its files by source."""
        self._source = source
        self._plan = plan
        self._known = known
        self._engines = engines
        self._authority = authority
        self._processes = processes
        self._numbers = itertools.count(plan.number + 1)
        self._turn = asyncio.Lock()

    async def reload(self) -> dict[str, Any]:
        """Read the file again and serve by it; what changed. Raises `ConfigError` with every fault, and
        `Failure` where the store is down: nothing has changed then.
        """
        async with self._turn:
            before = self._plan.config
            config = await asyncio.to_thread(self._read)
            change = change_of(before, config)
            if change or self._engines.failed(self._plan.number):
                await self._take_up(config)
            logger.info("config %s is in force: %s", config.version, _told(change))
            return {
                "version": config.version,
                "previous_version": before.version,
                **msgspec.to_builtins(change),
            }

    async def on_signal(self, asked: asyncio.Event) -> None:
        """Reload whenever `asked` is set, and tell the log what came of it."""
        while True:
            await asked.wait()
            asked.clear()
            try:
                await self.reload()
            except settings.ConfigError as error:
                for fault in error.faults:
                    logger.error("config: %s", fault)  # noqa: TRY400 - these are no bugs
                logger.error("the config has faults, so nothing changed: %s", self._named())  # noqa: TRY400
            except Failure as failure:
                logger.error("the config could not be reloaded: %s", failure.message)  # noqa: TRY400
            except Exception:
                logger.exception("the config could not be reloaded")

    async def over(self, number: int) -> None:
        """No request uses a plan any more."""
        for name in await self._engines.drop(number):
            logger.info("the engine of %s was stopped: no config in force has it", name)

    def _named(self) -> str:
        return f"{self._plan.config.version} stays in force"

    def _read(self) -> settings.Config:
        """The file, checked as at the start, and against what cannot change."""
        if self._source.path is None:
            raise settings.ConfigError(
                ["the server was started without a config file, so there is none to read"]
            )
        _wait_until_still(Path(self._source.path))
        config, faults = settings.read(self._source.path, self._source.overrides)
        faults += config_check.without_echoes(config_check.faults_of(config), faults)
        faults += config_check.without_echoes(list(fixed_faults(self._plan.config, config)), faults)
        if faults:
            raise settings.ConfigError(faults)
        settings.read_secrets(config)
        return config

    async def _take_up(self, config: settings.Config) -> None:
        await self._check_open(config)
        known = dict(self._known)
        files, faults = await asyncio.to_thread(fetch_files, config, known, shows=False)
        if faults:
            raise settings.ConfigError(faults)
        number = next(self._numbers)
        try:
            plan = await self._prepared(number, config, files)
            await self._authority.credit(config)
            await self._engines.start(number)
        except BaseException:
            await self._processes.abort(number)
            await self._engines.drop(number)
            raise
        self._plan = plan
        self._known = {source: path for source, path in known.items() if source in _sources(config)}
        self._authority.config = config
        await self._processes.commit(plan)

    async def _prepared(self, number: int, config: settings.Config, files: Files) -> Plan:
        try:
            sockets = self._engines.prepare(number, config, files.models, files.projectors)
        except ServeError as error:
            raise settings.ConfigError([str(error)]) from None
        plan = msgspec.structs.replace(
            self._plan, number=number, config=config, model_files=files.models, sockets=sockets
        )
        faults = await self._processes.prepare(plan)
        if faults:
            raise settings.ConfigError(faults)
        return plan

    async def _check_open(self, config: settings.Config) -> None:
        """Whoever needed a key goes on needing one. Raises `ConfigError`, `Failure`."""
        has_keys = bool(config.keys) or await self._authority.has_keys()
        try:
            listen.check_open(config, has_keys=has_keys)
        except ServeError as error:
            raise settings.ConfigError([f"keys: {error}"]) from None
        if self._plan.config.keys and not has_keys and not config.server.no_auth:
            raise settings.ConfigError(
                [
                    (
                        "keys: without the last of them everybody would be let in; leave one, make one with"
                        " 'onward keys create NAME', or say no_auth = true in [server]"
                    )
                ]
            )


def _wait_until_still(path: Path) -> None:
    """Wait for whoever writes a file just now: half of a config may be a config too."""
    until = time.monotonic() + _STILL_MOST_S
    while time.monotonic() < until:
        try:
            age = time.time() - path.stat().st_mtime
        except OSError:
            return  # it is told when it is read
        if not 0 <= age < _STILL_S:
            return
        time.sleep(_STILL_S - age)


def _sources(config: settings.Config) -> set[str]:
    return {
        source
        for model in config.models
        for one in model.deployments
        for source in (one.source, one.mmproj)
        if source
    }


def _told(change: Change) -> str:
    parts = [
        f"{word} {', '.join(paths)}"
        for word, paths in (("added", change.added), ("removed", change.removed), ("changed", change.changed))
        if paths
    ]
    return "; ".join(parts) or "nothing changed"
