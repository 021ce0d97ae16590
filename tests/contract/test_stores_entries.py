"""What every store promises about looking at the ledger: pages, filters, sums, forgetting attempts."""

import pytest

from onward.admission.ledger import Expire, State
from onward.admission.store import EntryQuery, Store, UsageQuery, UsageRow
from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from tests.contract.stores import (
    DECEMBER,
    NOVEMBER,
    Place,
    apply,
    attempt,
    entry,
    release,
    reserve,
    settle,
)

DAY = 86_400_000


@pytest.fixture
async def full(store: Store) -> Store:
    """Six requests, a second after another, of which two have not ended."""
    await apply(
        store,
        reserve("a", 10, (), at_ms=NOVEMBER, model="small", key_id="k1", key_name="one", tenant="acme"),
        reserve(
            "b", 10, (), at_ms=NOVEMBER + 1000, model="large", key_id="k1", key_name="one", tenant="acme"
        ),
        reserve("c", 10, (), at_ms=NOVEMBER + 2000, model="small", key_id="k2", key_name="two", tenant=None),
        reserve(
            "d",
            10,
            (),
            at_ms=NOVEMBER + 3000,
            model="small",
            key_id=None,
            key_name=None,
            tenant=None,
            label="x",
            lease="dead",
        ),
    )
    await apply(store, release("c"), settle("a", 7, usage=Usage(10, 20, 5)))
    await apply(
        store,
        reserve(
            "e",
            10,
            (),
            at_ms=NOVEMBER + 4000,
            model="large",
            key_id="k2",
            key_name="two",
            tenant="zeta",
            label="x",
        ),
        reserve(
            "f", 10, (), at_ms=NOVEMBER + 5000, model="large", key_id="k2", key_name="two", tenant="acme"
        ),
    )
    await apply(
        store, settle("f", 5, usage=Usage(1, 2, 0), estimated=True), Expire(lease="dead", at_ms=NOVEMBER)
    )
    return store


async def names(store: Store, **query) -> str:
    """The requests that a query finds, in its order."""
    return "".join(found.request_id for found in (await store.entries(EntryQuery(**query))).entries)


async def test_newest_first(full: Store):
    assert await names(full) == "fedcba"


async def test_filters(full: Store):
    assert await names(full, tenant="acme") == "fba"
    assert await names(full, key_id="k2") == "fec"
    assert await names(full, model="small") == "dca"
    assert await names(full, state=State.HELD) == "eb"
    assert await names(full, state=State.SETTLED) == "fa"
    assert await names(full, state=State.RELEASED) == "c"
    assert await names(full, state=State.EXPIRED) == "d"
    assert await names(full, from_ms=NOVEMBER + 2000) == "fedc"
    assert await names(full, before_ms=NOVEMBER + 2000) == "ba"
    assert await names(full, from_ms=NOVEMBER + 1000, before_ms=NOVEMBER + 4000, model="small") == "dc"
    assert await names(full, tenant="acme", model="large", state=State.SETTLED) == "f"
    assert await names(full, tenant="nobody") == ""
    assert await names(full, from_ms=-(10**30), before_ms=10**30) == "fedcba"
    assert await names(full, from_ms=10**30) == ""


async def test_by_request(full: Store):
    """Ours, or the caller's label, ended or not."""
    assert await names(full, request_id="a") == "a"
    assert await names(full, request_id="e") == "e"
    assert await names(full, request_id="x") == "ed"
    assert await names(full, request_id="x", state=State.EXPIRED) == "d"
    assert await names(full, request_id="x", tenant="zeta") == "e"
    assert await names(full, request_id="nothing") == ""


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
async def test_pages(full: Store, limit: int):
    seen, cursor = "", None
    while True:
        page = await full.entries(EntryQuery(limit=limit, cursor=cursor))
        assert len(page.entries) <= limit
        seen += "".join(found.request_id for found in page.entries)
        cursor = page.cursor
        if cursor is None:
            break
        assert page.entries
    assert seen == "fedcba"


async def test_pages_stay_while_requests_come_and_end(full: Store):
    page = await full.entries(EntryQuery(limit=2))
    await apply(full, settle("b", 1), settle("e", 1), reserve("g", 1, (), at_ms=NOVEMBER + 6000))
    rest = await full.entries(EntryQuery(limit=9, cursor=page.cursor))
    assert "".join(found.request_id for found in rest.entries) == "dcba"


