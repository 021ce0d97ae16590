"""What every store promises about money: reservations, their ends, leases, crashes."""

import pytest

from onward.admission.books import MOST, MOST_TOKENS
from onward.admission.ledger import AccountKind, Done, Expire, Granted, Refused, State
from onward.admission.store import EntryQuery, Money, Store, UsageQuery
from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from tests.contract.stores import (
    ACCOUNTS,
    BALANCE,
    DECEMBER,
    KEY,
    NOVEMBER,
    TENANT,
    Account,
    Place,
    apply,
    attempt,
    credit,
    entry,
    money,
    progress,
    release,
    reserve,
    settle,
)

GRANTED, DONE, UNCHANGED = Granted(), Done(), Done(ended=False)


async def test_a_new_store_is_empty(store: Store):
    assert (await store.directory()).keys == []
    assert (await store.entries(EntryQuery())).entries == []
    assert await store.money(["balance:acme", "key:x:2026-11"]) == [
        Money(id="balance:acme", credited=0, spent=0, held=0),
        Money(id="key:x:2026-11", credited=0, spent=0, held=0),
    ]
    assert await store.apply([]) == []
    assert await store.money([]) == []


async def test_a_settled_reservation(store: Store):
    """Everything that was said of it is in its entry; what was held is let go."""
    await credit(store, 100)
    wanted = reserve("r", 60, label="the caller's", config_version="v1", surface="messages")
    assert await apply(store, wanted) == [GRANTED]
    assert await money(store) == (100, 0, 60)
    assert await money(store, TENANT) == (0, 0, 60)
    held = await entry(store, "r")
    assert (held.state, held.held, held.charged, held.ended_ms) == (State.HELD, 60, 0, None)
    tries = (
        attempt("first", outcome="upstream_unavailable", status=503, took_ms=7),
        attempt("second", status=200, first_ms=20, took_ms=90),
    )
    assert await apply(store, settle("r", 45, estimated=True, outcome="disconnected", attempts=tries)) == [
        DONE
    ]
    assert await money(store) == (100, 45, 0)
    assert await money(store, KEY) == (0, 45, 0)
    found = await entry(store, "r")
    assert found.request_id == "r"
    assert (found.label, found.key_id, found.key_name, found.tenant) == ("the caller's", "ci", "ci", "acme")
    assert (found.model, found.surface, found.config_version) == ("model", "messages", "v1")
    assert (found.state, found.held, found.charged) == (State.SETTLED, 60, 45)
    assert (found.usage, found.estimated, found.overdraft) == (Usage(3, 4, 1), True, False)
    assert (found.outcome, found.at_ms, found.ended_ms) == ("disconnected", NOVEMBER, NOVEMBER + 1000)
    assert found.attempts == tries


async def test_a_released_reservation_costs_nothing(store: Store):
    await credit(store, 100)
    await apply(store, reserve("r", 60))
    assert await apply(store, release("r", attempts=(attempt(),))) == [DONE]
    assert await money(store) == (100, 0, 0)
    found = await entry(store, "r")
    assert (found.state, found.charged, found.usage) == (State.RELEASED, 0, Usage())
    assert (found.outcome, found.attempts) == ("upstream_unavailable", (attempt(),))


async def test_all_accounts_or_none(store: Store):
    """The account that is too small is named, and the others hold nothing."""
    await credit(store, 100)
    key = Account(KEY.id, KEY.kind, 50)
    assert await apply(store, reserve("r", 51, (BALANCE, TENANT, key))) == [
        Refused(AccountKind.KEY_MONTH, 50)
    ]
    for account in ACCOUNTS:
        assert (await money(store, account))[1:] == (0, 0)
    assert await entry(store, "r") is None
    assert await apply(store, reserve("r", 50, (BALANCE, TENANT, key))) == [GRANTED]


@pytest.mark.covers("K-10")
async def test_no_more_than_the_limit(store: Store):
    await credit(store, 100)
    assert await apply(store, reserve("a", 100)) == [GRANTED]
    assert await apply(store, reserve("b", 1)) == [Refused(AccountKind.BALANCE, 0)]
    await apply(store, settle("a", 99))
    assert await apply(store, reserve("b", 2), reserve("b", 1)) == [Refused(AccountKind.BALANCE, 1), GRANTED]


