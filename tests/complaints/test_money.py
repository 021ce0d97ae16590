"""G01, G03, G16, G23: what is spent, by whom, and by whom not."""

import asyncio

import pytest

from onward.admission.ledger import State
from tests.http.gateway import MODEL, Gateway, another_key, cost, gateway, units
from tests.http.harness import SlowEngine, until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

ONE_CALL = 5 * 2000 + (9 + 8) * 1000
"""What `complete` holds at the most: 5 tokens, and no more prompt than its bytes and its format."""


def in_money(amount: int) -> str:
    return f"{amount / 10**9:.9f}"


@pytest.mark.complaint("G01")
@pytest.mark.parametrize(
    ("tenant", "key", "code"),
    [
        ({"balance": in_money(ONE_CALL)}, {}, "insufficient_balance"),
        ({"monthly_budget": in_money(ONE_CALL)}, {}, "budget_exceeded"),
        ({}, {"monthly_cap": in_money(ONE_CALL)}, "budget_exceeded"),
    ],
    ids=["balance", "budget", "cap"],
)
async def test_g01_money_for_one_call_and_fifty_at_once(tmp_path, mock: MockProvider, tenant, key, code):
    mock.always(Behaviour(hold=0))
    async with gateway(tmp_path, mock, tenant=tenant, key=key) as running:
        calls = [asyncio.create_task(running.complete()) for _ in range(50)]
        await until(lambda: sum(call.done() for call in calls) == 49)
        mock.let_go()
        answers = [await call for call in calls]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) == 49
        assert {answer.json()["error"]["code"] for answer in refused} == {code}
        assert len(mock.requests) == 1
        entry = await running.entry()
        assert (entry.charged, entry.held) == (cost(2, 5), ONE_CALL)


@pytest.mark.complaint("G01")
async def test_g01_two_keys_of_one_balance(tmp_path, mock: MockProvider):
    """The balance is the tenant's, whichever of its keys asks."""
    mock.always(Behaviour(hold=0))
    second = another_key("second", tenant="acme")
    async with gateway(tmp_path, mock, tenant={"balance": in_money(ONE_CALL)}, keys=[second]) as running:
        async with running.caller() as caller:
            await mock.comes(lambda: bool(mock.requests))
            await running.refused(402, "insufficient_balance", secret="on-secret-second")
            mock.let_go()
            await caller.reads_all()
        assert len(mock.requests) == 1


@pytest.fixture
async def slow(tmp_path, mock: MockProvider):
    """A provider that sends five events and waits, and one model of ours that goes on for ever."""
    mock.always(Behaviour(hold=5, tokens=50))
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        yield running


@pytest.mark.complaint("G03")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions", "/v1/chat/completions"])
async def test_g03_a_caller_who_leaves_a_stream_is_billed(slow: Gateway, mock: MockProvider, path: str):
    body = {"messages": [{"role": "user", "content": "two words"}]} if "chat" in path else {}
    async with slow.caller(path=path, stream=True, max_tokens=50, **body) as caller:
        await caller.reads(4)
        caller.goes()
        entry = await slow.entry(within_s=5)
    assert (entry.state, entry.outcome, entry.estimated) == (State.SETTLED, "disconnected", True)
    assert entry.usage.completion_tokens >= 4
    assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens)
    assert await slow.balance() == units("1.00") - entry.charged
    await mock.comes(lambda: mock.requests[0].gone)
    await slow.idle()


@pytest.mark.complaint("G03")
@pytest.mark.parametrize("stream", [True, False])
async def test_g03_of_a_model_of_ours_every_token_is_billed(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "1.00"}) as running:
        async with running.caller(stream=stream, max_tokens=400) as caller:
            await until(lambda: engine.steps > 5)
            caller.goes()
            entry = await running.entry()
        assert (entry.state, entry.outcome, entry.estimated) == (State.SETTLED, "disconnected", False)
        assert 5 <= entry.usage.completion_tokens <= engine.steps
        assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens)
        assert await running.balance() == units("1.00") - entry.charged


@pytest.mark.complaint("G03")
async def test_g03_nothing_made_is_nothing_billed(tmp_path, mock: MockProvider):
    mock.always(Behaviour(never=True))
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        async with running.caller(stream=True) as caller:
            await mock.comes(lambda: bool(mock.requests))
            caller.goes()
            entry = await running.entry()
        assert (entry.state, entry.charged, entry.outcome) == (State.RELEASED, 0, "disconnected")
        await mock.comes(lambda: mock.requests[0].gone)


