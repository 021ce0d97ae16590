"""What operators set, and change while it runs, counts for the very next request."""

import asyncio
import json
from typing import Any

import pytest

from onward.admission.ledger import State
from tests.http.gateway import FrailStore, Gateway, cost, gateway, units
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


class Operator:
    """Somebody with the admin token."""

    def __init__(self, running: Gateway) -> None:
        self._client = running.client

    async def __call__(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        content = None if body is None else json.dumps(body)
        answer = await self._client.request(method, f"/admin/v1{path}", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def open_gateway(tmp_path, mock: MockProvider, monkeypatch):
    """Without a key or a tenant in its config."""
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    async with gateway(tmp_path, mock) as running:
        yield running


async def test_without_keys_all_is_written_down_and_nobody_pays(open_gateway: Gateway):
    assert (await open_gateway.complete(secret=None)).status_code == 200
    entry = await open_gateway.entry()
    assert (entry.key_id, entry.tenant, entry.charged) == (None, None, cost(2, 5))


async def test_a_tenant_from_its_first_credit_to_its_suspension(open_gateway: Gateway, mock: MockProvider):
    operator, complete = Operator(open_gateway), open_gateway.complete
    await operator("POST", "/tenants", {"name": "acme", "prepaid": True})
    key = await operator("POST", "/keys", {"name": "new", "tenant": "acme"})
    secret = key["secret"]
    await open_gateway.refused(402, "insufficient_balance", secret=secret)
    await operator("POST", "/tenants/acme/credits", {"amount": "0.000027", "note": "first"})
    assert (await complete(secret=secret)).status_code == 200
    await open_gateway.refused(402, "insufficient_balance", secret=secret)
    await operator("POST", "/tenants/acme/credits", {"amount": "1", "note": "more"})
    assert (await complete(secret=secret)).status_code == 200
    await operator("PATCH", f"/keys/{key['id']}", {"monthly_cap": "0.00003"})
    await open_gateway.refused(429, "budget_exceeded", secret=secret)  # what it spent before counts
    await operator("PATCH", f"/keys/{key['id']}", {"monthly_cap": None, "requests_per_minute": 1})
    assert (await complete(secret=secret)).status_code == 200
    await open_gateway.refused(429, "rate_limit_exceeded", secret=secret)
    await operator("PATCH", f"/keys/{key['id']}", {"requests_per_minute": None})
    await operator("PATCH", "/tenants/acme", {"status": "suspended"})
    await open_gateway.refused(403, "tenant_suspended", secret=secret)
    await operator("PATCH", "/tenants/acme", {"status": "active"})
    assert (await complete(secret=secret)).status_code == 200
    entries = await open_gateway.ended(4)
    assert len(mock.requests) == 4
    assert await open_gateway.balance() == units("1.000027") - sum(entry.charged for entry in entries)


async def test_a_key_that_is_revoked_while_its_request_runs(open_gateway: Gateway, mock: MockProvider):
    """The request ends as it would, and is charged."""
    operator = Operator(open_gateway)
    await operator("POST", "/tenants", {"name": "acme", "prepaid": True})
    await operator("POST", "/tenants/acme/credits", {"amount": "1", "note": ""})
    key = await operator("POST", "/keys", {"name": "new", "tenant": "acme", "concurrency": 1})
    mock.say(Behaviour(hold=2))
    async with open_gateway.caller(secret=key["secret"], stream=True) as caller:
        await caller.reads(2)
        await operator("DELETE", f"/keys/{key['id']}")
        await open_gateway.refused(401, "invalid_api_key", secret=key["secret"])
        mock.let_go()
        assert "[DONE]" in await caller.reads_all()
    assert await open_gateway.balance() == units("1") - cost(2, 5)
    await open_gateway.idle()


async def test_without_a_store_keys_and_limits_of_the_config_hold(tmp_path, mock: MockProvider):
    async def nothing(_: Any) -> None:
        return None

    async with gateway(tmp_path, mock, key={"requests_per_minute": 2}, store=nothing) as running:
        assert [(await running.complete(stream=n > 0)).status_code for n in range(2)] == [200, 200]
        await running.refused(429, "rate_limit_exceeded")
        await running.refused(401, "invalid_api_key", secret=None)


async def test_a_store_that_flushes(tmp_path, mock: MockProvider):
    """`durability = "disk"`: written in a thread, in batches, in order."""

    async def flushing(_: Any) -> FrailStore:
        return await FrailStore.open(tmp_path / "onward.db", durability="disk")

    async with gateway(tmp_path, mock, tenant={"balance": "1"}, key={}, store=flushing) as running:
        answers = await asyncio.gather(*[running.complete(stream=n % 2 == 0) for n in range(30)])
        assert {answer.status_code for answer in answers} == {200}
        mock.say(Behaviour(stall=2))
        async with running.caller(stream=True) as caller:
            await caller.reads(2)
            caller.goes()
            entries = await running.ended(31)
        assert {entry.state for entry in entries} == {State.SETTLED}
        assert await running.balance() == units("1") - sum(entry.charged for entry in entries)
        await running.idle()
