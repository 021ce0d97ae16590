"""A gateway in the test's own process: the real edge, admission and store, providers that misbehave.

    with MockProvider() as mock:
        async with gateway(folder, mock, tenant={"balance": "1.00"}) as running:
            answer = await running.complete(max_tokens=3)
            entry = await running.entry()

What runs a model is given by what it is: a `MockProvider`, a `Provider` of a config, or a `ScriptedEngine`.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from onward.admission.idempotency import Claim, ClaimResult
from onward.admission.ledger import Entry, Operation, Result, State
from onward.admission.limits import RateLimits
from onward.admission.store import EntryQuery, Store
from onward.core.money import parse_amount
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.http.log import LogWriter, MessageHandler
from onward.http.served import Models
from onward.http.server import Server
from onward.routing.catalog import Catalog
from onward.serve.model import Deployment
from onward.stores.down import down
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite.store import SqliteStore
from onward.wiring import config as settings
from onward.wiring.admission import Admission
from onward.wiring.authority import Authority
from onward.wiring.build import Built, _proxied, _served, assemble, catalog_model
from onward.wiring.providers import providers_of
from tests.http.harness import until
from tests.mock_provider import MockProvider

MODEL = "org/model"
UPSTREAM = "their-own-name"
"""The providers' name for it."""
SECRET = "on-a-key-of-these-tests"
PRICE = {"input": "1", "cached_input": "0.5", "output": "2"}
"""A token costs 1,000, 500 or 2,000 units."""
MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1"}
Source = MockProvider | settings.Provider | ScriptedEngine


class FrailStore(SqliteStore):
    """A SQLite store that is down while `broken`."""

    broken = False
    batches = 0

    def write(self, operations: list[Operation]) -> Any:
        if self.broken:
            raise down()
        self.batches += 1
        return super().write(operations)

    async def apply(self, operations: list[Operation]) -> list[Result]:
        if self.broken:
            raise down()
        return await super().apply(operations)

    async def claim(self, claims: list[Claim]) -> list[ClaimResult]:
        if self.broken:
            raise down()
        return await super().claim(claims)

    async def unclaim(self, claims: Sequence[Claim]) -> None:
        if self.broken:
            raise down()
        await super().unclaim(claims)

    async def revision(self) -> int:
        if self.broken:
            raise down()
        return await super().revision()

    async def renew(self, lease: str, until_ms: int) -> None:
        if self.broken:
            raise down()
        await super().renew(lease, until_ms)


