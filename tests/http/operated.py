"""A server in the test's own process whose keys, tenants and money an operator looks after."""

import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from onward.admission.store import Store
from onward.core.price import Price
from onward.engines.scripted import ScriptedEngine
from onward.http.log import LogWriter
from onward.http.served import Models
from onward.http.server import Server
from onward.routing.catalog import Catalog, Model
from onward.serve.model import Deployment, ServedModel
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite.store import SqliteStore
from onward.wiring.admission import Admission
from onward.wiring.build import assemble
from onward.wiring.config import Config
from onward.wiring.config import Server as ServerSettings
from tests.http.harness import JSON, MODEL

TOKEN = "an-admin-token-of-these-tests"
PRICED = Model(
    id=MODEL,
    context_length=4096,
    aliases=("alias",),
    price=Price(input=1_000_000_000, cached_input=500_000_000, output=2_000_000_000),
)
"""A prompt token costs 0.000001, one of output twice as much."""


@dataclass
class Operated:
    """A running server, as its operator reaches it."""

    port: int
    store: Store | None
    admission: Admission
    log_path: Path
    client: httpx.AsyncClient = field(repr=False)

    async def ask(self, method: str, path: str, body=None, *, token: str | None = TOKEN, **options):
        """An answer of the admin API."""
        headers = options.pop("headers", {})
        if token is not None:
            headers = {"authorization": f"Bearer {token}", **headers}
        if body is not None:
            options["content"] = body if isinstance(body, bytes) else json.dumps(body)
            headers = {**JSON, **headers}
        return await self.client.request(method, f"/admin/v1{path}", headers=headers, **options)

    async def get(self, path: str, **params):
        """What must be there."""
        answer = await self.ask("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body, **options):
        """What must succeed."""
        answer = await self.ask("POST", path, body, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, body=None, *, status: int = 400, **options):
        """The error of what must be refused."""
        answer = await self.ask(method, path, body, **options)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"].endswith((".", "?"))
        return error

    async def complete(self, secret: str | None, **body) -> httpx.Response:
        """A completion by a caller."""
        headers = JSON | ({"authorization": f"Bearer {secret}"} if secret else {})
        content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 5, **body})
        return await self.client.post("/v1/completions", content=content, headers=headers)


@contextlib.asynccontextmanager
async def operated(
    text_side,
    folder: Path,
    script: ScriptedEngine | Sequence[int] = (260, 261, 262),
    *,
    config: Config | None = None,
    deployments: Sequence[Deployment] = (),
    token: str | None = TOKEN,
    stored: bool = True,
) -> AsyncIterator[Operated]:
    """Serve a scripted, priced model, with a SQLite store in `folder`."""
    config = config or Config()
    config.server = ServerSettings(log_format="json")
    engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(list(script))
    served = ServedModel(PRICED, text_side.tokenizer, text_side.renderer, engine)
    log_path = folder / "log"
    descriptor = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    writer = LogWriter(descriptor)
    store = await SqliteStore.open(folder / "onward.db") if stored else None
    admission = Admission(config, store, MemoryLimits(time.monotonic), lease="tests")
    models = Models(Catalog([PRICED]), {MODEL: [served, *deployments]})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ONWARD_ADMIN_TOKEN", raising=False)
        if token is not None:
            patch.setenv("ONWARD_ADMIN_TOKEN", token)
        built = assemble(config, models, {MODEL: None}, writer, admission=admission, store=store)
    await admission.start()
    listening = socket.create_server(("127.0.0.1", 0))
    http = Server(built.app, built.limits, built.app.refuse)
    await http.start([listening])
    port = listening.getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False) as client:
            yield Operated(port, store, admission, log_path, client)
    finally:
        await http.drain(0)
        await admission.stop()
        if store is not None:
            await store.close()
        listening.close()
        writer.close()
        os.close(descriptor)
