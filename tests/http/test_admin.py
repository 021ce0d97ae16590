"""The admin API: who may ask, keys, tenants, money. Over a real SQLite store."""

import asyncio

import pytest

from onward.admission.keys import digest
from onward.wiring.config import Config, Key, Tenant
from tests.http.harness import MODEL, SlowEngine, until
from tests.http.operated import TOKEN, Operated, operated

CONFIGURED = "on-a-key-of-the-config-of-these-tests"
NOTHING_SPENT = {"spent_this_month": "0.00", "held_this_month": "0.00"}
WRITES = [
    ("POST", "/keys", {"name": "x"}),
    ("PATCH", "/keys/x", {}),
    ("DELETE", "/keys/x", None),
    ("POST", "/tenants", {"name": "x"}),
    ("PATCH", "/tenants/x", {}),
    ("DELETE", "/tenants/x", None),
    ("POST", "/tenants/x/credits", {"amount": "1"}),
]
READS = [
    ("GET", f"/{name}", None)
    for name in ("keys", "keys/x", "tenants", "tenants/x", "ledger", "usage", "requests", "models")
] + [("GET", "/deployments", None), ("GET", "/config", None)]


def configured() -> Config:
    """A config with a tenant that is prepaid, one that is not, and a key."""
    config = Config()
    config.tenants = [
        Tenant(name="büro", balance="5.00", monthly_budget="9"),
        Tenant(name="free/slash"),
    ]
    config.keys = [Key(name="fixed", tenant="büro", sha256=digest(CONFIGURED).hex())]
    return config


@pytest.fixture
async def it(text_side, tmp_path):
    async with operated(text_side, tmp_path) as running:
        yield running


# --- who may ask


