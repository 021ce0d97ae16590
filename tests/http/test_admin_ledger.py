"""The admin API on money that was spent and is held: ledger, usage, requests in flight; and what is loaded."""

import asyncio
import csv
import io
import time

import pytest

from onward.admission.gate import Gate
from onward.admission.keys import digest
from onward.admission.ledger import Reserve, Settle
from onward.core.usage import Usage
from onward.providers.protocol import Protocols, ProviderStatus
from onward.serve.model import ProxiedModel
from onward.wiring.config import Billing, Config, Deployment, Key, Model, Provider, Store, Tenant
from tests.http.harness import MODEL, SlowEngine, until
from tests.http.operated import PRICED, TOKEN, Operated, operated

DAY_MS = 86_400_000
NOON = 1_795_003_200_000 // DAY_MS * DAY_MS + DAY_MS // 2
"""Noon of a day in November 2026, Unix milliseconds."""
CANARY = "canary-7f3a"


@pytest.fixture
async def it(text_side, tmp_path):
    async with operated(text_side, tmp_path) as running:
        yield running


async def spent(
    it: Operated, name: str, *, days: int = 0, tokens: int = 10, lease: str = "other", **fields
) -> None:
    """A settled request of the past, or one that another process has running (`tokens` 0)."""
    at_ms = NOON + days * DAY_MS
    values = {"key_id": "k-a", "key_name": "a", "tenant": "acme", "model": MODEL, "surface": "chat"} | fields
    reserve = Reserve(request_id=name, lease=lease, at_ms=at_ms, amount=100, accounts=(), **values)
    settle = Settle(request_id=name, charge=tokens * 3, usage=Usage(tokens, tokens * 2, 1), at_ms=at_ms + 500)
    await it.store.apply([reserve, settle] if tokens else [reserve])


async def test_an_entry_tells_all_of_its_request(it: Operated):
    made = await it.post("/keys", {"name": "ci"})
    headers = {
        "authorization": f"Bearer {made['secret']}",
        "x-request-id": "mine",
        "content-type": "application/json",
    }
    body = f'{{"model": "{MODEL}", "prompt": "hello", "max_tokens": 5}}'
    answer = await it.client.post("/v1/completions", content=body, headers=headers)
    assert answer.headers["x-request-id"] == "mine"
    [entry] = (await it.get("/ledger", request_id="mine"))["data"]
    [attempt] = entry.pop("attempts")
    times = {name: entry.pop(name) for name in ("at", "ended_at")}
    assert times["at"] <= times["ended_at"]
    assert entry == {
        "request_id": entry["request_id"],
        "client_request_id": "mine",
        "key": "ci",
        "key_id": made["id"],
        "tenant": None,
        "model": MODEL,
        "surface": "completions",
        "state": "settled",
        "held": "0.000011",
        "charged": "0.000007",
        "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, "cached_tokens": 0},
        "estimated": False,
        "overdraft": False,
        "outcome": "ok",
        "config_version": entry["config_version"],
    }
    assert (attempt["deployment"], attempt["outcome"], attempt["status"]) == ("local", "ok", None)
    assert (await it.get("/ledger", request_id=entry["request_id"]))["data"][0]["client_request_id"] == "mine"


