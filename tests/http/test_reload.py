"""The config is read again while requests run: the whole of it is taken up, or nothing."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from onward.admission.ledger import Entry, State
from onward.admission.store import EntryQuery, Store
from onward.http.log import LogWriter
from onward.stores.down import down
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite import SqliteStore
from onward.wiring import config as settings
from onward.wiring import http_side
from onward.wiring.authority import Authority
from onward.wiring.engines import Engines
from onward.wiring.http_side import HttpSide
from onward.wiring.listen import ServeError
from onward.wiring.plan import Plan
from onward.wiring.reload import Alone, Reloads, Source
from tests.http.gateway import MODEL, SECRET, UPSTREAM, cost, data_of, digest_of, units
from tests.http.harness import until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"
CONFIG = """
[server]
log_format = "json"
[store]
url = "sqlite:onward.db"
[dialects]
{dialects}
[[providers]]
name = "up"
protocol = "openai"
base_url = "{upstream}"
{provider}
[[models]]
id = "{model}"
price = {{ input = "{price}", output = "2" }}
{about_model}
  [[models.deployments]]
  name = "bought"
  provider = "up"
  model = "{name}"
[[tenants]]
name = "acme"
balance = "1.00"
[[keys]]
name = "ci"
tenant = "acme"
sha256 = "{digest}"
{more}
"""


@dataclass
class Reloadable:
    """A server in the test's own process, with a config file that can be read again."""

    path: Path
    mock: MockProvider
    side: HttpSide
    reloads: Reloads
    store: Store
    log_path: Path
    client: httpx.AsyncClient = field(repr=False)

    def write(self, **changes: str) -> None:
        self.path.write_text(config_of(self.mock, **changes))

    async def reload(self) -> httpx.Response:
        return await self.client.post(
            "/admin/v1/config/reload", headers={"authorization": f"Bearer {TOKEN}"}, timeout=10
        )

    async def shown(self) -> dict:
        answer = await self.client.get("/admin/v1/config", headers={"authorization": f"Bearer {TOKEN}"})
        return answer.json()

    async def complete(self, *, path: str = "/v1/completions", secret: str = SECRET, **body):
        content = json.dumps({"model": MODEL, "prompt": "two words", "max_tokens": 5, **body})
        headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        return await self.client.post(path, content=content, headers=headers)

    async def entries(self) -> list[Entry]:
        page = await self.store.entries(EntryQuery(limit=1000))
        return page.entries[::-1]


def config_of(mock: MockProvider, **changes: str) -> str:
    parts = {
        "dialects": 'openai = "/v1"\nprentis = "/prentis/v1"',
        "upstream": mock.base_url,
        "provider": "",
        "model": MODEL,
        "price": "1",
        "about_model": "",
        "name": UPSTREAM,
        "digest": digest_of(SECRET),
        "more": "",
    }
    return CONFIG.format(**(parts | changes))


@contextlib.asynccontextmanager
async def reloadable(folder: Path, mock: MockProvider) -> AsyncIterator[Reloadable]:
    collected = gc.get_threshold()
    path = folder / "onward.toml"
    path.write_text(config_of(mock))
    config = settings.load(path)
    store = await SqliteStore.open(folder / "onward.db")
    authority = Authority(config, store, MemoryLimits(time.monotonic))
    await authority.start()
    log_path = folder / "log"
    descriptor = log_path.open("wb")
    writer = LogWriter(descriptor.fileno())
    engines = Engines(folder)
    engines.prepare(0, config, {}, {})
    plan = Plan(config=config, model_files={}, sockets={}, lease=authority.new_lease())
    found: list[Reloads] = []

    async def reload():
        from onward.http.admin.reload import ReloadRefused

        try:
            return await found[0].reload()
        except settings.ConfigError as error:
            raise ReloadRefused(error.faults) from None

    async def over(number: int) -> None:
        await found[0].over(number)

    side = HttpSide(plan, writer, store, authority.limits, over=over, reload=reload)
    source = Source(str(path), settings.Overrides())
    found.append(Reloads(source, plan, {}, engines=engines, authority=authority, processes=Alone(side)))
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    await side.start([listening])
    base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=base_url, timeout=20, verify=False) as client:
            yield Reloadable(path, mock, side, found[0], store, log_path, client)
    finally:
        hurry = asyncio.Event()
        hurry.set()
        await side.stop(hurry)
        await authority.close()
        listening.close()
        writer.close()
        descriptor.close()
        gc.unfreeze()
        gc.set_threshold(*collected)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def it(tmp_path, mock, monkeypatch):
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    async with reloadable(tmp_path, mock) as running:
        yield running


