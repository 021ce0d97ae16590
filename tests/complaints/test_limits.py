"""G14, G15, G17: limits that count what passes, everywhere at once, and say when to come back."""

import asyncio
import secrets

import pytest

from onward.stores.redis import RedisLimits
from tests.contract.limits import REDIS, clear
from tests.http.gateway import SECRET, gateway
from tests.http.harness import SlowEngine
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

CALLS = 40


@pytest.mark.complaint("G14")
async def test_g14_calls_that_are_refused_cost_no_quota(tmp_path, mock: MockProvider):
    tenant = {"balance": "0.001000"}
    async with gateway(tmp_path, mock, tenant=tenant, key={"requests_per_minute": 1}) as running:
        for _ in range(3):
            await running.refused(400, "invalid_request", n=0)
            await running.refused(404, "model_not_found", model="org/none")
            await running.refused(402, "insufficient_balance", max_tokens=500)
            await running.refused(401, "invalid_api_key", secret="on-some-other-key-of-nobody")
            mock.say(Behaviour(status=400))
            await running.refused(400, "invalid_request")
            mock.say(Behaviour(drop=True))
            await running.refused(503, "upstream_unavailable")
        assert (await running.complete()).status_code == 200
        await running.refused(429, "rate_limit_exceeded")


@pytest.mark.complaint("G15")
async def test_g15_gateways_on_one_redis_share_their_limits(tmp_path, mock: MockProvider):
    prefix = f"onward:test:{secrets.token_hex(8)}:"
    await clear(REDIS, prefix)
    key = {"requests_per_minute": 10, "concurrency": 100}
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    shared = [RedisLimits(REDIS, prefix=prefix) for _ in folders]
    try:
        async with (
            gateway(folders[0], mock, key=key, rate_limits=shared[0]) as one,
            gateway(folders[1], mock, key=key, rate_limits=shared[1]) as two,
        ):
            answers = await asyncio.gather(*[(one, two)[n % 2].complete() for n in range(CALLS)])
            passed = [answer for answer in answers if answer.status_code == 200]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert (len(passed), len(refused)) == (10, CALLS - 10)
            assert len(mock.requests) == 10
            assert all(1 <= int(answer.headers["retry-after"]) <= 61 for answer in refused)
    finally:
        await clear(REDIS, prefix)


@pytest.mark.complaint("G15")
async def test_g15_concurrency_on_one_redis(tmp_path, mock: MockProvider):
    mock.always(Behaviour(hold=0))
    prefix = f"onward:test:{secrets.token_hex(8)}:"
    await clear(REDIS, prefix)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    shared = [RedisLimits(REDIS, prefix=prefix) for _ in folders]
    try:
        async with (
            gateway(folders[0], mock, key={"concurrency": 1}, rate_limits=shared[0]) as one,
            gateway(folders[1], mock, key={"concurrency": 1}, rate_limits=shared[1]) as two,
        ):
            async with one.caller(stream=True) as caller:
                await mock.comes(lambda: bool(mock.requests))
                await two.refused(429, "rate_limit_exceeded")
                caller.goes()
                await one.entry()
            mock.let_go()
            async with asyncio.timeout(5):
                while (await two.complete()).status_code == 429:
                    await asyncio.sleep(0.01)
    finally:
        await clear(REDIS, prefix)


def has_retry_after(answer, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["retry-after"].isdecimal()
    assert 1 <= int(answer.headers["retry-after"]) <= 24 * 3600


@pytest.mark.complaint("G17")
@pytest.mark.parametrize(
    "key",
    [{"requests_per_minute": 1}, {"tokens_per_minute": 25}, {"monthly_cap": "0.00003"}],
    ids=["requests", "tokens", "money"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_g17_limits_say_when_to_come_back(tmp_path, mock: MockProvider, key: dict, stream: bool):
    async with gateway(tmp_path, mock, key=key) as running:
        assert (await running.complete()).status_code == 200
        mock.always(Behaviour(counts="2/5"))
        for _ in range(3):
            answer = await running.complete(stream=stream, max_tokens=20)
        has_retry_after(answer, 429)


@pytest.mark.complaint("G17")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("sent", [None, "0.5", "x", "-1", "1" * 40])
async def test_g17_providers_that_do_not(tmp_path, mock: MockProvider, path: str, status: int, sent):
    mock.always(Behaviour(status=status, retry_after=sent))
    async with gateway(tmp_path, mock, key={}) as running:
        has_retry_after(await running.complete(path=path), status)


@pytest.mark.complaint("G17")
@pytest.mark.parametrize("stream", [False, True])
async def test_g17_a_full_provider_is_passed_over(tmp_path, mock, other, stream: bool):
    mock.always(Behaviour(status=429))
    async with gateway(tmp_path, mock, other, key={}) as running:
        assert (await running.complete(stream=stream)).status_code == 200
        other.always(Behaviour(status=429))
        has_retry_after(await running.complete(stream=stream), 429)


@pytest.mark.complaint("G17")
async def test_g17_our_own_503s(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, key={"concurrency": 5}) as running:
        running.store.broken = True
        has_retry_after(await running.complete(), 503)
        running.store.broken = False
        running.built.lifecycle.draining = True
        has_retry_after(await running.client.get("/readyz"), 503)


@pytest.mark.complaint("G17")
async def test_g17_concurrency(text_side, tmp_path):
    engine = SlowEngine(260)
    async with gateway(tmp_path, engine, text_side=text_side, key={"concurrency": 1}) as running:
        async with running.caller(max_tokens=500) as caller:
            await engine.entered.wait()
            has_retry_after(await running.complete(secret=SECRET), 429)
            caller.goes()
            await running.entry()
        assert (await running.complete(max_tokens=1)).status_code == 200
