"""A server in the test's own process: the real edge, the real tokenizer, a scripted engine."""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from onward.core.generate import Chunk, EngineFinish, ScoredToken
from onward.engines.protocol import EngineStatus
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.http.log import LogWriter
from onward.http.served import Models
from onward.http.server import Server
from onward.routing.catalog import Catalog, Model
from onward.routing.checkpoints import Checkpoints
from onward.serve.model import ServedModel
from onward.wiring.build import Built, assemble
from onward.wiring.config import Config, Key
from onward.wiring.config import Server as ServerSettings

MODEL = "org/scripted"
SECRET = "on-a-secret-of-these-tests"
JSON = {"content-type": "application/json"}


@dataclass
class Edge:
    """A running server and what a test looks at."""

    port: int
    engine: ScriptedEngine
    built: Built
    http: Server
    log_path: Path
    writer: LogWriter
    client: httpx.AsyncClient = field(repr=False)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def raw(self, data: bytes, *, until_close: bool = True) -> bytes:
        """What comes back for bytes on a new connection."""
        reader, writer = await self.connect()
        writer.write(data)
        await writer.drain()
        try:
            async with asyncio.timeout(10):
                return await (reader.read(-1) if until_close else reader.read(65536))
        finally:
            writer.close()

    async def complete(self, **body) -> httpx.Response:
        content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 5, **body})
        return await self.client.post("/v1/completions", content=content, headers=JSON)

    async def logged(self, path: str, count: int = 1) -> list[dict]:
        """The log's records of a path, once there are `count`."""
        async with asyncio.timeout(5):
            while True:
                lines = [
                    json.loads(line)
                    for line in self.log_path.read_text().splitlines()
                    if line.startswith("{")
                ]
                found = [line for line in lines if line.get("path") == path]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)


class SlowEngine(ScriptedEngine):
    """Emits a token each `pause_s`, for ever; `entered` is set once it works on a request."""

    def __init__(self, token: int, pause_s: float = 0.01, *, silent_first: float = 0.0) -> None:
        super().__init__([token])
        self._token, self._pause_s, self._silent_first = token, pause_s, silent_first
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.steps = 0

    def status(self) -> EngineStatus:
        return msgspec.structs.replace(super().status(), slots=64)

    async def generate(self, request):
        self.requests.append(request)
        self.entered.set()
        try:
            yield Chunk(cached_tokens=0)
            await asyncio.sleep(self._silent_first)
            for step in range(request.max_tokens):
                await asyncio.sleep(self._pause_s)
                self.steps += 1
                last = EngineFinish.LENGTH if step == request.max_tokens - 1 else None
                yield Chunk([ScoredToken(self._token)], last)
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled += 1
            raise
        finally:
            self.left.set()


@contextlib.asynccontextmanager
async def edge(
    text_side,
    folder: Path,
    script: ScriptedEngine | Sequence[int] = (260, 261, 262),
    *,
    limits: Limits | None = None,
    keys: bool = False,
    models: list[str] | None = None,
    dialects: dict[str, str] | None = None,
    model: Model | None = None,
    checkpoints: Checkpoints | None = None,
) -> AsyncIterator[Edge]:
    """Serve a scripted model on a free port of the running loop."""
    engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(list(script))
    config = Config(server=ServerSettings(log_format="json"))
    if keys:
        config.keys = [Key(name="tests", sha256=hashlib.sha256(SECRET.encode()).hexdigest(), models=models)]
    config.dialects = dialects or config.dialects
    model = model or Model(id=MODEL, context_length=4096, aliases=("alias",))
    served = {model.id: [ServedModel(model, text_side.tokenizer, text_side.renderer, engine)]}
    log_path = folder / "log"
    descriptor = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    writer = LogWriter(descriptor)
    catalog = Models(Catalog([model]), served, checkpoints)
    built = assemble(config, catalog, {model.id: None}, writer, limits)
    listening = socket.create_server(("127.0.0.1", 0))
    http = Server(built.app, built.limits, built.app.refuse)
    await http.start([listening])
    port = listening.getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False) as client:
            yield Edge(port, engine, built, http, log_path, writer, client)
    finally:
        await http.drain(0)
        listening.close()
        writer.close()
        os.close(descriptor)


async def until(condition, within_s: float = 10) -> None:
    """Wait for something that has to come true."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