async def test_nothing_is_always_admitted(store: Store):
    """A price of zero is free, whatever the balance."""
    assert await apply(store, reserve("a", 0)) == [GRANTED]
    await credit(store, 10)
    await apply(store, reserve("b", 10), settle("b", 25))
    assert await apply(store, reserve("c", 0), settle("c", 0)) == [GRANTED, DONE]
    assert (await entry(store, "c")).overdraft is False


@pytest.mark.covers("K-10")
async def test_a_charge_above_the_hold_is_an_overdraft(store: Store):
    await credit(store, 10)
    await apply(store, reserve("r", 10))
    assert await apply(store, settle("r", 25)) == [DONE]
    found = await entry(store, "r")
    assert (found.charged, found.held, found.overdraft) == (25, 10, True)
    assert await money(store) == (10, 25, 0)
    assert await apply(store, reserve("s", 1)) == [Refused(AccountKind.BALANCE, 0)]
    await apply(store, reserve("exact", 0), settle("exact", 0))
    assert (await entry(store, "exact")).overdraft is False


async def test_limits_of_months(store: Store):
    """Spending counts where no limit is set, and a limit that is set later counts it."""
    await apply(store, reserve("a", 30, (TENANT, KEY)), settle("a", 20))
    await apply(store, reserve("b", 30, (TENANT, KEY)))
    budget = Account(TENANT.id, TENANT.kind, 60)
    assert await apply(store, reserve("c", 11, (budget, KEY))) == [Refused(AccountKind.TENANT_MONTH, 10)]
    assert await apply(store, reserve("c", 10, (budget, KEY))) == [GRANTED]
    lowered = Account(TENANT.id, TENANT.kind, 5)
    assert await apply(store, reserve("d", 1, (lowered, KEY))) == [Refused(AccountKind.TENANT_MONTH, 0)]


async def test_a_month_is_that_of_the_reservation(store: Store):
    december = Account("key:ci:2026-12", AccountKind.KEY_MONTH, 10)
    november = Account(KEY.id, KEY.kind, 10)
    await apply(store, reserve("a", 10, (november,)))
    assert await apply(store, reserve("b", 10, (december,), at_ms=DECEMBER)) == [GRANTED]
    await apply(store, settle("a", 10, at_ms=DECEMBER + 1), release("b", at_ms=DECEMBER + 1))
    assert await money(store, november) == (0, 10, 0)
    assert await money(store, december) == (0, 0, 0)


async def test_it_ends_once(store: Store):
    await credit(store, 100)
    await apply(store, reserve("r", 60))
    assert await apply(store, settle("r", 45), settle("r", 50)) == [DONE, UNCHANGED]
    later = [
        settle("r", 50),
        release("r"),
        progress("r", 50),
        Expire(lease="lease", at_ms=NOVEMBER),
    ]
    assert await store.apply(later) == [UNCHANGED] * 4
    assert await money(store) == (100, 45, 0)
    found = await entry(store, "r")
    assert (found.state, found.charged, found.outcome) == (State.SETTLED, 45, "ok")


async def test_ends_of_what_never_was(store: Store):
    assert await apply(store, settle("x", 1), release("y"), progress("z", 1)) == [UNCHANGED] * 3
    assert (await store.entries(EntryQuery())).entries == []


async def test_a_repeated_reservation_holds_once(place: Place, store: Store):
    await credit(store, 100)
    assert await apply(store, reserve("r", 60), reserve("r", 60)) == [GRANTED, GRANTED]
    assert await apply(store, reserve("r", 60)) == [GRANTED]
    assert await money(store) == (100, 0, 60)
    store = await place.crash()
    assert await apply(store, reserve("r", 60), reserve("other", 40)) == [GRANTED, GRANTED]
    assert await money(store) == (100, 0, 100)


async def test_what_has_ended_is_never_held_again(place: Place, store: Store):
    await credit(store, 100)
    assert await apply(store, reserve("a", 10), settle("a", 5), reserve("a", 10)) == [
        GRANTED,
        DONE,
        UNCHANGED,
    ]
    assert await apply(store, reserve("b", 10), reserve("a", 10), reserve("c", 10)) == [
        GRANTED,
        UNCHANGED,
        GRANTED,
    ]
    store = await place.crash()
    assert await apply(store, reserve("a", 10), settle("a", 7)) == [UNCHANGED, UNCHANGED]
    assert await money(store) == (100, 5, 20)