@dataclass
class Gateway:
    """A running gateway and what a test looks at."""

    config: settings.Config
    port: int
    store: Store
    limits: RateLimits
    admission: Admission
    authority: Authority
    built: Built
    http: Server
    log_path: Path
    client: httpx.AsyncClient = field(repr=False)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        secret: str | None = SECRET,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps({"model": MODEL, **body})
        return await self.client.post(path, content=content, headers=_headers(secret, headers))

    async def complete(
        self,
        *,
        path: str = "/v1/completions",
        secret: str | None = SECRET,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> httpx.Response:
        """A completion of two words, of at most 5 tokens unless `body` says something else."""
        body = {"prompt": "two words", "max_tokens": 5, **body}
        return await self.post(path, body, secret=secret, headers=headers)

    async def refused(self, status: int, code: str, **body: Any) -> httpx.Response:
        """The answer of a completion that must be refused so."""
        answer = await self.complete(**body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), answer.text
        assert error["message"].endswith(".")
        return answer

    @contextlib.asynccontextmanager
    async def caller(
        self,
        *,
        path: str = "/v1/completions",
        secret: str | None = SECRET,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> AsyncIterator["Caller"]:
        """A caller on a connection of its own who has sent a request and can read, wait or go."""
        content = json.dumps({"model": MODEL, "prompt": "two words", "max_tokens": 5, **body}).encode()
        lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in _headers(secret, headers).items()]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        caller = Caller(reader, writer)
        try:
            yield caller
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def entries(self, **query: Any) -> list[Entry]:
        """What stands in the ledger, oldest first."""
        page = await self.store.entries(EntryQuery(limit=1000, **query))
        return page.entries[::-1]

    async def ended(self, count: int = 1, within_s: float = 5) -> list[Entry]:
        """The entries, once there are `count` and none is held any more."""
        async with asyncio.timeout(within_s):
            while True:
                entries = await self.entries()
                if len(entries) >= count and all(entry.state is not State.HELD for entry in entries):
                    assert len(entries) == count, entries
                    return entries
                await asyncio.sleep(0.005)

    async def entry(self, within_s: float = 5) -> Entry:
        """The only entry, once it has ended."""
        [entry] = await self.ended(1, within_s)
        return entry

    async def balance(self, tenant: str = "acme") -> int:
        """What a tenant can still spend, which must be what was credited less all that was charged."""
        [money] = await self.store.money([f"balance:{tenant}"])
        charged = sum(entry.charged for entry in await self.entries(tenant=tenant))
        assert money.spent == charged
        return money.credited - money.spent - money.held

    def places(self) -> int:
        """Requests that count against someone's concurrency."""
        assert isinstance(self.limits, MemoryLimits)
        return len(self.limits._places)

    async def logged(self, *words: str) -> str:
        """All that was logged, once these stand in it."""
        await until(lambda: all(word in self.log_path.read_text() for word in words))
        return self.log_path.read_text()

    async def idle(self) -> None:
        """Nothing runs, holds money or takes a place."""
        await until(lambda: not list(self.admission.gate.running) and not self.places())
        await self.admission.gate.mark()
        assert all(entry.state is not State.HELD for entry in await self.entries())


@dataclass
class Caller:
    """One request on a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    text: str = ""

    async def reads(self, count: int, what: str = "data: ") -> None:
        """Until so many events have come."""
        async with asyncio.timeout(10):
            while self.text.count(what) < count:
                data = await self.reader.read(65536)
                assert data, self.text
                self.text += data.decode()

    async def reads_all(self) -> str:
        """The whole answer, or what came of it before the server closed the connection."""
        async with asyncio.timeout(10):
            while not self._whole():
                data = await self.reader.read(65536)
                if not data:
                    break
                self.text += data.decode()
        return self.text

    def _whole(self) -> bool:
        head, _, body = self.text.partition("\r\n\r\n")
        size = re.search(r"(?i)content-length: (\d+)", head)
        return len(body.encode()) >= int(size[1]) if size else body.endswith("0\r\n\r\n")

    def goes(self) -> None:
        """Hangs up."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def gateway(
    folder: Path,
    *sources: Source,
    text_side: Any = None,
    models: Mapping[str, Sequence[Source]] | None = None,
    price: Mapping[str, str] | None = PRICE,
    model: Mapping[str, Any] | None = None,
    tenant: Mapping[str, Any] | None = None,
    key: Mapping[str, Any] | None = None,
    keys: Sequence[settings.Key] = (),
    tenants: Sequence[settings.Tenant] = (),
    provider: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    store: Callable[[settings.Config], Any] | None = None,
    rate_limits: RateLimits | None = None,
    mounts: Mapping[str, str] = MOUNTS,
) -> AsyncIterator[Gateway]:
    """Serve `MODEL` through `sources`, in order, to the key `SECRET` of the tenant acme.

    `models`: further ones. `price` is of all of them, `model`, `tenant`, `key` and `provider` are further
    settings; `key` None and no `tenant`: no key is needed. `store` opens another one than SQLite in `folder`.
    """
    made = _config(
        {**({MODEL: sources} if sources else {}), **(models or {})},
        price=price,
        model=model or {},
        tenant=tenant,
        key=key,
        keys=keys,
        tenants=tenants,
        provider=provider or {},
        mounts=mounts,
        fields={"server": settings.Server(log_format="json", **(server or {})), **(config or {})},
    )
    opened = await (store(made) if store else _open_sqlite(folder / "onward.db"))
    authority = Authority(made, opened, rate_limits or MemoryLimits(time.monotonic))
    await authority.start()
    admission = Admission(made, opened, authority.limits, lease=authority.new_lease())
    await admission.start()
    log_path = folder / "log"
    descriptor = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    writer = LogWriter(descriptor)
    providers = providers_of(made)
    built = _built(made, [*sources, *_all(models)], text_side, providers, writer, limits, admission, opened)
    # asyncio sends without delay on sockets of this protocol number alone, as a server has them
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    http = Server(built.app, built.limits, built.app.refuse)
    await http.start([listening])
    port = listening.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}"
    handler = MessageHandler(writer)
    try:
        with _logging_to(handler):
            async with httpx.AsyncClient(base_url=base_url, timeout=20, verify=False) as client:
                yield Gateway(
                    made, port, opened, authority.limits, admission, authority, built, http, log_path, client
                )
    finally:
        await http.drain(0)
        await admission.stop()
        for one in providers.values():
            await one.close()
        await authority.close()
        listening.close()
        writer.close()
        os.close(descriptor)