async def test_pages_where_the_clock_stands_or_runs_back(store: Store):
    for number, at_ms in enumerate([5000, 5000, 5000, 4000, 6000, 10]):
        await apply(store, reserve(str(number), 1, (), at_ms=at_ms))
    first = await store.entries(EntryQuery(limit=4))
    rest = await store.entries(EntryQuery(limit=4, cursor=first.cursor))
    found = [one.request_id for one in first.entries + rest.entries]
    assert sorted(found) == list("012345")
    assert set(await names(store, from_ms=5000)) == set("0124")
    assert set(await names(store, before_ms=5000)) == set("35")


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 50, "'", "١"])
async def test_a_cursor_that_is_none_of_ours(full: Store, cursor: str):
    with pytest.raises(Failure) as caught:
        await full.entries(EntryQuery(cursor=cursor))
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "cursor")


async def test_sums(full: Store):
    assert await full.usage(UsageQuery()) == [
        UsageRow(group={}, requests=4, usage=Usage(11, 22, 5), charged=12, estimated=1)
    ]
    assert await full.usage(UsageQuery(group_by=("model",))) == [
        UsageRow(group={"model": "large"}, requests=1, usage=Usage(1, 2, 0), charged=5, estimated=1),
        UsageRow(group={"model": "small"}, requests=3, usage=Usage(10, 20, 5), charged=7, estimated=0),
    ]
    by_key = await full.usage(UsageQuery(group_by=("key", "surface")))
    assert {row.group["key"]: (row.group["surface"], row.requests) for row in by_key} == {
        None: ("chat", 1),
        "one": ("chat", 1),
        "two": ("chat", 2),
    }
    by_tenant = await full.usage(UsageQuery(group_by=("tenant",)))
    assert {row.group["tenant"]: row.charged for row in by_tenant} == {None: 0, "acme": 12}
    [filtered] = await full.usage(UsageQuery(tenant="acme", model="small", key_id="k1"))
    assert filtered.charged == 7
    assert await full.usage(UsageQuery(tenant="nobody")) == []
    assert await full.usage(UsageQuery(tenant="nobody", group_by=("model",))) == []
    [range_] = await full.usage(UsageQuery(from_ms=NOVEMBER + 1, before_ms=NOVEMBER + 5000))
    assert range_.requests == 2


async def test_days_and_months_are_those_of_utc(store: Store):
    midnight = NOVEMBER - NOVEMBER % DAY
    moments = [midnight - 1, midnight, midnight + DAY - 1, DECEMBER]
    for number, at_ms in enumerate(moments):
        name = str(number)
        await apply(store, reserve(name, 9, (), at_ms=at_ms), settle(name, 1, at_ms=DECEMBER))
    days = await store.usage(UsageQuery(group_by=("day",)))
    assert [(row.group["day"], row.requests) for row in days] == [
        ("2026-11-17", 1),
        ("2026-11-18", 2),
        ("2026-12-17", 1),
    ]
    months = await store.usage(UsageQuery(group_by=("month", "model")))
    assert [(row.group["month"], row.requests) for row in months] == [("2026-11", 3), ("2026-12", 1)]


async def test_a_group_that_is_none(store: Store):
    with pytest.raises(Failure) as caught:
        await store.usage(UsageQuery(group_by=("model", "1; DROP TABLE entries")))
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "group_by")


async def test_old_attempts_are_forgotten_and_entries_are_not(place: Place, store: Store):
    for day in range(4):
        at_ms = NOVEMBER + day * DAY
        tries = (attempt("a", started_ms=at_ms), attempt("b", started_ms=at_ms + 10))
        name = f"r{day}"
        await apply(store, reserve(name, 1, (), at_ms=at_ms), settle(name, 1, attempts=tries))
    assert await store.prune(NOVEMBER) == 0
    assert await store.prune(NOVEMBER + DAY + 10) == 3
    assert await store.prune(NOVEMBER + DAY + 10) == 0
    assert [len((await entry(store, f"r{day}")).attempts) for day in range(4)] == [0, 1, 2, 2]
    assert (await entry(store, "r1")).attempts[0].deployment == "b"
    assert await store.prune(NOVEMBER + 9 * DAY) == 5
    store = await place.crash()
    await apply(store, reserve("new", 1, ()), settle("new", 1, attempts=(attempt("new"),)))
    assert [len((await entry(store, f"r{day}")).attempts) for day in range(4)] == [0, 0, 0, 0]
    assert (await entry(store, "new")).attempts == (attempt("new"),)
    assert len((await store.entries(EntryQuery())).entries) == 5


async def test_many_attempts_are_forgotten(store: Store):
    """More than are looked at in one go."""
    names = [f"r{number}" for number in range(40)]
    tries = tuple(attempt(started_ms=number) for number in range(100))
    await store.apply([reserve(name, 1, ()) for name in names])
    await store.apply([settle(name, 1, attempts=tries) for name in names])
    assert await store.prune(50) == 2000
    assert len((await entry(store, "r39")).attempts) == 50
