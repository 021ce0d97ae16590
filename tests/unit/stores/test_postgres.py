"""The ledger in PostgreSQL: beliefs that are checked, and several gateways at once."""

import asyncio
import random
import time

import pytest

from onward.admission.ledger import Account, AccountKind, Done, Expire, Granted, Refused
from onward.admission.store import EntryQuery
from onward.stores.postgres import database as database_module
from onward.stores.postgres import ledger as ledger_module
from onward.stores.postgres import store as store_module
from tests.contract.stores import (
    ACCOUNTS,
    BALANCE,
    apply,
    attempt,
    connect_to_postgres,
    credit,
    entry,
    money,
    progress,
    release,
    reserve,
    settle,
)
from tests.unit.stores.conftest import Open

GRANTED, DONE = Granted(), Done()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many operations each batch had that was decided behind locks."""
    seen: list[int] = []
    load = ledger_module._load

    async def counting(connection, operations):
        seen.append(len(operations))
        return await load(connection, operations)

    monkeypatch.setattr(ledger_module, "_load", counting)
    return seen


async def test_a_gateway_alone_writes_each_batch_in_one_statement(opened: Open, loads: list[int]):
    store = await opened()
    await credit(store, 1000)
    await apply(store, reserve("first", 1))
    assert loads, "accounts are met for the first time"
    loads.clear()
    for number in range(5):
        name = f"r{number}"
        assert await apply(store, reserve(name, 10), progress(name, 3)) == [GRANTED, DONE]
        assert await apply(store, progress(name, 4), reserve(f"s{number}", 10_000)) == [
            DONE,
            Refused(AccountKind.BALANCE, 989 - 5 * number),
        ]
        assert await apply(store, settle(name, 5, attempts=(attempt(), attempt("b")))) == [DONE]
        assert await apply(store, reserve(f"t{number}", 10), release(f"t{number}")) == [GRANTED, DONE]
    assert loads == []
    assert await money(store) == (1000, 25, 1)
    assert [one.deployment for one in (await entry(store, "r3")).attempts] == ["local", "b"]


async def test_what_others_changed_is_seen(opened: Open, loads: list[int]):
    """Nothing is granted or refused on what is not so any more."""
    one, other = await opened(), await opened()
    await credit(one, 100)
    assert await apply(one, reserve("a", 60)) == [GRANTED]
    assert await apply(other, reserve("b", 60)) == [Refused(AccountKind.BALANCE, 40)]
    assert await apply(other, reserve("c", 40)) == [GRANTED]
    assert await apply(one, reserve("d", 1)) == [Refused(AccountKind.BALANCE, 0)]
    await credit(other, 5)
    assert await apply(one, reserve("d", 5)) == [GRANTED]
    assert await apply(other, settle("a", 10)) == [DONE], "whoever ends it"
    assert await apply(one, settle("a", 60)) == [Done(ended=False)]
    assert await apply(one, progress("a", 60)) == [Done(ended=False)]
    assert await money(one) == (105, 10, 45)


async def test_beliefs_come_back(opened: Open, loads: list[int]):
    one, other = await opened(), await opened()
    await credit(one, 100)
    for store, name in ((one, "a"), (other, "b"), (one, "c")):
        await apply(store, reserve(name, 1))
    loads.clear()
    for number in range(30):
        await apply(one, reserve(f"r{number}", 1))
    assert len(loads) <= ledger_module._DOUBTFUL


async def test_several_gateways_at_once(opened: Open):
    """Random requests of four gateways on the same accounts: nothing is overspent, lost or charged twice."""
    stores = [await opened() for _ in range(4)]
    await credit(stores[0], 300)
    budget = Account(ACCOUNTS[1].id, ACCOUNTS[1].kind, 250)
    charged: list[int] = []

    async def client(number: int) -> None:
        draw = random.Random(number)
        for step in range(12):
            name, store = f"{number}-{step}", draw.choice(stores)
            amount = draw.randrange(1, 40)
            [result] = await apply(store, reserve(name, amount, (BALANCE, budget, ACCOUNTS[2])))
            if isinstance(result, Refused):
                continue
            if draw.random() < 0.5:
                assert await apply(store, progress(name, 1)) == [DONE]
            charge = draw.randrange(amount + 1)
            ends = release(name) if draw.random() < 0.3 else settle(name, charge)
            assert await apply(draw.choice(stores), ends) == [DONE]
            charged.append(getattr(ends, "charge", 0))
            credited, spent, held = await money(store)
            assert spent + held <= 250, credited

    await asyncio.gather(*(client(number) for number in range(16)))
    assert await money(stores[0]) == (300, sum(charged), 0)
    page = await stores[0].entries(EntryQuery(limit=1000))
    assert sum(one.charged for one in page.entries) == sum(charged)


async def test_one_ends_it(opened: Open):
    """Everybody ends the same request at once, in all ways."""
    stores = [await opened() for _ in range(3)]
    for number in range(10):
        name = f"r{number}"
        await apply(stores[0], reserve(name, 5, () if number % 2 else ACCOUNTS[2:]))
        ends = (settle(name, 3), release(name), Expire(lease="lease", at_ms=1))
        results = await asyncio.gather(*(apply(*pair) for pair in zip(stores, ends, strict=True)))
        assert sorted(result.ended for [result] in results) == [False, False, True]


async def test_g20_a_thousand_at_once_over_few_connections(opened: Open):
    stores = [await opened(), await opened()]
    await credit(stores[0], 10_000)

    async def request(number: int) -> None:
        store, name = stores[number % 2], f"r{number}"
        accounts = (BALANCE, Account(f"key:k{number % 7}:2026-11", AccountKind.KEY_MONTH))
        assert await apply(store, reserve(name, 10, accounts)) == [GRANTED]
        await store.money([account.id for account in accounts])
        assert await apply(stores[(number + 1) % 2], settle(name, 10)) == [DONE]

    async with asyncio.timeout(60):
        await asyncio.gather(*(request(number) for number in range(1000)))
    assert await money(stores[0]) == (10_000, 10_000, 0)
    connection = await connect_to_postgres()
    used = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward' AND pid <> pg_backend_pid()"
    )
    await connection.close()
    assert used >= 2
    assert sum(len(store._database._pool._holders) for store in stores) == 2 * database_module.POOL


async def test_items_that_cannot_be_kept_harm_nobody_else(opened: Open):
    store = await opened()
    results = await asyncio.gather(
        apply(store, reserve("a", 1, ())),
        apply(store, reserve("b", 1, (), label="nul \x00")),
        apply(store, reserve("c", 1, (), label="lone \ud800")),
        apply(store, reserve("d", 1, ())),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [list, ValueError, ValueError, list]
    assert await apply(store, settle("a", 0), settle("d", 0)) == [DONE, DONE]


async def test_leases_go_by_the_clock_of_the_database(opened: Open, monkeypatch: pytest.MonkeyPatch):
    """A host whose clock is an hour ahead, or behind, ends nobody's requests."""
    right, wrong = await opened(), await opened()
    for ahead_s in (3600, -3600):

        class Clock:
            @staticmethod
            def time(ahead_s: int = ahead_s) -> float:
                return time.time() + ahead_s

        living, dead = f"living{ahead_s}", f"dead{ahead_s}"
        now = int(time.time() * 1000)
        await apply(right, reserve(living, 1, (), lease=living), reserve(dead, 1, (), lease=dead))
        await right.renew(living, now + 30_000)
        await right.renew(dead, now - 1000)
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "time", Clock)
            wrong._ahead_ms = None
            assert await wrong.expire_leases(int(Clock.time() * 1000), frozenset()) == 1
            await wrong.renew("of the wrong", int((Clock.time() + 30) * 1000))
        await apply(right, reserve(f"other{ahead_s}", 1, (), lease="of the wrong"))
        assert await right.expire_leases(now, frozenset()) == 0
        assert (await entry(right, living)).ended_ms is None
        assert (await entry(right, dead)).ended_ms is not None


async def test_an_expiry_by_two_hosts_happens_once(opened: Open):
    stores = [await opened() for _ in range(3)]
    await apply(
        stores[0], *[reserve(f"r{number}", 1, () if number % 2 else ACCOUNTS[2:]) for number in range(30)]
    )
    counts = await asyncio.gather(*(store.expire_leases(1000, frozenset()) for store in stores))
    assert sum(counts) == 30
    assert await money(stores[0], ACCOUNTS[2]) == (0, 0, 0)