async def test_filters_of_the_ledger(it: Operated):
    await spent(it, "a", days=0)
    await spent(it, "b", days=1, key_id="k-b", key_name="b", tenant=None)
    await spent(it, "c", days=2, model="other")
    await spent(it, "d", days=3, tokens=0)
    made = await it.post("/keys", {"name": "named"})
    await spent(it, "e", days=4, key_id=made["id"], key_name="named")

    async def names(**params) -> str:
        return "".join(one["request_id"] for one in (await it.get("/ledger", **params))["data"])

    day = time.strftime("%Y-%m-%d", time.gmtime(NOON // 1000 + 86_400))
    assert await names() == "edcba"
    assert await names(tenant="acme") == "edca"
    assert await names(model="other") == "c"
    assert await names(state="held") == "d"
    assert await names(key="k-a") == "dca"
    assert await names(key=made["id"]) == await names(key="named") == "e"
    assert await names(key="a") == "", "a name is looked up among keys that there are"
    assert await names(**{"from": day}) == "edcb"
    assert await names(to=day) == "a"
    assert await names(**{"from": f"{day}T12:00:00.001Z"}) == "edc"
    assert await names(**{"from": f"{day}T13:00:00+01:00", "to": f"{day}T12:00:01"}) == "b"
    seen, cursor = "", None
    while True:
        page = await it.get("/ledger", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += "".join(one["request_id"] for one in page["data"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == "edcba"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("state=gone", "state"),
        ("from=x", "from"),
        ("from=2026-13-01", "from"),
        ("from=20261101", "from"),
        ("to=1795003200", "to"),
        ("to=2026-W01-1", "to"),
        ("to=0001-01-01T00:00%2B14:00", None),
        ("to=9999-12-31T23:59:59-14:00", None),
        ("cursor=x", "cursor"),
        ("cursor=-1", "cursor"),
        ("format=csv", "format"),
    ],
)
async def test_what_is_wrong_with_a_filter_is_named(it: Operated, query, param):
    if param is None:
        assert (await it.ask("GET", f"/ledger?{query}")).status_code == 200
    else:
        assert (await it.refused("GET", f"/ledger?{query}"))["param"] == param


async def test_sums(it: Operated):
    for n in range(3):
        await spent(it, f"a{n}", days=n)
        await spent(it, f"b{n}", days=n, key_id="k-b", key_name="b", tenant=None, tokens=1)
    await spent(it, "held", tokens=0)
    [whole] = (await it.get("/usage"))["data"]
    assert whole == {
        "requests": 6,
        "usage": {"prompt_tokens": 33, "completion_tokens": 66, "total_tokens": 99, "cached_tokens": 6},
        "charged": "0.000000099",
        "estimated": 0,
    }
    rows = (await it.get("/usage", group_by="key,tenant"))["data"]
    assert [(row["key"], row["tenant"], row["charged"]) for row in rows] == [
        ("a", "acme", "0.00000009"),
        ("b", None, "0.000000009"),
    ]
    day = time.strftime("%Y-%m-%d", time.gmtime(NOON // 1000 + 86_400))
    [row] = (await it.get("/usage", group_by="day", tenant="acme", **{"from": day}, limit=1))["data"]
    assert (row["day"], row["requests"]) == (day, 1)
    [row] = (await it.get("/usage", key="k-b", to=day))["data"]
    assert row["requests"] == 1
    assert (await it.get("/usage", model="none"))["data"] == []
    for wrong in ("x", "model,model", "", "model,", "model;key"):
        await it.refused("GET", f"/usage?group_by={wrong}")
    assert (await it.refused("GET", "/usage?format=xml"))["param"] == "format"


async def test_pages_of_sums(it: Operated):
    for n in range(4):
        await spent(it, f"a{n}", days=n)
        await spent(it, f"b{n}", days=n, tenant=None, tokens=1)
    every = (await it.get("/usage", group_by="day,tenant"))["data"]
    assert len(every) == 8
    for limit in (1, 3, 7):
        seen, cursor = [], None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = await it.get("/usage", group_by="day,tenant", limit=limit, **more)
            seen += page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            await spent(
                it, f"early{cursor}{limit}", days=-5, tokens=1
            )  # sorted before all that is still to come
        assert [row for row in seen if row in every] == every
    first = await it.get("/usage", group_by="day,tenant", limit=1)
    for path in ("/usage?group_by=day", "/usage?group_by=day,tenant,key", "/usage"):
        sign = "&" if "?" in path else "?"
        assert (await it.refused("GET", f"{path}{sign}cursor={first['next_cursor']}"))["param"] == "cursor"
    for cursor in ("x", "////", "W10="):
        assert (await it.refused("GET", f"/usage?group_by=day&cursor={cursor}"))["param"] == "cursor"


async def test_sums_as_csv(it: Operated):
    await spent(it, "a", key_name='odd "name", with comma')
    await spent(it, "b", key_name=None, key_id=None)
    answer = await it.ask("GET", "/usage?group_by=key,model&format=csv&limit=1")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["key"] for row in rows] == ["", 'odd "name", with comma']
    assert rows[1] == {
        "key": 'odd "name", with comma',
        "model": MODEL,
        "requests": "1",
        "prompt_tokens": "10",
        "completion_tokens": "20",
        "total_tokens": "30",
        "cached_tokens": "1",
        "charged": "0.00000003",
        "estimated": "0",
    }


async def test_requests_in_flight_of_every_process(text_side, tmp_path):
    """Ours to the last token; those of other processes as they wrote them down."""
    engine = SlowEngine(260)
    async with operated(text_side, tmp_path, engine) as it:
        await it.post("/tenants", {"name": "acme"})
        made = await it.post("/keys", {"name": "ci", "tenant": "acme"})
        await spent(it, "elsewhere", tokens=0)
        asking = asyncio.create_task(it.complete(made["secret"], max_tokens=4000))
        await engine.entered.wait()
        gate: Gate = it.admission.gate
        await until(lambda: next(iter(gate.running)).usage.completion_tokens >= 3)
        ours, other = (await it.get("/requests"))["data"]
        assert ours["usage"]["completion_tokens"] >= 3
        assert (ours["key"], ours["key_id"], ours["tenant"]) == ("ci", made["id"], "acme")
        assert (ours["model"], ours["surface"], ours["held"]) == (MODEL, "completions", "0.008001")
        assert set(ours) == set(other)
        assert (other["request_id"], other["key"], other["held"]) == ("elsewhere", "a", "0.0000001")
        assert other["since"] < ours["since"]
        page = await it.get("/requests", limit=1)
        assert page["data"][0]["request_id"] == ours["request_id"]
        assert (await it.get("/requests", limit=1, cursor=page["next_cursor"]))["data"] == [other]
        asking.cancel()
        await engine.left.wait()
        await until(lambda: not list(gate.running))
        assert (await it.get("/requests"))["data"] == [other]


class Upstream:
    """A provider that nobody asks."""

    name = "bought-from"
    protocol = Protocols.OPENAI
    surfaces = frozenset({"completions", "chat"})

    def status(self):
        return ProviderStatus(open=3, busy=2, waiting=1)


async def test_models_and_deployments(text_side, tmp_path):
    bought = ProxiedModel(PRICED, Upstream(), "their-name", "bought")
    async with operated(text_side, tmp_path, deployments=[bought]) as it:
        [model] = (await it.get("/models"))["data"]
        assert (model["id"], model["aliases"], model["deployments"]) == (
            MODEL,
            ["alias"],
            ["local", "bought"],
        )
        assert model["price"] == {"input": "1.00", "cached_input": "0.50", "output": "2.00"}
        local, other = (await it.get("/deployments"))["data"]
        assert (local["name"], local["model"], local["provider"]) == ("local", MODEL, None)
        assert local["engine"]["state"] == "ready"
        assert other == {
            "name": "bought",
            "model": MODEL,
            "engine": None,
            "provider": {
                "name": "bought-from",
                "protocol": "openai",
                "surfaces": ["chat", "completions"],
                "connections": {"open": 3, "busy": 2, "waiting": 1},
                "replicas": [],
            },
        }
        page = await it.get("/deployments", limit=1)
        assert (await it.get("/deployments", limit=1, cursor=page["next_cursor"]))["data"] == [other]


async def test_g25_no_secret_shows_anywhere(text_side, tmp_path, monkeypatch):
    """Not in a body, a header, an error, the log or the metrics; but for a new key's, once."""
    monkeypatch.setenv("UPSTREAM_KEY", f"{CANARY}-provider")
    config = Config(
        store=Store(
            url=f"postgresql://{CANARY}-user:{CANARY}-p%40ss@db.example:5432/onward?password={CANARY}",
            limits=f"rediss://:{CANARY}@redis.example/0",
        ),
        billing=Billing(currency="EUR"),
        providers=[
            Provider(
                name="up", protocol="openai", base_url="https://up.example/v1", api_key_env="UPSTREAM_KEY"
            )
        ],
        models=[
            Model(
                id=MODEL,
                deployments=[
                    Deployment(name="x", engine="vllm", urls=[f"http://me:{CANARY}@10.0.0.1:8000/v1"])
                ],
            )
        ],
        tenants=[Tenant(name="acme", balance="5")],
        keys=[Key(name="fixed", tenant="acme", sha256=digest(f"on-{CANARY}-fixed-key").hex())],
    )
    token = f"{CANARY}-admin-token"
    async with operated(text_side, tmp_path, config=config, token=token) as it:
        made = (await it.ask("POST", "/keys", {"name": "ci", "tenant": "acme"}, token=token)).json()
        secrets = [CANARY, made["secret"], config.keys[0].sha256, digest(made["secret"]).hex()]
        answers = [await it.complete(secret) for secret in (made["secret"], f"on-{CANARY}-wrong")]
        names = ("keys", "tenants", "ledger", "usage", "requests", "models", "deployments", "config")
        for path in (*names, f"keys/{made['id']}", "keys/fixed", "tenants/acme", "nothing"):
            for sent in (token, f"{CANARY}-wrong", made["secret"], None):
                answers += [await it.ask("GET", f"/{path}", token=sent)]
        for body in (
            {"name": CANARY * 50},
            {"name": "x", "secret": CANARY},
            {"name": "x", "tenant": 5, "monthly_cap": CANARY},
        ):
            answers += [await it.ask("POST", "/keys", body, token=token)]
        answers += [
            await it.ask("PATCH", f"/keys/{made['id']}", {"name": "renamed"}, token=token),
            await it.ask("DELETE", f"/keys/{made['id']}", token=token),
            await it.ask("POST", "/tenants/acme/credits", {"amount": CANARY}, token=token),
            await it.client.get("/metrics"),
        ]
        shown = [f"{answer.text} {answer.headers}" for answer in answers]
        told = (await it.ask("GET", "/config", token=token)).json()
        await until(lambda: "/admin/v1/config" in it.log_path.read_text())
        shown.append(it.log_path.read_text())
        for text in shown:
            assert not [secret for secret in secrets if secret in text], text
        assert told["config"]["store"]["url"] == "postgresql://db.example:5432/onward"
        assert told["config"]["store"]["limits"] == "rediss://redis.example/0"
        assert told["config"]["models"][0]["deployments"][0]["urls"] == ["http://10.0.0.1:8000/v1"]
        assert told["config"]["keys"][0]["name"] == "fixed"
        assert told["version"] == config.version
        raw = (tmp_path / "onward.db").read_bytes() + (tmp_path / "onward.db-wal").read_bytes()
        assert not [secret for secret in secrets[:2] if secret.encode() in raw]
        assert TOKEN not in shown[0]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://u:p@h/d", "postgresql://h/d"),
        ("postgresql://u:p@ss@h/d", "postgresql://h/d"),
        ("postgresql://u:p/a@ss@h/d", "postgresql://…"),
        ("postgresql://u:p?a@h/d", "postgresql://…"),
        ("postgresql:///d?password=x", "postgresql:///d"),
        ("redis://h:1/0#x", "redis://h:1/0"),
        ("sqlite:onward.db", "sqlite:onward.db"),
        ("memory", "memory"),
    ],
)
def test_addresses_hide_what_is_nobodys_business(address, told):
    from onward.wiring.admin import config_view

    assert config_view(Config(store=Store(url=address)))["config"]["store"]["url"] == told
