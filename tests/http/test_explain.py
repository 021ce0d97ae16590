"""Where a request would go, and why: what operators are told, and that it is what happens."""

import asyncio
import json
import os
import sys

import pytest

from onward.engines.protocol import EngineState, EngineStatus
from onward.engines.scripted import ScriptedEngine
from onward.wiring import config as settings
from tests.conftest import free_port
from tests.http.gateway import MODEL, UPSTREAM, Gateway, gateway
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"
ROUTING = settings.Routing(breaker_failures=2, breaker_open_s=30)


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


async def explained(running: Gateway, model: str = MODEL) -> dict:
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = await running.client.get(f"/admin/v1/models/{model}/explain", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def route(told: dict, surface: str = "completions", dialect: str = "openai") -> dict:
    [found] = [one for one in told["routes"] if (one["surface"], one["dialect"]) == (surface, dialect)]
    return found


def asked(told: dict, surface: str = "completions") -> list[str]:
    return [one["deployment"] for one in route(told, surface)["asked"]]


async def test_all_is_well(tmp_path, mock, other):
    async with gateway(tmp_path, mock, other) as running:
        told = await explained(running)
        assert told["model"] == MODEL
        assert route(told)["asked"] == [
            {"deployment": "d1", "translated": None, "why": "healthy"},
            {"deployment": "d2", "translated": None, "why": "healthy"},
        ]
        assert [one["primary"] for one in told["deployments"]] == [True, False]
        assert told["deployments"][0]["breaker"]["state"] == "closed"
        assert not mock.requests, "nobody is asked for it"
        assert not other.requests


async def test_what_rests_comes_last_until_a_request_finds_it_well(tmp_path, mock, other):
    mock.always(Behaviour(status=500))
    clock = 1000.0
    async with gateway(tmp_path, mock, other, config={"routing": ROUTING}) as running:
        breakers = running.built.breakers
        breakers._clock = lambda: clock
        await running.complete()
        [first, _] = route(await explained(running))["asked"]
        assert first["why"].startswith("1 failure in a row, the last upstream_unavailable 0.")
        await running.complete()
        told = await explained(running)
        assert asked(told) == ["d2", "d1"]
        last = route(told)["asked"][1]
        assert last["why"].startswith("rests for 30.0 s more after 2 failures in a row, the last upstream_un")
        assert last["why"].endswith("asked only where no other can answer")
        assert told["deployments"][0]["breaker"] == {
            "state": "open",
            "failures": 2,
            "last_failure": "upstream_unavailable",
            "last_failure_s": 0,
            "probe_s": 30,
            "probing": False,
        }
        await running.complete()
        assert len(mock.requests) == 2, "and that is what happens"
        clock += 30
        told = await explained(running)
        assert asked(told) == ["d1", "d2"]
        assert route(told)["asked"][0]["why"].startswith("the next request finds out")
        mock.always(Behaviour(hold=0))
        async with running.caller() as caller:
            await mock.comes(lambda: len(mock.requests) == 3)
            told = await explained(running)
            assert asked(told) == ["d2", "d1"]
            assert told["deployments"][0]["breaker"]["probing"]
            mock.let_go()
            await caller.reads_all()
        assert route(await explained(running))["asked"][0]["why"] == "healthy"


async def test_who_has_no_such_route_and_whose_engine_is_not_up(text_side, tmp_path, mock, monkeypatch):
    engine = ScriptedEngine([260] * 9)
    chat_alone = settings.Provider(name="talks", protocol="openai", base_url=mock.base_url, surfaces=["chat"])
    mounts = {"openai": "/v1", "tinker": "/tinker/api/v1"}
    sources = (chat_alone, engine, mock)
    async with gateway(tmp_path, *sources, text_side=text_side, mounts=mounts) as running:
        told = await explained(running)
        assert asked(told, "chat") == ["d1", "d2", "d3"]
        assert asked(told) == ["d2", "d3"]
        assert route(told)["not_asked"] == [
            {"deployment": "d1", "why": "the provider talks has no completions"}
        ]
        tinker = route(told, "chat", "tinker")
        assert [one["deployment"] for one in tinker["asked"]] == ["d2"]
        assert tinker["not_asked"][0]["why"] == "tinker asks engines of ours alone"
        starting = EngineStatus(state=EngineState.STARTING, detail="loads")
        monkeypatch.setattr(engine, "status", lambda: starting)
        told = await explained(running)
        assert asked(told) == ["d3", "d2"]
        assert route(told)["asked"][1]["why"] == (
            "its engine is starting: asked only where no other can answer"
        )
        assert told["deployments"][1]["engine"] == {"state": "starting", "detail": "loads"}


async def test_what_is_translated_for_a_provider(tmp_path, mock):
    claude = settings.Provider(name="claude", protocol="anthropic", base_url=mock.base_url)
    async with gateway(tmp_path, mock, claude) as running:
        told = await explained(running)
        for surface, ways in (("messages", ["chat", None]), ("chat", [None, "messages"])):
            assert [one["translated"] for one in route(told, surface)["asked"]] == ways
        assert asked(told) == ["d1"]
        assert [one["deployment"] for one in route(told, "chat", "tokens")["asked"]] == ["d1"]
        for path, body in (
            ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ):
            assert (await running.post(path, body)).status_code == 200, "and that is what happens"
        assert [seen.path for seen in mock.requests] == ["/v1/chat/completions"] * 2


async def test_replicas_are_told_of_by_their_place(tmp_path, mock, other):
    urls = [f"http://127.0.0.1:{free_port()}/v1", mock.base_url, other.base_url]
    provider = settings.Provider(name="several", protocol="openai", base_urls=urls)
    async with gateway(tmp_path, provider, config={"routing": ROUTING}) as running:
        for _ in range(6):
            assert (await running.complete()).status_code == 200
        mock.always(Behaviour(hold=0))
        other.always(Behaviour(hold=0))
        async with running.caller() as caller:
            for _ in range(400):
                told = await explained(running)
                replicas = told["deployments"][0]["provider"]["replicas"]
                if sum(one["in_flight"] for one in replicas) == 1:
                    break
            assert [one["name"] for one in replicas] == ["1", "2", "3"]
            assert sum(one["in_flight"] for one in replicas) == 1
            assert replicas[0]["breaker"]["state"] == "open"
            assert replicas[1]["breaker"]["state"] == "closed"
            mock.let_go()
            other.let_go()
            await caller.reads_all()
        assert asked(told) == ["d1"]
        headers = {"authorization": f"Bearer {TOKEN}"}
        deployments = (await running.client.get("/admin/v1/deployments", headers=headers)).json()["data"]
        assert [one["name"] for one in deployments[0]["provider"]["replicas"]] == ["1", "2", "3"]


@pytest.mark.parametrize("secret", [None, "wrong"])
async def test_it_is_for_operators_alone(tmp_path, mock, secret: str | None):
    async with gateway(tmp_path, mock) as running:
        headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
        answer = await running.client.get(f"/admin/v1/models/{MODEL}/explain", headers=headers)
        assert answer.status_code == 401
        assert UPSTREAM not in answer.text


async def test_a_model_that_is_not_there(tmp_path, mock):
    async with gateway(tmp_path, mock) as running:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = await running.client.get("/admin/v1/models/none/such/explain", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def explain(running: Gateway, *options: str, token: str = TOKEN) -> tuple[int, str]:
    """What the command says, and its exit code."""
    command = [sys.executable, "-m", "onward.cli.main", "models", "explain", MODEL, *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--url",
        f"http://127.0.0.1:{running.port}/v1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "ONWARD_ADMIN_TOKEN": token, "ANOTHER": TOKEN},
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_the_command_says_it_in_words(tmp_path, mock, other):
    mock.always(Behaviour(status=500))
    urls = [other.base_url, other.base_url.replace("127.0.0.1", "localhost")]
    several = settings.Provider(name="several", protocol="openai", base_urls=urls)
    async with gateway(tmp_path, mock, several, config={"routing": ROUTING}) as running:
        await running.complete()
        await running.complete()
        answers = await asyncio.gather(
            explain(running),
            explain(running, "--json", "--admin-token-env", "ANOTHER", token=""),
            explain(running, token=""),
            explain(running, token="x" * 20),
        )
        assert [code for code, _ in answers] == [0, 0, 1, 1]
        words, as_json, unset, wrong = [said for _, said in answers]
        assert "completions (openai), chat (openai), " in words
        assert "\n  1. d2: healthy\n  2. d1: rests for " in words
        assert "replicas of several, for d2\n  1  closed, 0 in flight\n  2  closed, 0 in flight" in words
        assert json.loads(as_json)["model"] == MODEL
        assert "put the token that the server has in ONWARD_ADMIN_TOKEN into" in unset
        assert "This is not the admin token." in wrong
        assert UPSTREAM not in words + as_json