async def test_what_changed_is_in_force_and_told(it: Reloadable):
    before = (await it.complete()).headers
    it.write(
        price="3",
        about_model='aliases = ["another"]',
        dialects='openai = "/v1"\ntokens = "/tokens/v1"',
        more=f'[[keys]]\nname = "second"\nsha256 = "{digest_of("on-second-secret")}"',
    )
    told = await it.reload()
    assert told.status_code == 200, told.text
    shown = told.json()
    assert shown == {
        "version": shown["version"],
        "previous_version": shown["previous_version"],
        "added": ["dialects.tokens", "keys.second"],
        "removed": ["dialects.prentis"],
        "changed": [f"models.{MODEL}"],
    }
    assert shown["version"] != shown["previous_version"]
    assert (await it.shown())["version"] == shown["version"]
    assert (await it.complete(model="another")).status_code == 200
    assert (await it.complete(secret="on-second-secret")).status_code == 200
    assert (await it.complete(path="/tokens/v1/completions")).status_code == 200
    assert (await it.complete(path="/prentis/v1/completions")).status_code == 404
    first, *_, last = await it.entries()
    assert first.config_version == shown["previous_version"]
    assert last.config_version == shown["version"]
    assert (first.charged, last.charged) == (cost(2, 5), 2 * 3000 + 5 * 2000)
    assert before


@pytest.mark.covers("P-7")
async def test_nothing_to_change(it: Reloadable):
    told = (await it.reload()).json()
    assert told["version"] == told["previous_version"]
    assert told["added"] == told["removed"] == told["changed"] == []
    assert (await it.complete(path="/prentis/v1/completions")).headers["x-config-version"] == told["version"]


async def test_with_faults_nothing_changes_and_all_are_told(it: Reloadable):
    version = (await it.shown())["version"]
    it.write(
        price="cheap",
        provider="connect_timeout = 3",
        more='[[keys]]\nname = "x"\n[server2]\n[billing]\ncurrency = "EUR"',
    )
    it.path.write_text(
        it.path.read_text()
        .replace("[server]", "[server]\nport = 9\nworkers = 3")
        .replace("onward.db", "other.db")
    )
    told = await it.reload()
    assert told.status_code == 400
    error = told.json()["error"]
    places = [fault.partition(": ")[0] for fault in error["faults"]]
    assert sorted(places) == sorted(
        [
            "server2",
            "providers[0].connect_timeout",
            "models[0].price.input",
            "keys[1]",
            "server.port",
            "server.workers",
            "store.url",
            "billing.currency",
        ]
    )
    assert all(fault in error["message"] for fault in error["faults"])
    assert "restart" in error["faults"][-1]
    assert (await it.shown())["version"] == version
    assert (await it.complete()).status_code == 200
    it.path.write_text("not TOML")
    assert (await it.reload()).status_code == 400
    it.path.unlink()
    answer = await it.reload()
    assert (answer.status_code, "cannot be read" in answer.text) == (400, True)
    assert (await it.complete()).status_code == 200


