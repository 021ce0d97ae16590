"""Reloading a server of several processes: by signal, by an operator, with real engines."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer
from tests.http.gateway import MODEL, UPSTREAM, digest_of
from tests.http.test_admin_commands import onward
from tests.http.test_gateway_processes import CONFIG, HEADERS, Reading, ledger, serving
from tests.http.test_processes import children, complete, named, running, until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
TOKEN = "an-admin-token-of-these-tests"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
EMBEDDED = """
[[models]]
id = "{id}"
context_length = {length}
  [[models.deployments]]
  name = "{name}"
  engine = "llama"
  source = "{source}"
  threads = 1
"""


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


def config_of(
    mock: MockProvider, *, workers: int, price: str = "1", balance: str = "1.00", secret: str = ""
) -> str:
    """The config that `serving` writes, but for what is changed."""
    return CONFIG.format(
        workers=workers,
        grace=10,
        balance=balance,
        upstream=mock.base_url,
        model=MODEL,
        name=UPSTREAM,
        digest=digest_of(secret or HEADERS["authorization"].partition(" ")[2]),
    ).replace('input = "1"', f'input = "{price}"')


def config_path(folder: Path) -> Path:
    [path] = folder.glob("*.toml")
    return path


async def versions(server: RunningServer, count: int = 12) -> set[str]:
    """What answers on fresh connections say: each worker gets some of them."""
    found: set[str] = set()
    for _ in range(count):
        async with httpx.AsyncClient(verify=False) as client:
            answer = await client.get(f"{server.base_url}/admin/v1/config", headers=ADMIN)
            found.add(answer.json()["version"])
    return found


async def logged(server: RunningServer, *words: str) -> str:
    async with asyncio.timeout(20):
        while not all(word in server.log.read_text() for word in words):
            await asyncio.sleep(0.05)
    return server.log.read_text()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_signal_and_an_operator_change_every_process(tmp_path, mock: MockProvider, workers: int):
    """With a bad file nothing changes and the log has every fault; a stream ends as it began."""
    mock.say(Behaviour(hold=2))
    async with serving(tmp_path, mock, workers=workers) as server, httpx.AsyncClient(timeout=20) as client:
        reading = Reading(server, client)
        await reading.has(2)
        [first] = await versions(server)
        path = config_path(tmp_path)
        path.write_text(config_of(mock, workers=5, price="cheap"))
        server.process.send_signal(signal.SIGHUP)
        text = await logged(server, "models[0].price.input", "server.workers", "stays in force")
        assert "restart" in text
        assert await versions(server) == {first}
        path.write_text(config_of(mock, workers=workers, price="2"))
        server.process.send_signal(signal.SIGHUP)
        await logged(server, f"changed models.{MODEL}")
        [second] = await versions(server)
        assert second != first
        path.write_text(config_of(mock, workers=workers, price="3"))
        told = await client.post(f"{server.base_url}/admin/v1/config/reload", headers=ADMIN)
        assert told.json()["previous_version"] == second, told.text
        assert await versions(server) == {told.json()["version"]}
        refused = path.read_text().replace("openai = ", "opena = ")
        path.write_text(refused)
        told = await client.post(f"{server.base_url}/admin/v1/config/reload", headers=ADMIN)
        assert (told.status_code, told.json()["error"]["faults"][0][:14]) == (400, "dialects.opena")
        mock.let_go()
        assert (await reading.ends())[-1] == "[DONE]"
        assert await asyncio.to_thread(server.stop) == 0


async def test_under_load_no_request_of_any_worker_fails_or_sees_a_mixture(tmp_path, mock: MockProvider):
    """Signals as fast as they are obeyed: what each request was charged is the price of its version."""
    async with serving(tmp_path, mock, workers=2, balance="900.00") as server:
        over = asyncio.Event()
        statuses: list[int] = []

        async def ask() -> None:
            body = {"model": MODEL, "prompt": "two words", "max_tokens": 5}
            async with httpx.AsyncClient(timeout=20, verify=False) as client:
                while not over.is_set():
                    answer = await client.post(
                        f"{server.base_url}/v1/completions", json=body, headers=HEADERS
                    )
                    statuses.append(answer.status_code)

        asking = [asyncio.create_task(ask()) for _ in range(6)]
        prices: dict[str, int] = {}
        for n in range(12):
            price = n % 3 + 1
            config_path(tmp_path).write_text(config_of(mock, workers=2, price=str(price), balance="900.00"))
            async with httpx.AsyncClient(timeout=20, verify=False) as client:
                told = await client.post(f"{server.base_url}/admin/v1/config/reload", headers=ADMIN)
            assert told.status_code == 200, told.text
            prices[told.json()["version"]] = price
            count = len(statuses)
            async with asyncio.timeout(20):
                while len(statuses) < count + 6:
                    await asyncio.sleep(0.005)
        over.set()
        await asyncio.gather(*asking)
        assert set(statuses) == {200}
        assert await asyncio.to_thread(server.stop) == 0
    entries, _ = await ledger(tmp_path)
    assert len(prices) == 3
    for entry in entries:
        assert entry.charged == 2 * 1000 * prices[entry.config_version] + 5 * 2000


async def test_a_worker_that_comes_later_has_the_new_config(tmp_path, mock: MockProvider):
    async with serving(tmp_path, mock, workers=2) as server, httpx.AsyncClient(timeout=20) as client:
        config_path(tmp_path).write_text(config_of(mock, workers=2, secret="on-another-secret"))
        server.process.send_signal(signal.SIGHUP)
        await logged(server, "changed keys.ci")
        for worker in named(server.process.pid, "onward.wiring.worker"):
            os.kill(worker, signal.SIGKILL)
        body = {"model": MODEL, "prompt": "two words", "max_tokens": 5}
        statuses: list[int] = []
        async with asyncio.timeout(30):
            while len(statuses) < 4:
                for headers in (HEADERS, {"authorization": "Bearer on-another-secret"}):
                    try:
                        answer = await client.post(
                            f"{server.base_url}/v1/completions", json=body, headers=headers
                        )
                    except httpx.TransportError:
                        await asyncio.sleep(0.05)
                    else:
                        statuses.append(answer.status_code)
        assert set(statuses) == {200, 401}


async def test_a_request_is_cancelled_through_any_worker(tmp_path, mock: MockProvider):
    """Over connections that come to either of them: the one that runs it learns of it within a second."""
    mock.always(Behaviour(never=True))
    async with serving(tmp_path, mock, workers=2) as server, httpx.AsyncClient(timeout=20) as client:
        body = {"model": MODEL, "prompt": "two words", "max_tokens": 5}
        url = f"{server.base_url}/v1/completions"
        calls = [asyncio.create_task(client.post(url, json=body, headers=HEADERS)) for _ in range(6)]
        await mock.comes(lambda: len(mock.requests) == 6)
        admin = f"{server.base_url}/admin/v1/requests"
        for one in (await client.get(admin, headers=ADMIN)).json()["data"]:
            async with httpx.AsyncClient(verify=False) as fresh:
                assert (await fresh.delete(f"{admin}/{one['request_id']}", headers=ADMIN)).status_code == 200
        async with asyncio.timeout(5):
            assert {(await call).status_code for call in calls} == {499}
        assert (await client.get(admin, headers=ADMIN)).json()["data"] == []
        told = await onward(tmp_path, "reload", "--url", server.base_url)
        assert told.startswith("config ")
        config_path(tmp_path).write_text("nothing = 1")
        with pytest.raises(AssertionError, match="nothing: is not a setting"):
            await onward(tmp_path, "reload", "--url", server.base_url)


@pytest.mark.parametrize("workers", [1, 2])
def test_engines_come_stay_and_go(gguf, tmp_path, workers: int):
    """One that stays keeps its process; a new one is waited for; one that is gone ends behind its last request."""
    server_part = f"[server]\nworkers = {workers}\n"
    kept = EMBEDDED.format(id="kept", name="one", source=gguf, length=256)
    other = EMBEDDED.format(id="other", name="two", source=gguf, length=256)
    with running(tmp_path, config=server_part + kept) as server:
        [first] = named(server.process.pid, "onward.engines.llama")
        config_path(tmp_path).write_text(server_part + kept + other)
        told = httpx.post(
            f"{server.base_url}/admin/v1/config/reload", headers=ADMIN, timeout=60, verify=False
        )
        assert told.json().get("added") == ["models.other"], told.text + server.log.read_text()
        until(lambda: len(named(server.process.pid, "onward.engines.llama")) == 2)
        assert httpx.get(f"{server.base_url}/readyz", verify=False).status_code == 200
        assert complete(server, model="kept").status_code == 200
        answer = complete(server, model="other")
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 503:
            assert answer.json()["error"]["code"] == "engine_starting"
        until(lambda: complete(server, model="other").status_code == 200)
        assert first in named(server.process.pid, "onward.engines.llama")
        long = {"model": "other", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with httpx.stream(
            "POST", f"{server.base_url}/v1/completions", json=long, timeout=60, verify=False
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            config_path(tmp_path).write_text(server_part + kept)
            told = httpx.post(
                f"{server.base_url}/admin/v1/config/reload", headers=ADMIN, timeout=60, verify=False
            )
            assert told.json()["removed"] == ["models.other"], told.text
            assert complete(server, model="other").status_code == 404
            assert [line for line in lines if line][-1] == "data: [DONE]"
        until(lambda: named(server.process.pid, "onward.engines.llama") == [first])
        assert complete(server, model="kept").status_code == 200
        left = children(server.process.pid)
        assert len(left) == (1 if workers == 1 else 3)
        assert server.stop() == 0


def test_an_engine_that_was_given_up_is_tried_again(gguf, tmp_path):
    """With the same config: what was wrong with its file may be put right."""
    kept = EMBEDDED.format(id="kept", name="one", source=gguf, length=256)
    file = tmp_path / "half.gguf"
    whole = Path(gguf).read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with running(tmp_path, config=kept) as server:
        other = EMBEDDED.format(id="other", name="two", source=file, length=256)
        config_path(tmp_path).write_text(kept + other)
        url = f"{server.base_url}/admin/v1/config/reload"
        assert httpx.post(url, headers=ADMIN, timeout=60, verify=False).json()["added"] == ["models.other"]
        until(lambda: complete(server, model="other").json().get("error", {}).get("code") == "engine_failed")
        file.write_bytes(whole)
        told = httpx.post(url, headers=ADMIN, timeout=60, verify=False).json()
        assert told["added"] == told["changed"] == []
        until(lambda: complete(server, model="other").status_code == 200)
        [one, _] = named(server.process.pid, "onward.engines.llama")
        shorter = EMBEDDED.format(id="kept", name="one", source=gguf, length=128)
        config_path(tmp_path).write_text(shorter)
        told = httpx.post(url, headers=ADMIN, timeout=60, verify=False).json()
        assert (told["changed"], told["removed"]) == (["models.kept"], ["models.other"])
        until(lambda: complete(server, model="kept").status_code == 200)
        until(lambda: len(named(server.process.pid, "onward.engines.llama")) == 1)
        assert named(server.process.pid, "onward.engines.llama") != [one]
        assert server.stop() == 0


async def test_a_real_engine_under_load_does_not_notice(gguf, tmp_path):
    """Reloads that leave it alone: nobody fails, and what it has cached stays cached."""
    server_part = "[server]\nworkers = 2\n"
    kept = EMBEDDED.format(id="kept", name="one", source=gguf, length=1024)
    with running(tmp_path, config=server_part + kept) as server:
        path = config_path(tmp_path)
        [engine] = named(server.process.pid, "onward.engines.llama")
        prompt = "The quick brown fox jumps over the lazy dog. " * 30
        over = asyncio.Event()
        answers: list[httpx.Response] = []

        async def ask() -> None:
            async with httpx.AsyncClient(timeout=60, verify=False) as client:
                while not over.is_set():
                    body = {"model": "kept", "prompt": prompt, "max_tokens": 2, "temperature": 0}
                    answers.append(await client.post(f"{server.base_url}/v1/completions", json=body))

        asking = [asyncio.create_task(ask()) for _ in range(3)]
        async with httpx.AsyncClient(timeout=60, verify=False) as client:
            for n in range(6):
                alias = f'aliases = ["alias-{n}"]\n  [[models.deployments]]'
                path.write_text(server_part + kept.replace("[[models.deployments]]", alias, 1))
                told = await client.post(f"{server.base_url}/admin/v1/config/reload", headers=ADMIN)
                assert told.json()["changed"] == ["models.kept"], told.text
                count = len(answers)
                async with asyncio.timeout(20):
                    while len(answers) < count + 3:
                        await asyncio.sleep(0.02)
        over.set()
        await asyncio.gather(*asking)
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1
        assert all(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers[3:])
        assert named(server.process.pid, "onward.engines.llama") == [engine]
        assert await asyncio.to_thread(server.stop) == 0


async def test_a_hang_up_without_a_file_ends_the_server(gguf, tmp_path, monkeypatch):
    """As it does to every program of a terminal."""
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what is ignored, as under nohup, is inherited
    try:
        with running(tmp_path) as server:
            server.process.send_signal(signal.SIGHUP)
            assert await asyncio.to_thread(server.process.wait, 20) != 0
    finally:
        signal.signal(signal.SIGHUP, before)
