"""`tenants`, `keys`, `usage` and `ledger` on a store in a file, with no server."""

import asyncio
import csv
import io
import json

import pytest

from onward.admission.ledger import Reserve, Settle
from onward.admission.store import EntryQuery
from onward.cli import ledger
from onward.cli.main import GROUPS, main
from onward.core.attempt import Attempt
from onward.core.usage import Usage
from onward.http.admin import asking
from onward.stores.sqlite.store import SqliteStore

MODEL = "smollm2-135m-instruct"
AT_MS = 1_795_003_200_123
CONFIG = """
[store]
url = "sqlite:data/kept.db"

[[tenants]]
name = "fixed"
balance = "5.00"

[[keys]]
name = "of-the-config"
tenant = "fixed"
secret_env = "A_VARIABLE_OF_THE_SERVER_ALONE"
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; answers its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(words)
        said = capsys.readouterr()
        assert "fault of ours" not in said.err
        return code, said.out, said.err

    return run


@pytest.fixture
def good(run):
    """What a command prints that must succeed without a word of complaint."""

    def good(*words, told=""):
        code, output, errors = run(*words)
        assert (code, errors) == (0, told)
        return output

    return good


def stored(path, work):
    """Do something with the store in a file."""

    async def inside():
        store = await SqliteStore.open(path, owner=False)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def fill(path, count=3):
    """Requests of the past: all but the last have ended."""

    async def work(store):
        for n in range(count):
            name = f"r{n}"
            reserve = Reserve(
                request_id=name,
                label="mine" if n == 0 else None,
                lease="l",
                key_id="k",
                key_name="ci",
                tenant="acme",
                model=MODEL,
                surface="chat",
                at_ms=AT_MS + n,
                amount=5_000_000_000,
                accounts=(),
            )
            settle = Settle(
                request_id=name,
                charge=1_500_000_000,
                usage=Usage(10, 20, 5),
                at_ms=AT_MS + 1000,
                estimated=n == 1,
                attempts=(
                    Attempt(
                        deployment="a", outcome="upstream_timeout", status=504, started_ms=AT_MS, took_ms=7
                    ),
                    Attempt(deployment="b", outcome="ok", started_ms=AT_MS, first_ms=3, took_ms=9),
                ),
            )
            await store.apply([reserve, settle] if n < count - 1 else [reserve])

    stored(path, work)


def test_a_tenant_from_its_making_on(good):
    """As people read it, and as programs do."""
    assert good("tenants", "create", "acme", "--balance", "10", "--monthly-budget", "3.5").splitlines()[
        :5
    ] == [
        "name              acme",
        "source            store",
        "status            active",
        "prepaid           yes",
        "balance           10.00",
    ]
    paid = json.loads(good("tenants", "credit", "acme", "2.50", "--note", "invoice 7", "--json"))
    assert (paid["balance"], paid["credited"]) == ("12.50", "12.50")
    assert json.loads(good("tenants", "credit", "acme", "-12", "--json"))["balance"] == "0.50"
    assert json.loads(good("tenants", "suspend", "acme", "--json"))["status"] == "suspended"
    good("tenants", "create", "beta")
    assert good("tenants", "list").splitlines() == [
        "name  source  status     balance  held  spent_this_month  monthly_budget",
        "acme  store   suspended     0.50  0.00              0.00            3.50",
        "beta  store   active           -     -              0.00               -",
    ]
    assert json.loads(good("tenants", "activate", "acme", "--json"))["status"] == "active"
    assert (
        json.loads(good("tenants", "show", "acme", "--json"))
        == json.loads(good("tenants", "list", "--json"))[0]
    )


def test_a_key_from_its_making_to_its_end(good, run, tmp_path):
    """Its secret is the only thing on standard output, so that a shell can take it."""
    good("tenants", "create", "acme")
    code, output, errors = run(
        "keys", "create", "ci", "--tenant", "acme", "--model", MODEL, "--monthly-cap", "1"
    )
    assert code == 0
    secret = output.removesuffix("\n")
    assert (secret[:3], len(secret)) == ("on-", 46)
    assert f"is in {tmp_path / 'onward.db'}. It is not shown again." in errors
    limits = ["--requests-per-minute", "60", "--tokens-per-minute", "1000", "--concurrency", "4"]
    other = json.loads(good("keys", "create", "b", *limits, "--json"))
    assert [other[name] for name in ("requests_per_minute", "tokens_per_minute", "concurrency")] == [
        60,
        1000,
        4,
    ]
    assert other.pop("secret").startswith(other["prefix"])
    assert json.loads(good("keys", "show", "b", "--json")) == other
    assert json.loads(good("keys", "show", other["id"], "--json")) == other
    shown = json.loads(good("keys", "show", "ci", "--json"))
    assert (shown["models"], shown["tenant"], shown["monthly_cap"]) == ([MODEL], "acme", "1.00")
    listed = good("keys", "list")
    assert [line.split()[1:4] for line in listed.splitlines()[1:]] == [
        ["ci", "store", "acme"],
        ["b", "store", "-"],
    ]
    assert json.loads(good("keys", "revoke", "ci", "--json"))["revoked_at"]
    assert json.loads(good("keys", "revoke", shown["id"], "--json"))["revoked_at"]
    assert [one["name"] for one in json.loads(good("keys", "list", "--json"))] == ["b"]
    assert [one["name"] for one in json.loads(good("keys", "list", "--all", "--json"))] == ["ci", "b"]
    everything = listed + good("keys", "list", "--all") + good("keys", "show", "b")
    assert secret not in everything
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret.encode() not in raw


def test_the_store_of_a_config(good, run, tmp_path):
    """Its tenants and keys are shown with the others, and secrets of the server are not needed."""
    (tmp_path / "data").mkdir()
    (tmp_path / "my.toml").write_text(CONFIG)
    good("tenants", "create", "acme", "--config", "my.toml")
    assert (tmp_path / "data" / "kept.db").exists()
    run("keys", "create", "ci", "--tenant", "fixed", "--config", "my.toml")
    listed = json.loads(good("keys", "list", "--config", "my.toml", "--json"))
    assert [(one["name"], one["source"]) for one in listed] == [("of-the-config", "config"), ("ci", "store")]
    listed = json.loads(good("tenants", "list", "--config", "my.toml", "--json"))
    assert [(one["name"], one["source"]) for one in listed] == [("acme", "store"), ("fixed", "config")]
    assert (
        json.loads(good("tenants", "credit", "fixed", "1", "--config", "my.toml", "--json"))["balance"]
        == "1.00"
    )
    for words in (("tenants", "suspend", "fixed"), ("keys", "revoke", "of-the-config")):
        code, output, errors = run(*words, "--config", "my.toml")
        assert (code, output) == (1, "")
        assert "stands in the config and cannot be changed here" in errors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sever]\n", "sever: is not a setting; did you mean server?"),
        ("[store]\nurl = 'file.db'\n", "store.url: must be sqlite:FILE"),
        ("[[tenants]]\nname = 'a'\nbalance = '1e3'\n", "tenants[0].balance: must be a decimal string"),
        ("[store]\nurl = 'none'\n", "[store] url is none"),
        ("[", "is not TOML"),
    ],
)
def test_a_config_that_cannot_be_used(run, tmp_path, text, said):
    (tmp_path / "my.toml").write_text(text)
    code, output, errors = run("keys", "create", "x", "--config", "my.toml")
    assert (code, output) == (1, "")
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "list"),
        ("keys", "show", "x"),
        ("keys", "revoke", "x"),
        ("tenants", "list"),
        ("tenants", "credit", "x", "1"),
        ("usage",),
        ("ledger",),
    ],
    ids=" ".join,
)
def test_in_the_wrong_folder_nothing_is_made(run, tmp_path, words):
    code, output, errors = run(*words)
    assert (code, output) == (1, "")
    assert errors.startswith(
        f"onward: there is no store {tmp_path / 'onward.db'}. Go to the folder of the server"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tenants", "create", "acme"), "There is a tenant 'acme' already. Choose another name."),
        (("tenants", "create", "a/b"), "The name of a tenant stands in addresses"),
        (("tenants", "create", "x", "--balance", "-1"), "'balance' must be a decimal string"),
        (("tenants", "create", "x", "--agree", "nothing"), "There is no model with the ID 'nothing'."),
        (("tenants", "credit", "acme", "x"), "'amount' must be a decimal string"),
        (("tenants", "credit", "acme", "0"), "'amount' is nothing."),
        (("tenants", "credit", "acme", "-1"), "not prepaid"),
        (("tenants", "credit", "nobody", "1"), "There is no tenant 'nobody'."),
        (("keys", "create", "x", "--tenant", "nobody"), "There is no tenant 'nobody'. Create it first."),
        (("keys", "create", "x", "--model", "nothing"), "There is no model with the ID 'nothing'."),
        (("keys", "create", "x", "--monthly-cap", "5,00"), "'monthly_cap' must be a decimal string"),
        (("keys", "create", ""), "'name' must be a string of 1 to 200 characters."),
        (("keys", "show", "nothing"), "There is no key 'nothing'."),
        (("usage", "--from", "yesterday"), "'from' must be a day or a time"),
        (("ledger", "--request-id", "nothing"), "the ledger has no request nothing"),
    ],
    ids=str,
)
def test_what_is_refused_says_why_in_one_line(good, run, words, said):
    good("tenants", "create", "acme")
    code, output, errors = run(*words)
    assert (code, output) == (1, "")
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("keys",),
        ("keys", "create"),
        ("keys", "create", "x", "--concurrency", "0"),
        ("keys", "create", "x", "--requests-per-minute", "many"),
        ("tenants", "credit", "x"),
        ("usage", "--group-by", "nothing"),
        ("usage", "--group-by", "model,model"),
        ("usage", "--csv", "--json"),
        ("ledger", "--state", "gone"),
        ("ledger", "--limit", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: onward" in capsys.readouterr().err


def test_groups_are_those_of_the_admin_api():
    assert GROUPS == asking.GROUPS


def test_usage(good, tmp_path):
    fill(tmp_path / "onward.db")
    assert good("usage").splitlines() == [
        "model                  requests  prompt_tokens  completion_tokens  total_tokens  cached_tokens  charged  estimated",
        "smollm2-135m-instruct         2             20                 40            60             10     3.00          1",
    ]
    assert good("usage", "--csv", "--group-by", "key,tenant") == (
        "key,tenant,requests,prompt_tokens,completion_tokens,total_tokens,cached_tokens,charged,estimated\n"
        "ci,acme,2,20,40,60,10,3.00,1\n"
    )
    [row] = json.loads(good("usage", "--json", "--group-by", "day"))
    assert (row["requests"], row["charged"], row["usage"]["cached_tokens"]) == (2, "3.00", 10)
    assert (
        json.loads(good("usage", "--json", "--from", f"{row['day']}", "--to", "2099-01-01"))[0]["requests"]
        == 2
    )
    for words in (("--to", row["day"]), ("--tenant", "x"), ("--key", "x"), ("--model", "x")):
        assert json.loads(good("usage", "--json", *words)) == []


def test_ledger(good, tmp_path):
    fill(tmp_path / "onward.db")
    head, *lines = good("ledger").splitlines()
    assert head.split() == list(ledger._COLUMNS)
    assert [line.split()[1:] for line in lines] == [
        ["r2", "ci", "acme", MODEL, "held", "5.00", "0.00", "0", "-"],
        ["r1", "ci", "acme", MODEL, "settled", "5.00", "1.50", "30", "ok"],
        ["r0", "ci", "acme", MODEL, "settled", "5.00", "1.50", "30", "ok"],
    ]
    rows = json.loads(good("ledger", "--json"))
    assert [row["request_id"] for row in rows] == ["r2", "r1", "r0"]
    assert json.loads(good("ledger", "--json", "--state", "settled", "--limit", "1")) == [rows[1]]
    assert json.loads(good("ledger", "--json", "--request-id", "mine")) == [rows[2]]
    assert json.loads(good("ledger", "--json", "--tenant", "nobody")) == []
    table = list(csv.DictReader(io.StringIO(good("ledger", "--csv", "--key", "k"))))
    assert len(table) == 3
    assert table[2] == {
        "at": rows[2]["at"],
        "ended_at": rows[2]["ended_at"],
        "request_id": "r0",
        "client_request_id": "mine",
        "key": "ci",
        "key_id": "k",
        "tenant": "acme",
        "model": MODEL,
        "surface": "chat",
        "state": "settled",
        "held": "5.00",
        "charged": "1.50",
        "prompt_tokens": "10",
        "completion_tokens": "20",
        "total_tokens": "30",
        "cached_tokens": "5",
        "estimated": "false",
        "overdraft": "false",
        "outcome": "ok",
        "attempts": "a:upstream_timeout b:ok",
    }
    shown = good("ledger", "--request-id", "mine")
    assert "charged            1.50" in shown
    assert [line.split() for line in shown.splitlines()[-2:]] == [
        ["a", "upstream_timeout", "504", rows[2]["at"], "-", "7"],
        ["b", "ok", "-", rows[2]["at"], "3", "9"],
    ]


def test_a_long_ledger_is_read_in_pages(good, tmp_path, monkeypatch):
    monkeypatch.setattr("onward.cli.ledger.PAGE", 2)
    fill(tmp_path / "onward.db", 7)
    for limit in (1, 2, 3, 6, 7, 8):
        rows = json.loads(good("ledger", "--json", "--limit", str(limit)))
        assert [row["request_id"] for row in rows] == [f"r{n}" for n in range(6, -1, -1)][:limit]
    monkeypatch.setattr("onward.cli.tenants.PAGE", 2)
    monkeypatch.setattr("onward.cli.keys.PAGE", 2)
    for n in range(5):
        good("tenants", "create", f"t{n}")
        good("keys", "create", f"k{n}", "--json")
    assert len(json.loads(good("tenants", "list", "--json"))) == 5
    assert len(json.loads(good("keys", "list", "--json"))) == 5


def test_commands_leave_no_reservation_alone(good, tmp_path):
    """What a running server holds is none of their business."""
    fill(tmp_path / "onward.db", 1)
    for words in (("tenants", "create", "a"), ("keys", "list"), ("ledger",)):
        good(*words)
    page = stored(tmp_path / "onward.db", lambda store: store.entries(EntryQuery()))
    assert [entry.state.value for entry in page.entries] == ["held"]