async def test_a_running_request_ends_as_it_began(it: Reloadable):
    """Its price, its version, its provider's connections; its key may even be gone."""
    it.mock.say(Behaviour(hold=2), Behaviour())
    version = (await it.shown())["version"]
    async with it.client.stream(
        "POST",
        "/prentis/v1/completions",
        json={"model": MODEL, "prompt": "two words", "max_tokens": 5, "stream": True},
        headers={"authorization": f"Bearer {SECRET}"},
    ) as answer:
        await it.mock.comes(lambda: bool(it.mock.requests and it.mock.requests[0].sent == 2))
        it.write(price="100", digest=digest_of("on-other-secret"), provider="idle_timeout_s = 7")
        assert (await it.reload()).status_code == 200
        assert (await it.complete()).status_code == 401
        other = await it.complete(secret="on-other-secret", path="/prentis/v1/completions")
        assert other.status_code == 200
        assert other.headers["x-config-version"] != version
        assert len(it.side._live) == 2
        it.mock.let_go()
        text = (await answer.aread()).decode()
    assert data_of(text)[-1] == "[DONE]"
    assert answer.headers["x-config-version"] == version
    await until(lambda: len(it.side._live) == 1)
    old, new = sorted(await it.entries(), key=lambda entry: entry.charged)
    assert (old.config_version, old.charged, old.state) == (version, cost(2, 5), State.SETTLED)
    assert (new.config_version, new.charged) == (other.headers["x-config-version"], 2 * 100_000 + 5 * 2000)


async def test_what_did_not_change_stays(it: Reloadable):
    """Connections to a provider, what is known of a deployment's health, places under a limit."""
    await it.complete()
    [before] = it.side._live
    it.write(about_model='aliases = ["another"]')
    assert (await it.reload()).status_code == 200
    await it.complete()
    await until(lambda: len(it.side._live) == 1)
    [after] = it.side._live
    assert after is not before
    assert after.providers["up"] is before.providers["up"]
    assert {seen.connection for seen in it.mock.requests} == {0}
    it.write(provider="idle_timeout_s = 5")
    assert (await it.reload()).status_code == 200
    await it.complete()
    assert {seen.connection for seen in it.mock.requests} == {0, 1}


async def test_an_opening_balance_is_paid_in_once(it: Reloadable):
    tenant = '[[tenants]]\nname = "new"\nbalance = "5"\n'
    for more in (tenant, "", tenant.replace("5", "7")):
        it.write(more=more)
        assert (await it.reload()).status_code == 200
    balance, other = await it.store.money(["balance:new", "balance:acme"])
    assert (balance.credited, other.credited) == (units("5"), units("1"))


async def test_the_last_key_does_not_go_unnoticed(it: Reloadable):
    """A server that needs a key is not opened by a reload, be it by half a file; and one that others can
    reach says what it says at the start.
    """
    text = it.path.read_text()
    for left in ('[server]\nlog_format = "json"', text[: text.index("[[keys]]")]):
        it.path.write_text(left)
        told = await it.reload()
        assert told.status_code == 400
        assert told.json()["error"]["faults"][0].startswith("keys: ")
        assert (await it.complete(secret="on-nobody's")).status_code == 401
        assert (await it.complete()).status_code == 200
    it.path.write_text(text[: text.index("[[keys]]")].replace("[server]", "[server]\nno_auth = true"))
    assert (await it.reload()).status_code == 200
    assert (await it.complete(secret="on-nobody's")).status_code == 200
    it.reloads._plan.config.server.host = "192.0.2.1"
    it.path.write_text(
        text[: text.index("[[keys]]")].replace(
            "[server]", '[server]\nhost = "192.0.2.1"\nmax_connections = 99'
        )
    )
    told = await it.reload()
    assert told.status_code == 400
    assert "onward keys create" in told.text


async def test_a_file_that_is_being_written_is_waited_for(it: Reloadable):
    """Its first half is a config too: it must not be in force for a moment."""
    text = config_of(it.mock, more='[[keys]]\nname = "second"\nsha256 = "' + digest_of("on-second") + '"')
    half = text.index('[[keys]]\nname = "second"')
    before = (await it.shown())["version"]
    it.path.write_text(text[:half])
    reloading = asyncio.create_task(it.reload())
    await asyncio.sleep(0.05)
    it.path.write_text(text)
    told = (await reloading).json()
    assert told["previous_version"] == before
    assert told["added"] == ["keys.second"]


