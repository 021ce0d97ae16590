"""What a store is told to write, and what it need not think of."""

import pytest

from onward.admission.books import (
    MOST,
    MOST_IN_ACCOUNT,
    Books,
    Hold,
    Tally,
    accounts_of,
    credited_after,
    decide,
)
from onward.admission.ledger import AccountKind, Done, Granted, Refused, State
from onward.admission.store import Money
from onward.core.failure import Failure, FailureKind
from tests.contract.stores import (
    ACCOUNTS,
    BALANCE,
    KEY,
    TENANT,
    Account,
    progress,
    release,
    reserve,
    settle,
)


@pytest.fixture
def books() -> Books:
    return Books({account.id: Tally(credited=100) for account in ACCOUNTS}, {})


def test_changes_name_what_is_to_be_written(books: Books):
    results, changes = decide(
        books, [reserve("a", 10), reserve("b", 20, (KEY,)), settle("a", 4), progress("b", 3)]
    )
    assert results == [Granted(), Granted(), Done(), Done()]
    assert [hold.reserve.request_id for hold in changes.opened] == ["a", "b"]
    assert [(ending.state, ending.charged) for ending in changes.ended] == [(State.SETTLED, 4)]
    assert list(changes.marked) == ["b"]
    assert changes.accounts() == {account.id for account in ACCOUNTS}
    assert changes.charged() == {account.id for account in ACCOUNTS}
    assert list(books.holds) == ["b"]
    assert books.tallies[BALANCE.id] == Tally(100, 4, 0)
    assert books.tallies[KEY.id] == Tally(100, 4, 20)


def test_what_is_refused_or_known_is_not_written(books: Books):
    hold = Hold(reserve("held", 5), 5)
    books.holds["held"] = hold
    results, changes = decide(
        books, [reserve("much", 101), reserve("held", 5), reserve("over", 1), settle("none", 1)], {"over"}
    )
    assert results == [Refused(AccountKind.BALANCE, 100), Granted(), Done(ended=False), Done(ended=False)]
    assert (changes.opened, changes.ended, changes.marked, changes.accounts()) == ([], [], {}, set())
    assert list(books.holds.values()) == [hold]


def test_a_mark_is_not_written_once_its_request_has_ended(books: Books):
    _, changes = decide(books, [reserve("a", 10), progress("a", 3), release("a")])
    assert changes.marked == {}
    assert changes.charged() == set()
    assert changes.accounts() == {account.id for account in ACCOUNTS}


def test_the_accounts_of_a_batch():
    assert accounts_of([settle("a", 1), reserve("b", 1, (KEY, TENANT)), reserve("c", 1, (KEY,))]) == {
        KEY.id,
        TENANT.id,
    }


def test_numbers_stay_within_64_bits(books: Books):
    """An account that nothing limits has a limit, and what overdrafts add up to stops there."""
    free = Account(KEY.id, KEY.kind)
    for number in range(12):
        decide(books, [reserve(f"r{number}", 10**30, (free,))])
    assert books.tallies[KEY.id].held == 9 * MOST
    for number in range(9):
        decide(books, [settle(f"r{number}", 10**30)])
    assert books.tallies[KEY.id] == Tally(100, MOST_IN_ACCOUNT, 0)
    results, _ = decide(books, [reserve("more", 1, (free,)), reserve("nothing", 0, (free,))])
    assert results == [Refused(AccountKind.KEY_MONTH, 0), Granted()]
    decide(books, [settle("nothing", 10**30)])
    assert books.tallies[KEY.id].spent == MOST_IN_ACCOUNT < 2**63


def test_credits():
    before = Money(id="balance:acme", credited=100, spent=60, held=30)
    assert credited_after(before, 5) == 105
    assert credited_after(before, -10) == 90
    for wrong, word in ((-11, "0.00000001"), (MOST_IN_ACCOUNT, "large")):
        with pytest.raises(Failure) as caught:
            credited_after(before, wrong)
        assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "amount")
        assert word in caught.value.message
    overdrawn = Money(id="balance:acme", credited=10, spent=60, held=0)
    assert credited_after(overdrawn, 5) == 15, "what is owed can be paid in parts"
    with pytest.raises(Failure, match=r"No more than 0\.00 can be taken"):
        credited_after(overdrawn, -1)
