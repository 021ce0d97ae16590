"""The gateway end to end: whatever becomes of a request, its money and its places come out even."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from onward.admission.ledger import State
from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.wiring.config import Tenant
from tests.http.gateway import another_key, cost, data_of, gateway, units
from tests.http.harness import SlowEngine, until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

PAYS = {"balance": "1.00"}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
FAILING = [Failure(FailureKind.ENGINE_FAILED, "The engine died. Try again.")]
FULL = [Failure(FailureKind.ENGINE_FULL, "Too many requests wait. Try again soon.")]


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


class HeldClock:
    """The time that admission goes by."""

    def __init__(self, *moment: int) -> None:
        self.now = datetime(*moment, tzinfo=UTC).timestamp()

    def unix(self) -> float:
        return self.now


# Several deployments


@streamed
@pytest.mark.parametrize("fails", [FAILING, FULL], ids=["failed", "full"])
async def test_a_provider_stands_by_a_model_of_ours(text_side, tmp_path, mock, stream: bool, fails):
    engine = ScriptedEngine(lambda _: fails)
    async with gateway(tmp_path, engine, mock, text_side=text_side, tenant=PAYS) as running:
        answer = await running.complete(stream=stream)
        assert answer.status_code == 200
        entry = await running.entry()
        assert [(one.deployment, one.status) for one in entry.attempts] == [("d1", None), ("d2", 200)]
        assert [one.outcome for one in entry.attempts] == [fails[0].kind.value, "ok"]
        assert (entry.charged, entry.usage) == (cost(2, 5), Usage(2, 5))


@streamed
@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(status=500), Behaviour(drop=True), Behaviour(status=429), Behaviour(html=True)],
    ids=["500", "drop", "429", "page"],
)
async def test_a_model_of_ours_stands_by_a_provider(text_side, tmp_path, mock, stream: bool, behaviour):
    mock.always(behaviour)
    engine = ScriptedEngine([260] * 9)
    async with gateway(tmp_path, mock, engine, text_side=text_side, tenant=PAYS) as running:
        answer = await running.complete(stream=stream, prompt=[1, 2, 3], max_tokens=4)
        assert answer.status_code == 200
        entry = await running.entry()
        assert [one.outcome == "ok" for one in entry.attempts] == [False, True]
        assert (entry.charged, entry.usage, entry.estimated) == (cost(3, 4), Usage(3, 4), False)


@streamed
async def test_all_fail(text_side, tmp_path, mock, stream: bool):
    mock.always(Behaviour(status=500))
    engine = ScriptedEngine(lambda _: FULL)
    async with gateway(tmp_path, mock, engine, text_side=text_side, tenant=PAYS) as running:
        await running.refused(503, "engine_full", stream=stream)
        entry = await running.entry()
        assert (entry.state, entry.outcome, len(entry.attempts)) == (State.RELEASED, "engine_full", 2)
        answer = await running.complete(path="/tokens/v1/completions", stream=stream)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
        assert await running.balance() == units("1.00")


async def test_after_output_nobody_else_is_asked(tmp_path, mock, other):
    mock.always(Behaviour(cut=2))
    async with gateway(tmp_path, mock, other, tenant=PAYS) as running:
        events = data_of((await running.complete(stream=True)).text)
        assert events[-1]["error"]["code"] == "upstream_unavailable"
        assert len((await running.entry()).attempts) == 1
        assert not other.requests


@streamed
async def test_openai_asks_nobody_else_where_the_request_is_at_fault(tmp_path, mock, other, stream: bool):
    mock.always(Behaviour(status=400))
    async with gateway(tmp_path, mock, other, tenant=PAYS) as running:
        await running.refused(400, "invalid_request", stream=stream)
        assert not other.requests


async def test_a_comment_does_not_commit_to_a_provider(tmp_path, mock, other):
    """The first is silent for long, so that the caller has its header; then it fails."""
    mock.always(Behaviour(hold=0, cut=0))
    async with gateway(tmp_path, mock, other, tenant=PAYS, limits=Limits(silence_s=0.02)) as running:
        async with running.caller(stream=True) as caller:
            await caller.reads(1, ": keep-alive")
            mock.let_go()
            text = await caller.reads_all()
        assert "data: [DONE]" in text
        assert [one.outcome for one in (await running.entry()).attempts] == ["upstream_unavailable", "ok"]


async def test_what_one_cannot_take_another_does(text_side, tmp_path, mock):
    """A prompt that is too long for ours goes to the provider; one that it would refuse is not sent twice."""
    engine = ScriptedEngine([260] * 9)
    async with gateway(tmp_path, engine, mock, text_side=text_side, tenant={"balance": "100"}) as running:
        assert (await running.complete(prompt=[5] * 10_000)).status_code == 200
        assert (len(engine.requests), len(mock.requests)) == (0, 1)
        assert [one.deployment for one in (await running.entry()).attempts] == ["d2"]


# Months, caps, budgets


async def test_a_request_is_of_the_month_that_it_began_in(tmp_path, mock):
    """Also where it ends in the next one; in which the whole budget is there again."""
    clock = HeldClock(2026, 11, 30, 23, 59, 59)
    budget = {"monthly_budget": "0.000050"}
    async with gateway(tmp_path, mock, tenant=budget, key={"monthly_cap": "0.000050"}) as running:
        running.admission.gate._clock = clock
        mock.say(Behaviour(hold=0, counts="2/20"))
        async with running.caller() as caller:
            await mock.comes(lambda: bool(mock.requests))
            clock.now += 2
            mock.let_go()
            await caller.reads_all()
        names = [f"{who}:2026-{month}" for who in ("tenant:acme", "key:ci") for month in (11, 12)]
        spent = {money.id: (money.spent, money.held) for money in await running.store.money(names)}
        november = (cost(2, 20), 0)
        assert spent == {name: november if name.endswith("11") else (0, 0) for name in names}
        assert (await running.complete()).status_code == 200
        clock.now -= 2
        await running.refused(429, "budget_exceeded", max_tokens=10)


@pytest.mark.parametrize(
    ("tenant", "key"),
    [({"monthly_budget": "0.000060"}, {}), ({}, {"monthly_cap": "0.000060"})],
    ids=["budget", "cap"],
)
async def test_a_month_carries_what_it_carries(tmp_path, mock, tenant, key):
    async with gateway(tmp_path, mock, tenant=tenant, key=key) as running:
        passed = 0
        while (await running.complete()).status_code == 200:
            passed += 1
        entries = await running.ended(passed)
        assert sum(entry.charged for entry in entries) <= units("0.00006")
        assert passed == 1 + (60_000 - 27_000) // cost(2, 5)
        await running.refused(429, "budget_exceeded")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("field", ["max_completion_tokens", "max_tokens"])
async def test_openai_caps_what_has_no_limit_where_money_is_counted(tmp_path, mock, path: str, field: str):
    """So that no more is spent than is held. Where none is counted nothing is added."""
    body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
    second = another_key("uncounted")
    provider = {"limit_field": field}
    async with gateway(tmp_path, mock, tenant={"balance": "1"}, keys=[second], provider=provider) as running:
        assert (await running.post(path, body)).status_code == 200
        assert (await running.post(path, body, secret="on-secret-uncounted")).status_code == 200
        capped, free = [seen.json for seen in mock.requests]
        name = field if "chat" in path else "max_tokens"
        assert capped == {**free, name: 8192}
        assert not {"max_tokens", "max_completion_tokens"} & set(free)


# Who may


@pytest.mark.parametrize(
    ("status", "shown", "code"), [("suspended", 403, "tenant_suspended"), ("unpaid", 402, "payment_required")]
)
async def test_tenants_that_are_not_served(tmp_path, mock, status: str, shown: int, code: str):
    tenants = [Tenant(name="they", status=status)]
    keys = [another_key("they", tenant="they")]
    async with gateway(tmp_path, mock, key={}, tenants=tenants, keys=keys) as running:
        for path in ("/v1/completions", "/tokens/v1/completions"):
            await running.refused(shown, code, path=path, secret="on-secret-they")
        assert not mock.requests


async def test_a_model_whose_terms_must_be_accepted(tmp_path, mock):
    keys = [another_key("others", tenant="others"), another_key("nobodys")]
    tenants = [Tenant(name="others")]
    accepts = {**PAYS, "agreements": ["org/model"]}
    async with gateway(
        tmp_path, mock, model={"agreement": True}, tenant=accepts, tenants=tenants, keys=keys
    ) as running:
        assert (await running.complete()).status_code == 200
        for secret in ("on-secret-others", "on-secret-nobodys"):
            await running.refused(403, "agreement_required", secret=secret)
        assert len(mock.requests) == 1


# A store that is down


@streamed
async def test_a_store_that_is_down_lets_nothing_pass(tmp_path, mock, stream: bool):
    async with gateway(tmp_path, mock, tenant=PAYS, key={"concurrency": 1}) as running:
        running.store.broken = True
        for _ in range(3):
            await running.refused(503, "store_down", stream=stream)
        assert not mock.requests
        running.store.broken = False
        assert (await running.complete(stream=stream)).status_code == 200
        await running.idle()
        assert [entry.charged for entry in await running.entries()] == [cost(2, 5)]


async def test_a_store_that_goes_down_while_a_stream_runs(tmp_path, mock):
    """It ends with an error; what was seen is charged once the store is back."""
    mock.say(Behaviour(hold=5))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller(stream=True) as caller:
            await caller.reads(5)
            running.store.broken = True
            mock.let_go()
            events = data_of(await caller.reads_all())
        assert events[-1]["error"]["code"] == "store_down"
        assert "[DONE]" not in caller.text
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == " w0 w1 w2 w3 w4"
        running.store.broken = False
        [entry] = await running.entries()
        assert entry.state is State.HELD
        await running.idle()
        entry = await running.entry()
        assert (entry.state, entry.charged, entry.estimated) == (State.SETTLED, cost(2, 5), False)
        assert await running.balance() == units("1.00") - entry.charged


async def test_a_store_that_goes_down_before_a_whole_answer(tmp_path, mock):
    """Its caller gets 503 and nothing else, so nothing is charged."""
    mock.say(Behaviour(hold=0))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller() as caller:
            await mock.comes(lambda: bool(mock.requests))
            running.store.broken = True
            mock.let_go()
            text = await caller.reads_all()
        assert text.startswith("HTTP/1.1 503")
        assert "w0" not in text
        running.store.broken = False
        await running.idle()
        entry = await running.entry()
        assert (entry.state, entry.charged, entry.outcome) == (State.RELEASED, 0, "store_down")


async def test_a_gateway_is_not_ready_whose_store_is_down(tmp_path, mock):
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        assert (await running.client.get("/readyz")).status_code == 200
        running.admission.keys.available = False
        answer = await running.client.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "the store does not answer" in answer.text


# Places


ENDS: dict[str, dict[str, Any]] = {
    "answered": {},
    "streamed": {"stream": True},
    "refused by us": {"n": 0},
    "refused for money": {"max_tokens": 10**8},
    "refused there": {"prompt": "[[status=400]]"},
    "failed there": {"prompt": "[[status=500]]", "stream": True},
    "dropped": {"prompt": "[[drop]]"},
    "cut": {"prompt": "[[cut=2]]", "stream": True},
    "no answer in time": {"prompt": "[[never]]"},
    "silent": {"prompt": "[[stall=2]]", "stream": True},
    "half": {"prompt": "[[broken_json]]"},
    "unknown model": {"model": "org/none"},
}


@pytest.mark.covers("K-11")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_place_is_free_however_a_request_ends(tmp_path, mock, path: str, end: str):
    times = {"first_byte_timeout_s": 0.25, "idle_timeout_s": 0.25}
    async with gateway(tmp_path, mock, tenant=PAYS, key={"concurrency": 1}, provider=times) as running:
        for _ in range(2):
            answer = await running.complete(path=path, **ENDS[end])
            assert answer.status_code != 429
            assert running.places() == 0
        assert (await running.complete(path=path)).status_code == 200
        await running.idle()


@pytest.mark.covers("K-11")
@streamed
@pytest.mark.parametrize("when", ["waiting", "answering"])
async def test_a_place_is_free_when_its_caller_leaves(tmp_path, mock, stream: bool, when: str):
    mock.say(Behaviour(never=True) if when == "waiting" else Behaviour(stall=2))
    async with gateway(tmp_path, mock, tenant=PAYS, key={"concurrency": 1}) as running:
        async with running.caller(stream=stream) as caller:
            await mock.comes(lambda: bool(mock.requests))
            if stream and when == "answering":
                await caller.reads(2)
            await running.refused(429, "rate_limit_exceeded")
            caller.goes()
            await running.entry()
        assert running.places() == 0
        assert (await running.complete()).status_code == 200


@pytest.mark.covers("K-11")
@streamed
async def test_a_place_is_free_when_time_is_over(tmp_path, mock, stream: bool):
    mock.say(Behaviour(stall=2))
    limits = Limits(request_s=0.5)
    async with gateway(tmp_path, mock, tenant=PAYS, key={"concurrency": 1}, limits=limits) as running:
        answer = await running.complete(stream=stream)
        if stream:
            assert data_of(answer.text)[-1]["error"]["code"] == "deadline_exceeded"
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        entry = await running.entry()
        assert entry.outcome == "deadline_exceeded"
        assert (entry.state, entry.charged > 0) == (State.SETTLED if stream else State.RELEASED, stream)
        assert running.places() == 0


@pytest.mark.covers("K-11")
@streamed
async def test_a_place_is_free_when_the_server_ends(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with gateway(tmp_path, engine, text_side=text_side, tenant=PAYS, key={"concurrency": 1}) as running:
        async with running.caller(stream=stream, max_tokens=1000) as caller:
            await until(lambda: engine.steps > 2)
            await running.http.drain(0)
            await caller.reads_all()
        assert running.places() == 0
        entry = await running.entry()
        assert (entry.state, entry.charged) == (State.RELEASED, 0)


# All at once


async def test_a_storm_comes_out_even(tmp_path, mock, other):
    """Requests of every sort at once, callers that leave at any moment: each admitted one is one entry
    that has ended, and the balance is what was credited less what they were charged.
    """
    dice = random.Random(5)
    ways = ["", "[[cut=2]]", "[[status=500]]", "[[status=400]]", "[[usage=never]]", "[[drop]]", "[[html]]"]
    ways += [
        "[[stall=1]]",
        "[[delay=0.05]]",
        "[[counts=5/900]]",
        "[[error_event=1]]",
        "[[drip]]",
        "[[reset]]",
    ]
    times = {"first_byte_timeout_s": 0.3, "idle_timeout_s": 0.3}
    key = {"concurrency": 40, "requests_per_minute": 300}
    async with gateway(tmp_path, mock, other, tenant={"balance": "0.02"}, key=key, provider=times) as running:

        async def one(number: int) -> None:
            path = dice.choice(["/v1/completions", "/tokens/v1/completions"])
            body = {"prompt": dice.choice(ways), "stream": dice.random() < 0.6, "n": dice.randint(1, 3)}
            await asyncio.sleep(dice.random() * 0.5)
            async with running.caller(path=path, **body) as caller:
                if dice.random() < 0.4:
                    await asyncio.sleep(dice.random() * 0.2)
                    caller.goes()
                else:
                    await caller.reads_all()

        await asyncio.gather(*[one(number) for number in range(250)])
        await running.idle()
        entries = await running.entries()
        assert len({entry.request_id for entry in entries}) == len(entries) > 50
        assert {entry.state for entry in entries} == {State.SETTLED, State.RELEASED}
        assert all(entry.charged <= entry.held or entry.overdraft for entry in entries)
        assert all(entry.attempts for entry in entries if entry.outcome != "disconnected")
        assert await running.balance() == units("0.02") - sum(entry.charged for entry in entries)


async def test_a_storm_over_a_store_that_comes_and_goes(text_side, tmp_path, mock):
    """What was admitted ends once, and nothing stays held."""
    dice = random.Random(7)
    engine = SlowEngine(260, 0.002)
    models = {"org/ours": [engine]}
    async with gateway(
        tmp_path, mock, models=models, text_side=text_side, tenant={"balance": "1"}, key={"concurrency": 60}
    ) as running:
        flapping = True

        async def flap() -> None:
            while flapping:
                running.store.broken = dice.random() < 0.4
                await asyncio.sleep(dice.random() * 0.03)
            running.store.broken = False

        async def one(number: int) -> None:
            await asyncio.sleep(dice.random() * 0.6)
            body = {"model": dice.choice(["org/ours", "org/model"]), "prompt": dice.choice(["", "[[cut=2]]"])}
            async with running.caller(**body, stream=dice.random() < 0.6, max_tokens=12) as caller:
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.random() * 0.05)
                    caller.goes()
                else:
                    await caller.reads_all()

        flaps = asyncio.create_task(flap())
        await asyncio.gather(*[one(number) for number in range(120)])
        flapping = False
        await flaps
        await running.idle()
        entries = await running.entries()
        assert {entry.state for entry in entries} == {State.SETTLED, State.RELEASED}
        assert "ok" in {entry.outcome for entry in entries}
        assert all(entry.charged <= entry.held for entry in entries)
        assert await running.balance() == units("1") - sum(entry.charged for entry in entries)


async def test_a_disconnect_at_any_moment_is_one_entry(tmp_path, mock):
    """From before the first byte to behind the last."""
    mock.always(Behaviour(pause=0.004))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        for number in range(24):
            async with running.caller(stream=True) as caller:
                await asyncio.sleep(number * 0.003)
                caller.goes()
        await running.idle()
        entries = await running.entries()
        assert all(entry.charged == 0 or entry.usage.completion_tokens for entry in entries)
        assert await running.balance() == units("1.00") - sum(entry.charged for entry in entries)


async def test_a_caller_who_sends_no_more_is_still_there(tmp_path, mock):
    """It closed its half of the connection: at worst a comment shows that we looked."""
    mock.say(Behaviour(hold=3))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller(stream=True) as caller:
            await caller.reads(3)
            caller.writer.write_eof()
            await caller.reads(1, ": keep-alive")
            mock.let_go()
            text = await caller.reads_all()
        assert data_of(text)[-1] == "[DONE]"
        entry = await running.entry()
        assert (entry.outcome, entry.charged) == ("ok", cost(2, 5))


async def test_a_caller_who_leaves_behind_the_last_byte_pays_all(tmp_path, mock):
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller(stream=True) as caller:
            await caller.reads_all()
            caller.goes()
        entry = await running.entry()
        assert (entry.outcome, entry.charged) == ("ok", cost(2, 5))


async def test_a_running_gateway_is_seen_from_outside(tmp_path, mock: MockProvider, monkeypatch):
    """What runs, with what it holds."""
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", "an-admin-token-of-these-tests")
    headers = {"authorization": "Bearer an-admin-token-of-these-tests"}
    mock.say(Behaviour(hold=2))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller(stream=True) as caller:
            await caller.reads(2)
            shown = (await running.client.get("/admin/v1/requests", headers=headers)).json()["data"]
            assert [(one["key"], one["tenant"], one["model"]) for one in shown] == [
                ("ci", "acme", "org/model")
            ]
            mock.let_go()
            await caller.reads_all()
        assert (await running.client.get("/admin/v1/requests", headers=headers)).json()["data"] == []