@pytest.mark.complaint("G03")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions", "/v1/messages"])
async def test_g03_a_whole_answer_that_nobody_waits_for_is_billed_as_estimated(
    tmp_path, mock: MockProvider, path: str
):
    """The provider makes it unseen: nobody learns how much, so it goes by time, and by what was asked for."""
    mock.always(Behaviour(never=True))
    body = {"messages": [{"role": "user", "content": "two words"}]} if path.endswith("messages") else {}
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        async with running.caller(path=path, max_tokens=3, **body) as caller:
            await mock.comes(lambda: bool(mock.requests))
            caller.goes()
            entry = await running.entry()
        assert (entry.state, entry.outcome, entry.estimated) == (State.SETTLED, "disconnected", True)
        assert 1 <= entry.usage.completion_tokens <= 3
        assert (
            0 < entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens) <= entry.held
        )
        assert await running.balance() == units("1.00") - entry.charged
        await mock.comes(lambda: mock.requests[0].gone)


@pytest.mark.complaint("G03")
async def test_g03_what_was_not_sent_is_not_billed(tmp_path, mock: MockProvider):
    """A request that waits for a connection when its caller leaves; one that was refused by then."""
    mock.always(Behaviour(never=True))
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}, provider={"connections": 1}) as running:
        async with running.caller() as first:
            await mock.comes(lambda: len(mock.requests) == 1)
            async with running.caller() as second:
                await until(lambda: len(list(running.admission.gate.running)) == 2)
                second.goes()
                await until(lambda: len(list(running.admission.gate.running)) == 1)
            [_, waited] = await running.entries()
            assert (waited.state, waited.charged) == (State.RELEASED, 0)
            first.goes()
            await running.ended(2)
        assert len(mock.requests) == 1


@pytest.mark.complaint("G16")
@pytest.mark.parametrize(
    ("tenant", "key", "status", "code"),
    [
        ({"balance": "0.000100"}, {}, 402, "insufficient_balance"),
        ({"monthly_budget": "0.000100"}, {}, 429, "budget_exceeded"),
        ({}, {"monthly_cap": "0.000100"}, 429, "budget_exceeded"),
        ({}, {"tokens_per_minute": 100}, 429, "rate_limit_exceeded"),
    ],
    ids=["balance", "budget", "cap", "tokens"],
)
async def test_g16_a_call_that_could_exceed_the_rest_is_refused_before(
    tmp_path, mock: MockProvider, tenant, key, status: int, code: str
):
    async with gateway(tmp_path, mock, tenant=tenant, key=key) as running:
        await running.refused(status, code, max_tokens=500)
        await running.refused(status, code, max_tokens=20, n=5)
        await running.refused(status, code, prompt="long " * 200)
        assert not mock.requests
        assert not await running.entries()
        assert (await running.complete(max_tokens=5)).status_code == 200


@pytest.mark.complaint("G16")
async def test_g16_tokens_are_given_back_by_what_was_used(tmp_path, mock: MockProvider):
    """Held while it runs, 5 of 80 after it."""
    async with gateway(tmp_path, mock, key={"tokens_per_minute": 120}) as running:
        for _ in range(3):
            assert (await running.complete(max_tokens=80)).status_code == 200
        await running.refused(429, "rate_limit_exceeded", max_tokens=110)


@pytest.mark.complaint("G23")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
@pytest.mark.parametrize(
    ("tenant", "key", "passes"),
    [
        ({"balance": "1.00"}, {}, False),
        ({"monthly_budget": "1.00"}, {}, False),
        ({}, {"monthly_cap": "1.00"}, False),
        ({}, {}, True),
    ],
    ids=["balance", "budget", "cap", "nothing"],
)
async def test_g23_a_model_without_a_price(tmp_path, mock: MockProvider, path, tenant, key, passes: bool):
    async with gateway(tmp_path, mock, price=None, tenant=tenant, key=key) as running:
        answer = await running.complete(path=path)
        if passes:
            assert answer.status_code == 200
            return
        assert (answer.status_code, answer.json()["error"]["code"]) == (402, "payment_required")
        assert not mock.requests
        assert not await running.entries()


@pytest.mark.complaint("G23")
@pytest.mark.parametrize("stream", [False, True])
async def test_g23_an_explicit_zero_is_free(tmp_path, mock: MockProvider, stream: bool):
    """With no money left as well."""
    async with gateway(
        tmp_path, mock, price={"input": "0", "output": "0"}, tenant={"balance": "0"}, key={"monthly_cap": "0"}
    ) as running:
        assert (await running.complete(max_tokens=None, stream=stream)).status_code == 200
        entry = await running.entry()
        assert (entry.held, entry.charged, entry.usage.completion_tokens) == (0, 0, 5)
        assert entry.model == MODEL