async def test_a_batch_happens_in_order(store: Store):
    """What one operation frees the next one can hold."""
    await credit(store, 10)
    assert await apply(
        store,
        reserve("a", 10),
        reserve("b", 10),
        settle("a", 3),
        reserve("b", 10),
        reserve("b", 7),
        release("b"),
        reserve("c", 7),
        settle("c", 7),
        reserve("d", 1),
    ) == [
        GRANTED,
        Refused(AccountKind.BALANCE, 0),
        DONE,
        Refused(AccountKind.BALANCE, 7),
        GRANTED,
        DONE,
        GRANTED,
        DONE,
        Refused(AccountKind.BALANCE, 0),
    ]
    assert await money(store) == (10, 10, 0)


async def test_a_large_batch(store: Store):
    await credit(store, 1000)
    names = [f"request-{number:04}" for number in range(1500)]
    results = await store.apply([reserve(name, 1) for name in names])
    assert results == [GRANTED] * 1000 + [Refused(AccountKind.BALANCE, 0)] * 500
    results = await store.apply([settle(name, 1) for name in names])
    assert results == [DONE] * 1000 + [UNCHANGED] * 500
    assert await money(store) == (1000, 1000, 0)


async def test_an_amount_below_zero_is_a_fault(store: Store):
    await credit(store, 100)
    for wrong in (reserve("w", -1), settle("r", -1), progress("r", -1)):
        with pytest.raises(ValueError):
            await apply(store, reserve("r", 10), reserve("s", 10), wrong)
        assert await money(store) == (100, 0, 0)
    assert await apply(store, reserve("r", 10)) == [GRANTED]


async def test_numbers_of_any_size(store: Store):
    """What callers ask for and providers claim has no bound; what is kept has."""
    huge = 10**40
    assert await apply(store, reserve("limited", huge)) == [Refused(AccountKind.BALANCE, 0)]
    assert await apply(store, reserve("free", huge, ())) == [GRANTED]
    usage = Usage(huge, huge, huge)
    assert await apply(store, progress("free", huge, usage), settle("free", huge, usage=usage)) == [DONE] * 2
    found = await entry(store, "free")
    assert (found.held, found.charged) == (MOST, MOST)
    assert found.usage == Usage(MOST_TOKENS, MOST_TOKENS, MOST_TOKENS)
    for number in range(20):
        name = f"n{number}"
        await apply(store, reserve(name, 0, (KEY,)), settle(name, huge))
    assert (await money(store, KEY))[1] <= 2**63 - 1
    [sums] = await store.usage(UsageQuery())
    assert sums.charged == 21 * MOST


async def test_texts_of_any_sort(store: Store):
    text = "naïve 'quotes\" ; -- %s ? :x \\ 東京 🙂"
    await apply(
        store,
        reserve("r", 0, (), model=text, key_name=text, key_id=text, tenant=text, label=text, lease=text),
    )
    assert await store.expire_leases(NOVEMBER, frozenset({text})) == 0
    await apply(store, settle("r", 0, outcome=text, attempts=(attempt(text, outcome=text),)))
    found = await entry(store, text)
    assert {found.model, found.key_name, found.key_id, found.tenant, found.label, found.outcome} == {text}
    assert found.attempts[0].deployment == text


async def test_progress_is_what_a_crash_costs(place: Place, store: Store):
    await credit(store, 100)
    await apply(store, reserve("r", 50), reserve("s", 50))
    assert await apply(store, progress("r", 10), progress("r", 20, Usage(3, 9, 2))) == [DONE, DONE]
    assert await money(store) == (100, 0, 100)
    marked = await entry(store, "r")
    assert (marked.state, marked.usage) == (State.HELD, Usage(3, 9, 2))
    store = await place.crash()
    assert await apply(store, Expire(lease="other", at_ms=NOVEMBER)) == [UNCHANGED]
    assert await apply(store, Expire(lease="lease", at_ms=NOVEMBER + 5)) == [DONE]
    found = await entry(store, "r")
    assert (found.state, found.charged, found.held) == (State.EXPIRED, 20, 50)
    assert (found.usage, found.estimated, found.ended_ms) == (Usage(3, 9, 2), True, NOVEMBER + 5)
    bare = await entry(store, "s")
    assert (bare.state, bare.charged, bare.usage, bare.estimated) == (State.EXPIRED, 0, Usage(), False)
    assert await money(store) == (100, 20, 0)


async def test_expiring_what_the_same_batch_reserved(store: Store):
    assert await apply(
        store,
        reserve("a", 0, (), lease="one"),
        reserve("b", 0, (), lease="two"),
        progress("a", 3),
        Expire(lease="one", at_ms=NOVEMBER),
        settle("a", 1),
        settle("b", 1),
    ) == [GRANTED, GRANTED, DONE, DONE, UNCHANGED, DONE]
    found = await entry(store, "a")
    assert (found.charged, found.overdraft) == (3, True)


