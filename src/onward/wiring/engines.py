"""The engine processes of a server: one for each embedded deployment."""

import asyncio
from pathlib import Path

from onward.engines.llama.process import EngineProcess
from onward.engines.llama.settings import LlamaSettings
from onward.engines.protocol import EngineState
from onward.wiring.config import Config
from onward.wiring.listen import ServeError
from onward.wiring.model_file import context_length, read_metadata


class Engines:
    """Starts, watches and stops them. Their sockets lie in a folder that nobody else can enter."""

    def __init__(
        self, config: Config, files: dict[str, str], projectors: dict[str, str], folder: Path
    ) -> None:
        """`files` and `projectors` are by deployment. Raises `ServeError` for a file that is no model."""
        self.sockets: dict[str, str] = {}
        self._processes: dict[str, EngineProcess] = {}
        pairs = [
            (model, deployment)
            for model in config.models
            for deployment in model.deployments
            if deployment.engine == "llama"
        ]
        for number, (model, deployment) in enumerate(pairs):
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
            # Numbered, as a Unix socket's path has little room and a name may be long.
            self.sockets[deployment.name] = str(folder / f"engine{number}.sock")
            self._processes[deployment.name] = EngineProcess(settings, self.sockets[deployment.name])

    async def start(self) -> None:
        """Start all, without waiting until they are up."""
        for process in self._processes.values():
            await process.start()

    async def ready(self) -> None:
        """Return once all can answer. Raises `ServeError` if one never will."""
        for name, process in self._processes.items():
            if await process.wait_settled() is EngineState.FAILED:
                raise ServeError(f"the engine of {name} does not start: {process.detail}")

    async def stop(self) -> None:
        """End all; none is left when this returns."""
        await asyncio.gather(*(process.stop() for process in self._processes.values()))