_EMPTY: list[bytes] = []
"""A new store as a file: making one takes as long as many requests."""


async def _open_sqlite(path: Path) -> FrailStore:
    if not _EMPTY:
        with tempfile.TemporaryDirectory() as folder:
            await (await FrailStore.open(Path(folder) / "new.db")).close()
            _EMPTY.append((Path(folder) / "new.db").read_bytes())
    if not path.exists():
        path.write_bytes(_EMPTY[0])
    return await FrailStore.open(path)


def _all(models: Mapping[str, Sequence[Source]] | None) -> list[Source]:
    return [source for sources in (models or {}).values() for source in sources]


@contextlib.contextmanager
def _logging_to(handler: MessageHandler):
    logger = logging.getLogger("onward")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def another_key(name: str, **fields: Any) -> settings.Key:
    """A key of the config whose secret is its name behind ``on-secret-``."""
    return settings.Key(name=name, sha256=digest_of(f"on-secret-{name}"), **fields)


def units(amount: str) -> int:
    return parse_amount(amount)


def cost(prompt: int, completion: int, cached: int = 0) -> int:
    """At `PRICE`."""
    return (prompt - cached) * 1000 + cached * 500 + completion * 2000


def data_of(text: str) -> list[Any]:
    """The events of a stream; ``[DONE]`` and what is no JSON as text."""
    found: list[Any] = []
    for line in text.splitlines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            found.append(json.loads(data) if data.startswith("{") else data)
    return found


def _headers(secret: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
    headers = {"content-type": "application/json", **(more or {})}
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    return {name: value for name, value in headers.items() if value}


def _config(
    models: Mapping[str, Sequence[Source]],
    *,
    price: Mapping[str, str] | None,
    model: Mapping[str, Any],
    tenant: Mapping[str, Any] | None,
    key: Mapping[str, Any] | None,
    keys: Sequence[settings.Key],
    tenants: Sequence[settings.Tenant],
    provider: Mapping[str, Any],
    mounts: Mapping[str, str],
    fields: Mapping[str, Any],
) -> settings.Config:
    made = settings.Config(dialects=dict(mounts), tenants=list(tenants), keys=list(keys), **fields)
    if tenant is not None:
        made.tenants.append(settings.Tenant(name="acme", **tenant))
    if key is not None or tenant is not None:
        made.keys.append(
            settings.Key(
                name="ci", sha256=digest_of(SECRET), tenant=None if tenant is None else "acme", **(key or {})
            )
        )
    number = 0
    for name, sources in models.items():
        deployments: list[settings.Deployment] = []
        for source in sources:
            number += 1
            if isinstance(source, ScriptedEngine):
                deployments.append(settings.Deployment(name=f"d{number}", engine="llama", source="scripted"))
                continue
            if isinstance(source, MockProvider):
                values = {"protocol": "openai", "base_url": source.base_url, **provider}
                chosen = settings.Provider(name=f"p{number}", **values)
            else:
                chosen = source
            if chosen not in made.providers:
                made.providers.append(chosen)
            deployments.append(settings.Deployment(name=f"d{number}", provider=chosen.name, model=UPSTREAM))
        made.models.append(
            settings.Model(
                id=name,
                price=None if price is None else settings.Price(**price),
                deployments=deployments,
                **model,
            )
        )
    return made


def _built(
    config: settings.Config,
    sources: Sequence[Source],
    text_side: Any,
    providers: Mapping[str, Any],
    writer: LogWriter,
    limits: Limits | None,
    admission: Admission,
    store: Store,
) -> Built:
    """As `wiring.build.build`, over engines that are scripted."""
    entries = []
    deployments: dict[str, list[Deployment]] = {}
    left = list(sources)
    for model in config.models:
        own = [left.pop(0) for _ in model.deployments]
        served = any(isinstance(source, ScriptedEngine) for source in own)
        entry = catalog_model(model, text_side if served else None, 0)
        entries.append(entry)
        deployments[model.id] = [
            _served(entry, text_side, source, one.name, None)
            if isinstance(source, ScriptedEngine)
            else _proxied(entry, config, providers, one)
            for one, source in zip(model.deployments, own, strict=True)
        ]
    models = Models(Catalog(entries), deployments)
    templates = {model.id: None for model in config.models}
    return assemble(config, models, templates, writer, limits, admission=admission, store=store)