async def test_leases(store: Store):
    await apply(store, *[reserve(lease, 0, (), lease=lease) for lease in ("old", "new", "mine", "never")])
    await store.renew("old", 1000)
    await store.renew("mine", 1000)
    await store.renew("new", 5000)
    await store.renew("new", 2000)
    assert await store.expire_leases(900, frozenset({"never"})) == 0
    assert await store.expire_leases(3000, frozenset({"mine"})) == 2
    assert {name: (await entry(store, name)).state for name in ("old", "new", "mine", "never")} == {
        "old": State.EXPIRED,
        "new": State.HELD,
        "mine": State.HELD,
        "never": State.EXPIRED,
    }
    assert (await entry(store, "old")).ended_ms == 3000
    assert await store.expire_leases(3000, frozenset({"mine"})) == 0
    assert await store.expire_leases(6000, frozenset()) == 2


async def test_a_restart_changes_nothing(place: Place, store: Store):
    await credit(store, 100)
    await apply(store, reserve("a", 10), reserve("b", 20), settle("a", 5, attempts=(attempt(),)))
    before = (await store.entries(EntryQuery())).entries
    await store.close()
    store = await place.open()
    assert (await store.entries(EntryQuery())).entries == before
    assert await money(store) == (100, 5, 20)
    assert await apply(store, settle("b", 20)) == [DONE]
    assert await apply(store, reserve("c", 76)) == [Refused(AccountKind.BALANCE, 75)]


async def test_a_crash_loses_nothing_that_was_answered(place: Place, store: Store):
    await credit(store, 100)
    for number in range(5):
        await apply(store, reserve(f"a{number}", 10))
        if number % 2:
            await apply(store, settle(f"a{number}", number, attempts=(attempt(f"d{number}"),)))
        store = await place.crash()
    assert await money(store) == (100, 4, 30)
    assert (await entry(store, "a3")).attempts == (attempt("d3"),)
    assert await apply(store, reserve("b", 0, ()), settle("b", 0, attempts=(attempt("b"),))) == [
        GRANTED,
        DONE,
    ]
    assert (await entry(store, "a3")).attempts == (attempt("d3"),)


async def test_money_that_somebody_else_adds(place: Place, store: Store):
    """A command credits beside the server, which knows at once."""
    beside = await place.beside()
    assert await apply(store, reserve("a", 10)) == [Refused(AccountKind.BALANCE, 0)]
    await credit(beside, 10)
    assert await apply(store, reserve("a", 10)) == [GRANTED]
    with pytest.raises(Failure):
        await credit(beside, -1)
    await apply(store, settle("a", 4))
    assert await credit(beside, -6) == Money(id="balance:acme", credited=4, spent=4, held=0)
    assert await apply(store, reserve("b", 1)) == [Refused(AccountKind.BALANCE, 0)]
    assert (await entry(beside, "a")).charged == 4


async def test_credits(store: Store):
    assert await credit(store, 100, once="opening") == Money(id="balance:acme", credited=100, spent=0, held=0)
    assert (await credit(store, 100, once="opening")).credited == 100
    assert (await credit(store, 7, "other", once="opening")).credited == 7
    assert (await credit(store, 1)).credited == 101
    assert (await credit(store, 1)).credited == 102
    await apply(store, reserve("a", 50), reserve("b", 10), settle("a", 30))
    for amount in (-63, -(10**30)):
        with pytest.raises(Failure) as caught:
            await credit(store, amount)
        assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "amount")
    assert await credit(store, -62) == Money(id="balance:acme", credited=40, spent=30, held=10)
    assert await apply(store, reserve("c", 1)) == [Refused(AccountKind.BALANCE, 0)]
    with pytest.raises(Failure) as caught:
        await credit(store, 10**30)
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "amount")
    with pytest.raises(Failure):
        await credit(store, -1, once="word")
    assert (await credit(store, 1, once="word")).credited == 41, "a refused credit does not use up its word"


async def test_a_store_that_is_closed_does_not_answer(store: Store):
    await store.close()
    await store.close()
    for call in (store.apply([reserve("r", 1)]), store.directory(), store.renew("lease", 1)):
        with pytest.raises(Failure) as caught:
            await call
        assert caught.value.kind is FailureKind.STORE_DOWN
