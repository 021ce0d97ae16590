"""On to the next deployment: when, in which order, and what is remembered of one that failed."""

import asyncio
import time
from pathlib import Path

import pytest

from onward.engines.protocol import EngineState, EngineStatus
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.routing.breaker import State
from onward.wiring import config as settings
from tests.conftest import RunningServer, free_port, start_server
from tests.http.gateway import MODEL, Gateway, cost, data_of, gateway, units
from tests.http.harness import until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

PAYS = {"balance": "10.00"}
MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
PRENTIS = "/prentis/v1/completions"
DOWN = Behaviour(status=500)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


class Clock:
    """The time that breakers go by."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def failover(folder: Path, *sources, failures: int = 2, **fields):
    """A gateway that knows every API, and whose deployments rest after two failures for half a minute."""
    routing = settings.Routing(breaker_failures=failures, breaker_open_s=30)
    return gateway(folder, *sources, mounts=MOUNTS, config={"routing": routing}, tenant=PAYS, **fields)


def clock_of(running: Gateway) -> Clock:
    clock = Clock()
    running.built.breakers._clock = clock
    return clock


def state_of(running: Gateway, deployment: str = "d1") -> State:
    return running.built.breakers.view(deployment).state


def provider(mock: MockProvider, **fields) -> settings.Provider:
    return settings.Provider(name=f"p{mock.port}", protocol="openai", base_url=mock.base_url, **fields)


async def class_of(running: Gateway, **body) -> str:
    """The class of the deployment that answered."""
    answer = await running.complete(path=PRENTIS, **body)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-provider-class"]


# Primary and fallback


@streamed
@pytest.mark.covers("P-7")
async def test_primary_is_the_first_of_the_config_whoever_is_asked_first(tmp_path, mock, other, stream):
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        assert await class_of(running, stream=stream) == "primary"
        mock.always(DOWN)
        assert [await class_of(running, stream=stream) for _ in range(3)] == ["fallback"] * 3
        assert len(mock.requests) == 3, "the third went straight to the second"
        mock.always(Behaviour())
        clock.now += 30
        assert await class_of(running, stream=stream) == "primary"
        entries = await running.ended(5)
        assert [[one.deployment for one in entry.attempts] for entry in entries] == [
            ["d1"],
            ["d1", "d2"],
            ["d1", "d2"],
            ["d2"],
            ["d1"],
        ]


@pytest.mark.covers("P-7")
async def test_the_only_one_that_has_the_route_is_still_no_primary(tmp_path, mock, other):
    chats = provider(mock, surfaces=["chat"])
    async with failover(tmp_path, chats, other) as running:
        assert await class_of(running) == "fallback"
        assert not mock.requests


# What is remembered


@streamed
@pytest.mark.parametrize(
    "behaviour",
    [DOWN, Behaviour(drop=True), Behaviour(html=True), Behaviour(status=429), Behaviour(status=401)],
    ids=["500", "drop", "page", "429", "our key"],
)
async def test_one_that_fails_is_passed_over_and_found_well_by_one_request(
    tmp_path, mock, other, stream, behaviour
):
    mock.always(behaviour)
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        for _ in range(5):
            assert (await running.complete(stream=stream)).status_code == 200
        assert (len(mock.requests), len(other.requests)) == (2, 5)
        mock.always(Behaviour(hold=0))
        clock.now += 30
        async with running.caller(stream=stream) as caller:
            await mock.comes(lambda: len(mock.requests) == 3)
            for _ in range(3):
                assert (await running.complete(stream=stream)).status_code == 200
            assert (len(mock.requests), len(other.requests)) == (3, 8)
            mock.let_go()
            assert "200 OK" in await caller.reads_all()
        mock.always(Behaviour())
        assert (await running.complete(stream=stream)).status_code == 200
        assert (len(mock.requests), len(other.requests)) == (4, 8)
        assert not running.built.breakers.troubled


@pytest.mark.complaint("G28")
@pytest.mark.parametrize(
    "where",
    [
        {"path": "/v1/completions"},
        {"path": PRENTIS},
        {"path": "/v1/messages", "messages": [{"role": "user", "content": "a word"}], "prompt": None},
    ],
    ids=["openai", "prentis", "translated"],
)
async def test_one_that_sends_nothing_but_comments_has_failed(tmp_path, mock, other, where):
    """Nothing was put out, so the next one is asked, and the second time it rests."""
    mock.always(Behaviour(hums=0))
    async with failover(tmp_path, provider(mock, first_byte_timeout_s=0.2), other) as running:
        for _ in range(3):
            answer = await running.complete(stream=True, **where)
            assert answer.status_code == 200
            assert answer.text.rstrip().endswith(("[DONE]", '{"type":"message_stop"}'))
            assert "keep-alive" not in answer.text
        assert (len(mock.requests), len(other.requests)) == (2, 3)
        assert state_of(running) is State.OPEN
        entries = await running.ended(3)
        assert [one.outcome for one in entries[0].attempts] == ["upstream_timeout", "ok"]


async def test_comments_between_events_are_waited_for_as_for_the_first(tmp_path, mock):
    """Longer than a silence, and not for ever."""
    slow = provider(mock, first_byte_timeout_s=1, idle_timeout_s=0.2)
    mock.always(Behaviour(hums=2))
    async with failover(tmp_path, slow) as running:
        began = time.monotonic()
        answer = await running.complete(path=PRENTIS, stream=True)
        assert 0.9 < time.monotonic() - began < 10
        [*pieces, error] = data_of(answer.text)
        assert len(pieces) == 2
        assert error["error"]["code"] == "PARTIAL_RESPONSE_TIMEOUT"


async def test_the_first_output_of_the_request_that_finds_out_is_enough(tmp_path, mock, other):
    mock.always(DOWN)
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        for _ in range(2):
            await running.complete()
        clock.now += 30
        mock.always(Behaviour(hold=3))
        async with running.caller(stream=True) as caller:
            await caller.reads(2)
            mock.always(Behaviour())
            assert (await running.complete()).status_code == 200
            assert len(mock.requests) == 4
            mock.let_go()
            assert "[DONE]" in await caller.reads_all()


@pytest.mark.parametrize("status", [429, 503])
async def test_it_rests_as_long_as_it_asks_to(tmp_path, mock, other, status: int):
    mock.always(Behaviour(status=status, retry_after="7"))
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        for _ in range(3):
            assert (await running.complete()).status_code == 200
        assert len(mock.requests) == 1
        clock.now += 7
        mock.always(Behaviour())
        assert (await running.complete()).status_code == 200
        assert (len(mock.requests), len(other.requests)) == (2, 3)


@pytest.mark.covers("K-7")
async def test_a_lone_provider_is_always_asked(tmp_path, mock):
    """Its own status and `Retry-After` come back, however long it should rest."""
    mock.always(Behaviour(status=429, retry_after="17"))
    async with failover(tmp_path, mock) as running:
        for count in range(1, 5):
            answer = await running.complete(path="/tokens/v1/completions")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "17")
            assert len(mock.requests) == count
        assert state_of(running) is State.OPEN
        mock.always(Behaviour())
        assert (await running.complete()).status_code == 200
        assert state_of(running) is State.CLOSED


async def test_where_all_rest_all_are_asked_in_order(tmp_path, mock, other):
    mock.always(DOWN)
    other.always(DOWN)
    async with failover(tmp_path, mock, other) as running:
        for _ in range(4):
            await running.refused(503, "upstream_unavailable")
        assert (len(mock.requests), len(other.requests)) == (4, 4)
        assert (state_of(running), state_of(running, "d2")) == (State.OPEN, State.OPEN)
        other.always(Behaviour())
        assert (await running.complete()).status_code == 200
        assert (len(mock.requests), len(other.requests)) == (5, 5)
        assert (state_of(running), state_of(running, "d2")) == (State.OPEN, State.CLOSED)


async def test_one_that_rests_is_asked_where_the_others_fail(tmp_path, mock, other):
    mock.always(DOWN)
    async with failover(tmp_path, mock, other) as running:
        for _ in range(2):
            await running.complete()
        other.say(DOWN)
        mock.always(Behaviour())
        assert await class_of(running) == "primary"
        [*_, entry] = await running.ended(3)
        assert [one.deployment for one in entry.attempts] == ["d2", "d1"]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_refusals_of_a_request_are_not_counted(tmp_path, mock, other, path: str, status: int):
    mock.always(Behaviour(status=status))
    async with failover(tmp_path, mock, other) as running:
        for _ in range(6):
            await running.complete(path=path)
        assert len(mock.requests) == 6
        assert not running.built.breakers.troubled


@streamed
async def test_callers_that_leave_are_not_counted(tmp_path, mock, other, stream):
    mock.always(Behaviour(hold=0))
    async with failover(tmp_path, mock, other) as running:
        for count in range(1, 5):
            async with running.caller(stream=stream) as caller:
                await mock.comes(lambda n=count: len(mock.requests) == n)
                caller.goes()
            await running.ended(count)
        assert not running.built.breakers.troubled
        assert not other.requests


async def test_a_request_that_finds_out_nothing_leaves_it_to_the_next(tmp_path, mock, other):
    mock.always(DOWN)
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        for _ in range(2):
            await running.complete()
        clock.now += 30
        mock.always(Behaviour(hold=0))
        async with running.caller() as caller:
            await mock.comes(lambda: len(mock.requests) == 3)
            caller.goes()
        await running.ended(3)
        mock.always(Behaviour())
        assert await class_of(running) == "primary"


async def test_metrics_and_the_log_tell_of_it(tmp_path, mock, other):
    mock.always(DOWN)
    async with failover(tmp_path, mock, other) as running:
        clock = clock_of(running)
        for _ in range(2):
            await running.complete()
        metrics = (await running.client.get("/metrics")).text
        assert 'onward_deployment_resting{deployment="d1"} 1.0' in metrics
        clock.now += 30
        mock.always(Behaviour())
        await running.complete()
        metrics = (await running.client.get("/metrics")).text
        assert 'onward_deployment_resting{deployment="d1"} 0.0' in metrics
        await running.logged("deployment=d1 rests for 30 s")


async def test_it_can_be_switched_off(tmp_path, mock, other):
    mock.always(Behaviour(status=429, retry_after="60"))
    routing = settings.Routing(breaker_failures=0, retry_after_most_s=0)
    async with gateway(tmp_path, mock, other, tenant=PAYS, config={"routing": routing}) as running:
        for _ in range(8):
            assert (await running.complete()).status_code == 200
        assert len(mock.requests) == 8


# Engines of ours


async def test_an_engine_that_is_not_up_is_passed_over(text_side, tmp_path, mock, monkeypatch):
    engine = ScriptedEngine([260] * 9)
    async with failover(tmp_path, engine, mock, text_side=text_side) as running:
        assert await class_of(running) == "primary"
        starting = EngineStatus(state=EngineState.STARTING)
        monkeypatch.setattr(engine, "status", lambda: starting)
        assert await class_of(running) == "fallback"
        [_, entry] = await running.ended(2)
        assert [one.deployment for one in entry.attempts] == ["d2"], "passed over is not tried"
        mock.always(DOWN)
        assert await class_of(running) == "primary", "nobody else can answer, and it is up by now"


@pytest.mark.parametrize(
    ("path", "code"),
    [("/v1/completions", "engine_starting"), (PRENTIS, "DEPLOYMENT_SCALING_UP")],
    ids=["openai", "prentis"],
)
async def test_an_engine_alone_says_that_it_starts(text_side, tmp_path, path: str, code: str):
    from onward.core.failure import Failure, FailureKind

    starting = Failure(FailureKind.ENGINE_STARTING, "The engine is starting. Try again in a moment.")
    engine = ScriptedEngine(lambda _: [starting])
    async with failover(tmp_path, engine, text_side=text_side) as running:
        for _ in range(3):
            answer = await running.complete(path=path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)
            assert int(answer.headers["retry-after"]) >= 1
        assert not running.built.breakers.troubled


# Time


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/completions", "upstream_timeout"),
        ("/tokens/v1/completions", "upstream_unreachable"),
        (PRENTIS, "PARTIAL_RESPONSE_TIMEOUT"),
    ],
    ids=["openai", "tokens", "prentis"],
)
async def test_silence_after_output_has_a_name_of_its_own(tmp_path, mock, other, path: str, code: str):
    slow = provider(mock, idle_timeout_s=0.1)
    async with failover(tmp_path, slow, other) as running:
        events = data_of((await running.complete(path=path, stream=True, prompt="[[stall=3]] x")).text)
        assert events[-1]["error"]["code"] == code
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["partial_response_timeout"]
        assert entry.outcome == "partial_response_timeout"
        assert (entry.charged, entry.estimated) == (cost(entry.usage.prompt_tokens, 3), True)
        assert not other.requests
        assert running.built.breakers.view("d1").failures == 1


@streamed
@pytest.mark.parametrize("order", ["[[never]]", "[[silent]]"])
async def test_silence_before_output_moves_on(tmp_path, mock, other, stream, order: str):
    slow = provider(mock, first_byte_timeout_s=0.1)
    async with failover(tmp_path, slow, other) as running:
        mock.always(Behaviour.parse(order))
        assert (await running.complete(stream=stream)).status_code == 200
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["upstream_timeout", "ok"]


async def test_a_whole_answer_that_stops_halfway_moves_on(tmp_path, mock, other):
    """Its caller has seen nothing of it."""
    slow = provider(mock, idle_timeout_s=0.1)
    async with failover(tmp_path, slow, other) as running:
        mock.always(Behaviour(stall=20))
        assert (await running.complete()).status_code == 200
        assert [one.outcome for one in (await running.entry()).attempts] == ["upstream_timeout", "ok"]


@streamed
async def test_nobody_is_asked_once_the_time_of_the_request_is_over(tmp_path, mock, other, stream):
    mock.always(Behaviour(never=True))
    async with failover(tmp_path, mock, other, limits=Limits(request_s=0.2)) as running:
        await running.refused(504, "deadline_exceeded", stream=stream)
        assert not other.requests
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["cut_off"]
        assert (entry.outcome, entry.charged) == ("deadline_exceeded", 0)


@streamed
async def test_nobody_is_asked_too_late_though_the_time_is_looked_at_late(tmp_path, mock, other, stream):
    mock.always(Behaviour(delay=0.15, status=500))
    async with failover(tmp_path, mock, other, limits=Limits(request_s=0.1)) as running:
        await running.refused(504, "deadline_exceeded", stream=stream)
        assert not other.requests
        entry = await running.entry()
        assert (entry.outcome, entry.charged, len(entry.attempts)) == ("deadline_exceeded", 0, 1)


async def test_the_time_of_a_request_is_for_all_of_its_tries(tmp_path, mock, other):
    """The first one takes most of it; the second has the rest alone."""
    mock.always(Behaviour(delay=0.15, status=500))
    other.always(Behaviour(never=True))
    async with failover(tmp_path, mock, other, limits=Limits(request_s=0.4)) as running:
        began = asyncio.get_running_loop().time()
        await running.refused(504, "deadline_exceeded")
        assert asyncio.get_running_loop().time() - began < 2
        assert [one.outcome for one in (await running.entry()).attempts] == [
            "upstream_unavailable",
            "cut_off",
        ]


# Several addresses


@streamed
async def test_an_address_that_is_gone_is_replaced_within_the_try(tmp_path, mock, stream):
    gone = f"http://127.0.0.1:{free_port()}/v1"
    several = settings.Provider(name="several", protocol="openai", base_urls=[gone, mock.base_url])
    async with failover(tmp_path, several) as running:
        for _ in range(6):
            assert (await running.complete(stream=stream)).status_code == 200
        entries = await running.ended(6)
        assert {tuple(one.outcome for one in entry.attempts) for entry in entries} == {("ok",)}
        assert not running.built.breakers.troubled, "the deployment as a whole is well"
        await running.logged("provider=several replica=1 rests for 30 s")
        assert await running.balance() == units("10.00") - 6 * cost(2, 5)


@streamed
async def test_a_replica_whose_answers_are_bad_rests(tmp_path, mock, other, stream):
    """A page instead of an answer, which comes fast: it is never busy, and would get every request."""
    mock.always(Behaviour(html=True))
    several = settings.Provider(name="several", protocol="openai", base_urls=[mock.base_url, other.base_url])
    async with failover(tmp_path, several, failures=3) as running:
        statuses = [(await running.complete(stream=stream)).status_code for _ in range(12)]
        assert statuses.count(503) == 3
        assert statuses[-6:] == [200] * 6
        assert state_of(running) is State.CLOSED


@pytest.mark.parametrize("status", [429, 503])
async def test_a_replica_that_asks_to_wait_rests_alone(tmp_path, mock, other, status: int):
    """The others go on; where all of them asked to wait the deployment rests."""
    mock.always(Behaviour(status=status, retry_after="7"))
    several = settings.Provider(name="several", protocol="openai", base_urls=[mock.base_url, other.base_url])
    with MockProvider() as standby:
        async with failover(tmp_path, several, provider(standby)) as running:
            classes = [await class_of(running) for _ in range(6)]
            assert (classes.count("fallback"), len(mock.requests)) == (1, 1)
            assert state_of(running) is State.CLOSED
            other.always(Behaviour(status=status, retry_after="9"))
            assert [await class_of(running) for _ in range(3)] == ["fallback"] * 3
            assert (len(mock.requests), len(other.requests)) == (1, 6)
            assert state_of(running) is State.OPEN


# A real sibling


async def test_a_server_that_is_killed_and_comes_back(tmp_path, mock, gguf):
    """Another Onward is the primary: its death is bridged, and its return is found out by one request."""
    (tmp_path / "their").mkdir()
    (tmp_path / "our").mkdir()
    port = free_port()
    real = settings.Provider(name="onward", protocol="openai", base_url=f"http://127.0.0.1:{port}/v1")
    model = {"default_max_tokens": 5}

    def serve() -> RunningServer:
        started = start_server(tmp_path / "their", "--port", str(port))
        return RunningServer(f"http://127.0.0.1:{port}", port, started.process, started.log)

    routing = settings.Routing(breaker_failures=2, breaker_open_s=0.3, breaker_open_most_s=0.3)
    config = {"routing": routing}
    server = serve()
    try:
        async with gateway(
            tmp_path / "our", real, mock, tenant=PAYS, config=config, mounts=MOUNTS, model=model
        ) as running:
            running.built.models._deployments[MODEL] = [
                deployment if deployment.deployment == "d2" else _named(deployment)
                for deployment in running.built.models._deployments[MODEL]
            ]
            await asyncio.to_thread(server.wait_ready)
            assert await class_of(running) == "primary"
            assert not mock.requests
            server.process.kill()
            await asyncio.to_thread(server.process.wait)
            classes = [await class_of(running, stream=n % 2 == 0) for n in range(8)]
            assert classes == ["fallback"] * 8
            assert len(mock.requests) == 8
            server = serve()
            await asyncio.to_thread(server.wait_ready)
            assert state_of(running) is not State.CLOSED

            async def back() -> bool:
                return await class_of(running) == "primary"

            async with asyncio.timeout(20):
                while not await back():
                    await asyncio.sleep(0.05)
            await until(lambda: not running.built.breakers.troubled)
            assert await class_of(running, stream=True) == "primary"
    finally:
        server.process.kill()
        await asyncio.to_thread(server.process.wait)


def _named(deployment):
    from dataclasses import replace

    return replace(deployment, upstream="smollm2-135m-instruct")