@pytest.mark.parametrize(("method", "path", "body"), [*READS, *WRITES])
async def test_nobody_gets_in_without_the_token(it: Operated, method, path, body):
    secret = (await it.post("/keys", {"name": "caller"}))["secret"]
    for token in (None, "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), secret):
        error = await it.refused(method, path, body, status=401, token=token)
        assert error["code"] == "invalid_api_key"
        assert token in {None, "x"} or token not in error["message"]
    assert [one["name"] for one in (await it.get("/keys"))["data"]] == ["caller"]


@pytest.mark.parametrize(("method", "path", "body"), [*READS, *WRITES, ("GET", "/nothing", None)])
async def test_without_a_token_in_the_environment_it_is_off(text_side, tmp_path, method, path, body):
    async with operated(text_side, tmp_path, token=None) as it:
        for token in (None, TOKEN):
            error = await it.refused(method, path, body, status=404, token=token)
            assert "Set ONWARD_ADMIN_TOKEN in the server's environment" in error["message"]
        assert (await it.complete(None)).status_code == 200


async def test_the_token_is_no_key_of_callers(it: Operated):
    await it.post("/keys", {"name": "a"})
    assert (await it.complete(TOKEN)).status_code == 401


async def test_what_is_not_there(it: Operated):
    error = await it.refused("GET", "/nothing", status=404)
    assert error["message"] == "There is nothing at /admin/v1/nothing."
    await it.refused("GET", "/nothing", status=401, token="wrong")
    answer = await it.ask("PUT", "/keys/x", {})
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH")
    answer = await it.ask("HEAD", "/keys")
    assert (answer.status_code, answer.content) == (200, b"")


# --- keys


async def test_a_key_lives_from_its_making_to_its_end(it: Operated):
    """Shown once, it works at once, and is refused at once."""
    assert (await it.complete(None)).status_code == 200
    made = await it.post("/keys", {"name": "ci"})
    secret = made.pop("secret")
    assert secret.startswith("on-")
    assert len(secret) == 46
    assert made == {
        "id": made["id"],
        "name": "ci",
        "source": "store",
        "prefix": secret[:8],
        "tenant": None,
        "models": None,
        "monthly_cap": None,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "concurrency": None,
        **NOTHING_SPENT,
        "created_at": made["created_at"],
        "last_used_at": None,
        "revoked_at": None,
    }
    assert (await it.complete(None)).status_code == 401
    assert (await it.complete(secret)).status_code == 200
    assert (await it.get(f"/keys/{made['id']}")) == made | {"spent_this_month": "0.000007"}
    assert (await it.get("/keys"))["data"] == [await it.get(f"/keys/{made['id']}")]
    revoked = (await it.ask("DELETE", f"/keys/{made['id']}")).json()
    assert revoked["revoked_at"] >= made["created_at"]
    for sent in (secret, None):
        assert (await it.complete(sent)).status_code == 401, "the end of the last key lets nobody in"
    assert (await it.ask("DELETE", f"/keys/{made['id']}")).json() == revoked
    assert await it.get(f"/keys/{made['id']}") == revoked
    error = await it.refused("PATCH", f"/keys/{made['id']}", {"name": "other"})
    assert "revoked" in error["message"]


async def test_a_revoked_key_is_refused_at_once(it: Operated):
    kept = await it.post("/keys", {"name": "kept"})
    gone = await it.post("/keys", {"name": "gone"})
    assert (await it.complete(gone["secret"])).status_code == 200
    await it.ask("DELETE", f"/keys/{gone['id']}")
    assert (await it.complete(gone["secret"])).status_code == 401
    assert (await it.complete(kept["secret"])).status_code == 200
    again = await it.post("/keys", {"name": "gone"})
    assert again["id"] != gone["id"], "the name is free again, and is another key"


async def test_last_use(it: Operated):
    made = await it.post("/keys", {"name": "ci"})
    await it.complete(made["secret"])
    await it.admission._touch()
    assert (await it.get(f"/keys/{made['id']}"))["last_used_at"] >= made["created_at"]


async def test_limits_of_a_key_hold(it: Operated):
    await it.post("/tenants", {"name": "acme"})
    given = {
        "name": "ci",
        "tenant": "acme",
        "models": [MODEL],
        "monthly_cap": "1.50",
        "requests_per_minute": 1,
        "tokens_per_minute": 100_000,
        "concurrency": 4,
    }
    made = await it.post("/keys", given)
    assert {name: made[name] for name in given} == given
    assert (await it.complete(made["secret"])).status_code == 200
    assert (await it.complete(made["secret"])).status_code == 429
    changed = await it.ask("PATCH", f"/keys/{made['id']}", {"requests_per_minute": 5, "name": "renamed"})
    assert changed.json()["name"] == "renamed"
    assert changed.json()["monthly_cap"] == "1.50"
    assert (await it.complete(made["secret"])).status_code == 200
    loosened = {name: None for name in given if name != "name"}
    changed = (await it.ask("PATCH", f"/keys/{made['id']}", loosened)).json()
    assert {name: changed[name] for name in loosened} == loosened
    tight = await it.ask("PATCH", f"/keys/{made['id']}", {"monthly_cap": "0"})
    assert tight.json()["monthly_cap"] == "0.00"
    answer = await it.complete(made["secret"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "budget_exceeded")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": 5}, "name"),
        ({"name": None}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": " a"}, "name"),
        ({"name": "taken"}, "name"),
        ({"name": "x", "secret": "on-mine"}, "secret"),
        ({"name": "x", "id": "mine"}, "id"),
        ({"name": "x", "tenant": "missing"}, "tenant"),
        ({"name": "x", "tenant": ""}, "tenant"),
        ({"name": "x", "models": []}, "models"),
        ({"name": "x", "models": MODEL}, "models"),
        ({"name": "x", "models": ["missing"]}, "models"),
        ({"name": "x", "models": ["alias"]}, "models"),
        ({"name": "x", "models": [MODEL] * 1001}, "models"),
        ({"name": "x", "monthly_cap": 5}, "monthly_cap"),
        ({"name": "x", "monthly_cap": 0.1}, "monthly_cap"),
        ({"name": "x", "monthly_cap": "-1"}, "monthly_cap"),
        ({"name": "x", "monthly_cap": "1e3"}, "monthly_cap"),
        ({"name": "x", "monthly_cap": "0.0000000001"}, "monthly_cap"),
        ({"name": "x", "requests_per_minute": 0}, "requests_per_minute"),
        ({"name": "x", "requests_per_minute": True}, "requests_per_minute"),
        ({"name": "x", "requests_per_minute": "5"}, "requests_per_minute"),
        ({"name": "x", "tokens_per_minute": 10**13}, "tokens_per_minute"),
        ({"name": "x", "concurrency": -1}, "concurrency"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_a_key_is_named(it: Operated, body, param):
    await it.post("/keys", {"name": "taken"})
    error = await it.refused("POST", "/keys", body)
    assert error["param"] == param
    assert "on-mine" not in error["message"]
    assert len((await it.get("/keys"))["data"]) == 1
    if "name" in body:
        other = await it.post("/keys", {"name": "x"})
        assert (await it.refused("PATCH", f"/keys/{other['id']}", body))["param"] == param
        assert await it.get(f"/keys/{other['id']}") == {k: v for k, v in other.items() if k != "secret"}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"name":"a","x":' + b"[" * 100 + b"]" * 100 + b"}"]
)
async def test_a_body_that_is_none(it: Operated, body):
    await it.refused("POST", "/keys", body)
    await it.refused("POST", "/keys", {"name": "x" * 70_000}, status=413)
    await it.refused("POST", "/keys?x=1", {"name": "x"})
    await it.refused("POST", "/keys", {"name": "x"}, headers={"content-type": "text/plain"})


async def test_keys_that_are_not_there(it: Operated):
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        error = await it.refused(method, "/keys/key_0", body, status=404)
        assert error["message"] == "There is no key 'key_0'."


async def test_pages_of_keys(text_side, tmp_path):
    config = configured()
    config.keys += [Key(name=f"fixed-{n}", sha256=digest(f"{n}").hex()) for n in range(2)]
    async with operated(text_side, tmp_path, config=config) as it:
        made = [(await it.post("/keys", {"name": f"k{n}"}))["id"] for n in range(4)]
        every = ["fixed", "fixed-0", "fixed-1", *made]
        for limit in (1, 2, 3, 4, 7, 8):
            seen, cursor = [], None
            while True:
                page = await it.get("/keys", limit=limit, **({"cursor": cursor} if cursor else {}))
                assert len(page["data"]) <= limit
                seen += [one["id"] for one in page["data"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert seen == every
        for cursor in ("x", "config:-1", "config:1e3", "config:", "store", "9" * 900):
            error = await it.refused("GET", f"/keys?cursor={cursor}")
            assert error["param"] == "cursor"


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", "", "١"])
async def test_a_page_has_bounds(it: Operated, limit):
    for path in ("/keys", "/tenants", "/ledger", "/usage", "/requests", "/models", "/deployments"):
        assert (await it.refused("GET", f"{path}?limit={limit}"))["param"] == "limit"


async def test_parameters_that_are_none(it: Operated):
    assert (await it.refused("GET", "/keys?limits=5"))["param"] == "limits"
    assert (await it.refused("GET", "/keys?limit=5&limit=6"))["param"] == "limit"
    assert (await it.refused("GET", "/ledger?tenant="))["param"] == "tenant"
    await it.refused("GET", "/ledger?tenant=%ff")
    await it.refused("GET", "/ledger?" + "&".join(f"a{n}=1" for n in range(60)))


# --- tenants


async def test_a_tenant_spends_what_was_paid_in(it: Operated):
    made = await it.post("/tenants", {"name": "acme", "balance": "0.000010", "monthly_budget": "2"})
    assert made == {
        "name": "acme",
        "source": "store",
        "status": "active",
        "prepaid": True,
        "balance": "0.00001",
        "credited": "0.00001",
        "spent": "0.00",
        "held": "0.00",
        "monthly_budget": "2.00",
        **NOTHING_SPENT,
        "agreements": [],
    }
    secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
    answer = await it.complete(secret)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_balance")
    more = await it.post("/tenants/acme/credits", {"amount": "0.000001", "note": "a coin"})
    assert (more["balance"], more["credited"]) == ("0.000011", "0.000011")
    assert (await it.complete(secret)).status_code == 200
    now = await it.get("/tenants/acme")
    assert (now["balance"], now["spent"], now["held"]) == ("0.000004", "0.000007", "0.00")
    assert now["spent_this_month"] == "0.000007"
    assert (await it.get("/tenants"))["data"] == [now]
    error = await it.refused("POST", "/tenants/acme/credits", {"amount": "-0.000005"})
    assert error["param"] == "amount"
    taken = await it.post("/tenants/acme/credits", {"amount": "-0.000004"})
    assert taken["balance"] == "0.00"


async def test_held_money_is_shown(text_side, tmp_path):
    engine = SlowEngine(260)
    async with operated(text_side, tmp_path, engine) as it:
        await it.post("/tenants", {"name": "acme", "balance": "1"})
        secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
        asking = asyncio.create_task(it.complete(secret, max_tokens=4000))
        await engine.entered.wait()
        tenant = await it.get("/tenants/acme")
        assert (tenant["held"], tenant["balance"]) == ("0.008001", "0.991999")
        assert tenant["held_this_month"] == "0.008001"
        assert (await it.get("/keys"))["data"][0]["held_this_month"] == "0.008001"
        error = await it.refused("POST", "/tenants/acme/credits", {"amount": "-0.992"})
        assert "0.991999" in error["message"]
        asking.cancel()
        await engine.left.wait()


async def test_the_first_credit_makes_a_tenant_prepaid(it: Operated):
    assert (await it.post("/tenants", {"name": "acme"}))["balance"] is None
    await it.refused("POST", "/tenants/acme/credits", {"amount": "-1"})
    assert (await it.get("/tenants/acme"))["prepaid"] is False
    credited = await it.post("/tenants/acme/credits", {"amount": "0.000005"})
    assert (credited["prepaid"], credited["balance"]) == (True, "0.000005")
    secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
    assert (await it.complete(secret)).status_code == 402
    changed = await it.ask("PATCH", "/tenants/acme", {"prepaid": False})
    assert changed.json()["balance"] is None
    assert (await it.complete(secret)).status_code == 200


async def test_a_credit_that_is_sent_twice_is_paid_in_once(it: Operated):
    await it.post("/tenants", {"name": "acme", "balance": "1"})
    await it.post("/tenants", {"name": "zeta", "balance": "1"})
    for _ in range(3):
        for name in ("acme", "zeta"):
            paid = await it.post(
                f"/tenants/{name}/credits", {"amount": "2"}, headers={"idempotency-key": "invoice 7"}
            )
            assert paid["balance"] == "3.00"
    await it.refused("POST", "/tenants/acme/credits", {"amount": "2"}, headers={"idempotency-key": "x" * 300})
    await it.post("/tenants/acme/credits", {"amount": "2"})
    assert (await it.post("/tenants/acme/credits", {"amount": "2"}))["balance"] == "7.00"


async def test_statuses_count_at_once(it: Operated):
    await it.post("/tenants", {"name": "acme"})
    secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
    for body, status in (
        ({"status": "suspended"}, 403),
        ({"status": "active"}, 200),
        ({"status": "unpaid"}, 402),
        ({"status": "active", "monthly_budget": "0.000001"}, 429),
        ({"monthly_budget": None, "agreements": [MODEL]}, 200),
    ):
        changed = (await it.ask("PATCH", "/tenants/acme", body)).json()
        assert {name: changed[name] for name in body if name != "monthly_budget"} | body == body
        assert (await it.complete(secret)).status_code == status


async def test_a_deleted_tenant_is_suspended_and_its_money_stays(it: Operated):
    await it.post("/tenants", {"name": "acme", "balance": "3"})
    secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
    gone = (await it.ask("DELETE", "/tenants/acme")).json()
    assert (gone["status"], gone["balance"]) == ("suspended", "3.00")
    assert (await it.complete(secret)).status_code == 403
    assert await it.get("/tenants/acme") == gone


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "taken"}, "name"),
        ({"name": "x", "balance": 5}, "balance"),
        ({"name": "x", "balance": "-5"}, "balance"),
        ({"name": "x", "balance": "5", "prepaid": False}, "prepaid"),
        ({"name": "x", "prepaid": 1}, "prepaid"),
        ({"name": "x", "status": "gone"}, "status"),
        ({"name": "x", "monthly_budget": "x"}, "monthly_budget"),
        ({"name": "x", "agreements": None}, "agreements"),
        ({"name": "x", "agreements": ["missing"]}, "agreements"),
        ({"name": "x", "credited": "5"}, "credited"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_a_tenant_is_named(it: Operated, body, param):
    await it.post("/tenants", {"name": "taken"})
    assert (await it.refused("POST", "/tenants", body))["param"] == param
    assert len((await it.get("/tenants"))["data"]) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "amount"),
        ({"amount": 5}, "amount"),
        ({"amount": ""}, "amount"),
        ({"amount": "0"}, "amount"),
        ({"amount": "-0"}, "amount"),
        ({"amount": "--1"}, "amount"),
        ({"amount": "+1"}, "amount"),
        ({"amount": "1,5"}, "amount"),
        ({"amount": "9" * 31}, "amount"),
        ({"amount": "1", "note": "x" * 501}, "note"),
        ({"amount": "1", "once": "x"}, "once"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_a_credit_is_named(it: Operated, body, param):
    await it.post("/tenants", {"name": "acme", "balance": "1"})
    assert (await it.refused("POST", "/tenants/acme/credits", body))["param"] == param
    assert (await it.get("/tenants/acme"))["balance"] == "1.00"
    await it.refused("POST", "/tenants/missing/credits", {"amount": "1"}, status=404)


async def test_a_balance_has_an_end(it: Operated):
    await it.post("/tenants", {"name": "acme", "balance": "1"})
    for _ in range(8):
        await it.post("/tenants/acme/credits", {"amount": "999999999.999999999"})
    error = await it.refused("POST", "/tenants/acme/credits", {"amount": "999999999.999999999"})
    assert error["param"] == "amount"


async def test_pages_of_tenants(text_side, tmp_path):
    async with operated(text_side, tmp_path, config=configured()) as it:
        for name in ("c c", "a", "b+b%20"):
            await it.post("/tenants", {"name": name})
        every = ["a", "b+b%20", "büro", "c c", "free/slash"]
        for limit in (1, 2, 5, 6):
            seen, cursor = [], None
            while True:
                page = await it.get("/tenants", limit=limit, **({"cursor": cursor} if cursor else {}))
                seen += [one["name"] for one in page["data"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert seen == every
        for name in every:
            path = "/tenants/" + name.replace("%", "%25").replace(" ", "%20").replace("/", "%2F")
            assert (await it.get(path))["name"] == name


# --- what stands in the config


async def test_what_stands_in_the_config_is_read_only(text_side, tmp_path):
    async with operated(text_side, tmp_path, config=configured()) as it:
        key = await it.get("/keys/fixed")
        assert (key["source"], key["prefix"], key["created_at"]) == ("config", None, None)
        assert (await it.get("/keys"))["data"] == [key]
        for method, path, body in (
            ("PATCH", "/keys/fixed", {"name": "x"}),
            ("DELETE", "/keys/fixed", None),
            ("PATCH", "/tenants/büro", {"status": "suspended"}),
            ("DELETE", "/tenants/büro", None),
        ):
            error = await it.refused(method, path, body)
            assert "stands in the config" in error["message"]
        assert (await it.refused("POST", "/keys", {"name": "fixed"}))["param"] == "name"
        assert (await it.refused("POST", "/tenants", {"name": "büro"}))["param"] == "name"
        assert (await it.post("/keys", {"name": "joined", "tenant": "büro"}))["tenant"] == "büro"
        assert (await it.complete(CONFIGURED)).status_code == 402  # nobody credited the opening balance


async def test_prepaid_tenants_of_the_config_can_be_topped_up(text_side, tmp_path):
    async with operated(text_side, tmp_path, config=configured()) as it:
        tenant = await it.post("/tenants/büro/credits", {"amount": "1"})
        assert (tenant["source"], tenant["balance"]) == ("config", "1.00")
        assert (await it.complete(CONFIGURED)).status_code == 200
        assert (await it.get("/keys/fixed"))["spent_this_month"] == "0.000007"
        error = await it.refused("POST", "/tenants/free%2Fslash/credits", {"amount": "1"})
        assert "not prepaid" in error["message"]


async def test_without_a_store_there_is_only_the_config(text_side, tmp_path):
    engine = SlowEngine(260)
    async with operated(text_side, tmp_path, engine, config=configured(), stored=False) as it:
        assert [one["id"] for one in (await it.get("/keys"))["data"]] == ["fixed"]
        assert (await it.get("/tenants/büro"))["spent_this_month"] is None
        for method, path, body in WRITES:
            error = await it.refused(method, path, body)
            assert "There is no store" in error["message"]
        for path in ("/ledger", "/usage"):
            error = await it.refused("GET", path, status=404)
            assert "There is no store" in error["message"]
        asking = asyncio.create_task(it.complete(CONFIGURED, max_tokens=4000))
        await engine.entered.wait()
        [running] = (await it.get("/requests"))["data"]
        assert (running["key"], running["tenant"], running["model"]) == ("fixed", "büro", MODEL)
        asking.cancel()
        await engine.left.wait()
        await until(lambda: not list(it.admission.gate.running))
        assert (await it.get("/requests"))["data"] == []


async def test_a_store_that_is_down(it: Operated):
    """503 with Retry-After, and the process goes on."""
    await it.store.close()
    for method, path, body in (
        ("GET", "/keys", None),
        ("GET", "/ledger", None),
        ("POST", "/keys", {"name": "x"}),
    ):
        answer = await it.ask(method, path, body)
        assert answer.status_code == 503, answer.text
        assert answer.headers["retry-after"]
    assert (await it.ask("GET", "/config")).status_code == 200
