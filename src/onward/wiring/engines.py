"""The engine processes of a server: one for each embedded deployment."""

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path

from onward.engines.llama.process import EngineProcess
from onward.engines.llama.settings import LlamaSettings
from onward.engines.protocol import EngineState
from onward.wiring.config import Config
from onward.wiring.listen import ServeError
from onward.wiring.model_file import context_length, read_metadata


class _Engine:
    """A process of ours and what it was started for."""

    def __init__(self, settings: LlamaSettings, socket: str) -> None:
        self.settings = settings
        self.socket = socket
        self.process = EngineProcess(settings, socket)
        self.started = False

    @property
    def failed(self) -> bool:
        """Whether it was given up: its file may have been put right since."""
        return self.process.state is EngineState.FAILED


class Engines:
    """Starts, watches and stops them. Their sockets lie in a folder that nobody else can enter.

    Each plan has its set of them; a deployment that stays as it was shares its engine with the plan before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._plans: dict[int, dict[str, _Engine]] = {}

    def prepare(
        self, number: int, config: Config, files: dict[str, str], projectors: dict[str, str]
    ) -> dict[str, str]:
        """The engines of a plan, none of which is started: their sockets by deployment, as `files` and
        `projectors` are. Raises `ServeError` for a file that is no model.
        """
        engines: dict[str, _Engine] = {}
        for model in config.models:
            for deployment in model.deployments:
                if deployment.engine != "llama":
                    continue
                path = Path(files[deployment.name])
                settings = LlamaSettings(
                    model_path=str(path),
                    mmproj_path=projectors.get(deployment.name),
                    slots=deployment.slots,
                    threads=deployment.threads,
                    queue=deployment.queue,
                    adapters=deployment.adapters,
                    context_length=context_length(model, read_metadata(path)),
                )
                engines[deployment.name] = self._engine(deployment.name, settings)
        self._plans[number] = engines
        return {name: engine.socket for name, engine in engines.items()}

    def _engine(self, name: str, settings: LlamaSettings) -> _Engine:
        for plan in self._plans.values():
            known = plan.get(name)
            if known is not None and known.settings == settings and not known.failed:
                return known
        # Numbered, as a Unix socket's path has little room and a name may be long.
        return _Engine(settings, str(self._folder / f"engine{next(self._numbers)}.sock"))

    async def start(self, number: int) -> None:
        """Start those of a plan that do not run, without waiting until they are up."""
        for engine in self._plans[number].values():
            if not engine.started:
                engine.started = True
                await engine.process.start()

    def failed(self, number: int) -> bool:
        """Whether one of a plan was given up."""
        return any(engine.failed for engine in self._plans[number].values())

    async def ready(self, number: int) -> None:
        """Return once all of a plan can answer. Raises `ServeError` if one never will."""
        for name, engine in self._plans.get(number, {}).items():
            if await engine.process.wait_settled() is EngineState.FAILED:
                raise ServeError(f"the engine of {name} does not start: {engine.process.detail}")

    async def drop(self, number: int) -> list[str]:
        """Nothing uses a plan any more: stop its engines that no other plan has. Their deployments."""
        dropped = self._plans.pop(number, {})
        used = [engine for plan in self._plans.values() for engine in plan.values()]
        over = {name: engine for name, engine in dropped.items() if engine not in used}
        await self._stop(over.values())
        return list(over)

    async def stop(self) -> None:
        """End all; none is left when this returns."""
        every = {engine for plan in self._plans.values() for engine in plan.values()}
        self._plans.clear()
        await self._stop(every)

    async def _stop(self, engines: Iterable[_Engine]) -> None:
        await asyncio.gather(*(engine.process.stop() for engine in engines))