async def test_without_a_file_it_says_so(it: Reloadable):
    it.reloads._source = Source(None, settings.Overrides())
    told = await it.reload()
    assert told.status_code == 400
    assert "without a config file" in told.json()["error"]["faults"][0]


async def test_under_load_no_request_fails_and_none_sees_a_mixture(it: Reloadable):
    """Two configs, back and forth: each answer's version, provider, price and alias belong together."""
    with MockProvider() as other:
        kinds = {"red": it.mock, "blue": other}
        versions: dict[str, str] = {}

        async def turn(colour: str) -> None:
            it.path.write_text(
                config_of(
                    kinds[colour],
                    price={"red": "1", "blue": "3"}[colour],
                    about_model=f'aliases = ["{colour}"]',
                )
            )
            told = await it.reload()
            assert told.status_code == 200, told.text
            versions[told.json()["version"]] = colour

        await turn("blue")
        await turn("red")
        over = asyncio.Event()
        seen: list[str] = []

        async def ask(n: int) -> None:
            while not over.is_set():
                answer = await it.complete(path="/prentis/v1/completions", stream=bool(n % 2))
                assert answer.status_code == 200, answer.text
                seen.append(answer.headers["x-config-version"])

        asking = [asyncio.create_task(ask(n)) for n in range(8)]
        for n in range(10):
            await turn(("blue", "red")[n % 2])
            count = len(seen)
            await until(lambda: len(seen) > count + 8)  # noqa: B023
        over.set()
        await asyncio.gather(*asking)
        assert len(versions) == 2
        by_colour = {colour: [one for one in seen if versions[one] == colour] for colour in kinds}
        assert min(map(len, by_colour.values())) > 10
        assert {colour: len(mock.requests) for colour, mock in kinds.items()} == {
            colour: len(found) for colour, found in by_colour.items()
        }
        price = {"red": cost(2, 5), "blue": 2 * 3000 + 5 * 2000}
        for entry in await it.entries():
            assert entry.charged == price[versions[entry.config_version]]
        await until(lambda: len(it.side._live) == 1)


async def test_what_cannot_be_prepared_changes_nothing(it: Reloadable, monkeypatch):
    def unreadable(*_):
        raise ServeError("x.gguf cannot be served: it is no model")

    version = (await it.shown())["version"]
    it.write(price="7", more='[[tenants]]\nname = "new"\nbalance = "5"')
    with monkeypatch.context() as patched:
        patched.setattr(http_side, "read_text_sides", unreadable)
        told = await it.reload()
        assert (told.status_code, told.json()["error"]["faults"]) == (
            400,
            ["x.gguf cannot be served: it is no model"],
        )

        async def credit(*_, **__):
            raise down()

        patched.undo()
        patched.setattr(it.store, "credit", credit)
        assert (await it.reload()).status_code == 503
    assert (await it.shown())["version"] == version
    assert (await it.store.money(["balance:new"]))[0].credited == 0
    assert (await it.complete()).status_code == 200
    assert (await it.entries())[0].charged == cost(2, 5)
    assert (await it.reload()).json()["added"] == ["tenants.new"]
    assert len(it.side._live) == 1


async def test_the_log_has_every_fault_of_a_signal(it: Reloadable, caplog):
    caplog.set_level(logging.INFO, "onward")
    asked = asyncio.Event()
    listening = asyncio.create_task(it.reloads.on_signal(asked))
    it.write(price="cheap", provider="nothing = 1")
    asked.set()
    await until(lambda: "stays in force" in caplog.text)
    assert "config: models[0].price.input: " in caplog.text
    assert "config: providers[0].nothing: is not a setting" in caplog.text
    it.write(price="2")
    asked.set()
    await until(lambda: f"changed models.{MODEL}" in caplog.text)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
