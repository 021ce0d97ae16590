"""The one procedure that decides about money, for every store: a batch of operations in, outcomes out.

A store loads what a batch touches into `Books`, calls `decide`, and writes down `Changes`. Nothing
else changes an account, so that the laws of the ledger are kept in this file:

- An amount is held in all accounts of a request or in none.
- What is spent and held in an account never passes its limit; of a balance: what was credited.
  A charge above what was held is an overdraft (K-10): it is charged and flagged.
- A reservation ends once. Whatever ends it again changes nothing.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec

from onward.admission.idempotency import Binding
from onward.admission.ledger import (
    Account,
    AccountKind,
    Done,
    Expire,
    Granted,
    Operation,
    Progress,
    Refused,
    Release,
    Reserve,
    Result,
    Settle,
    State,
)
from onward.admission.store import Money
from onward.core.attempt import Attempt
from onward.core.failure import invalid
from onward.core.money import format_amount
from onward.core.usage import Usage

MOST: Final = 10**18
"""The most that one request can hold or be charged: sums of several still fit 64 bits."""
MOST_IN_ACCOUNT: Final = 9 * 10**18
"""The limit of every account, also where nobody set one."""
MOST_TOKENS: Final = 10**12
"""The most tokens that an entry counts: a provider can claim anything."""

_ENDS: Final = (Settle, Release)
_GRANTED: Final = Granted()
_DONE: Final = Done()
_UNCHANGED: Final = Done(ended=False)


class Tally(msgspec.Struct):
    """The numbers of an account, in units of 10^-9."""

    credited: int = 0
    spent: int = 0
    held: int = 0


class Hold(msgspec.Struct, gc=False):
    """A reservation that has not ended."""

    reserve: Reserve
    amount: int
    """What is held of it, in every account."""
    charge: int = 0
    """Of the last `Progress`."""
    usage: Usage | None = None
    """Of the last `Progress`; None: there was none."""
    position: int = 0
    origin: int = 0
    """Where a store keeps it, and what many requests share; of no meaning here."""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How a reservation ended."""

    hold: Hold
    state: State
    charged: int
    usage: Usage
    estimated: bool
    overdraft: bool
    outcome: str
    at_ms: int
    attempts: tuple[Attempt, ...]
    binding: Binding | None = None
    """The answer that its request's name gets."""


class Changes(msgspec.Struct):
    """What a batch changed. A hold that is opened and ended in it is in both lists."""

    opened: list[Hold] = []
    marked: dict[str, Hold] = {}
    """By request ID; those that have not ended since."""
    ended: list[Ending] = []

    def accounts(self) -> set[str]:
        """Those whose `spent` or `held` may have changed."""
        holds = [*self.opened, *[ending.hold for ending in self.ended]]
        return {account.id for hold in holds for account in hold.reserve.accounts}

    def charged(self) -> set[str]:
        """The accounts whose `spent` changed."""
        return _names([ending.hold.reserve.accounts for ending in self.ended if ending.charged])


class Books(msgspec.Struct):
    """Accounts and reservations as they are. `decide` changes them in place."""

    tallies: dict[str, Tally] = {}
    """By account ID: at least all that a batch touches, of its holds too."""
    holds: dict[str, Hold] = {}
    """By request ID: at least all that a batch touches; of a lease that it expires, all."""


def accounts_of(operations: Iterable[Operation]) -> set[str]:
    """The accounts that a batch names; those of the holds that it ends come on top."""
    return _names([operation.accounts for operation in operations if isinstance(operation, Reserve)])


def _names(several: list[tuple[Account, ...]]) -> set[str]:
    """The IDs of all. Most requests of one key have the same accounts, which are looked at once."""
    names: set[str] = set()
    last = None
    for accounts in several:
        if accounts is not last:
            names.update([account.id for account in accounts])
            last = accounts
    return names


def decide(
    books: Books, operations: list[Operation], ended: Container[str] = ()
) -> tuple[list[Result], Changes]:
    """Decide a batch, in order. `ended`: those of its request IDs whose reservation ended before it.

    ValueError for amounts below 0, which no caller of ours makes; the books are spoilt then.
    """
    changes = Changes()
    ended_now: set[str] = set()
    results: list[Result] = []
    holds = books.holds
    for operation in operations:
        if isinstance(operation, Reserve):
            name = operation.request_id
            if name in holds:
                results.append(_GRANTED)
            else:
                over = name in ended_now or name in ended
                results.append(_reserve(books, operation, changes, over=over))
        elif isinstance(operation, _ENDS):
            name = operation.request_id
            if name in holds:
                _end(books, _ending(holds[name], operation), changes)
                ended_now.add(name)
                results.append(_DONE)
            else:
                results.append(_UNCHANGED)
        elif isinstance(operation, Progress):
            results.append(_progress(books, operation, changes))
        else:
            results.append(_expire(books, operation, changes, ended_now))
    return results, changes


def credited_after(money: Money, amount: int) -> int:
    """What a balance was credited once `amount` is added. Raises `Failure` where that cannot be."""
    free = money.credited - money.spent - money.held
    if amount < 0 and free + amount < 0:
        raise invalid(
            "amount", f"No more than {format_amount(max(free, 0))} can be taken from this balance. Take less."
        )
    if money.credited + amount > MOST_IN_ACCOUNT:
        raise invalid("amount", "No balance can be that large. Add less.")
    return money.credited + amount


def _reserve(books: Books, reserve: Reserve, changes: Changes, *, over: bool) -> Result:
    """`over`: a reservation of this name has ended. A store may learn that only from a hold it tries to
    write, so it is asked last.
    """
    amount = _amount(reserve.amount)
    known = books.tallies
    tallies = [known[account.id] for account in reserve.accounts]
    if amount:
        for account, tally in zip(reserve.accounts, tallies, strict=True):
            limit = tally.credited if account.kind is AccountKind.BALANCE else account.limit
            if limit is None or limit > MOST_IN_ACCOUNT:
                limit = MOST_IN_ACCOUNT
            available = limit - tally.spent - tally.held
            if amount > available:
                return Refused(account.kind, max(available, 0))
    if over:
        return _UNCHANGED
    for tally in tallies:
        tally.held += amount
    hold = Hold(reserve, amount)
    books.holds[reserve.request_id] = hold
    changes.opened.append(hold)
    return _GRANTED


def _progress(books: Books, progress: Progress, changes: Changes) -> Done:
    hold = books.holds.get(progress.request_id)
    if hold is None:
        return _UNCHANGED
    hold.charge = _amount(progress.charge)
    hold.usage = _bounded(progress.usage)
    changes.marked[progress.request_id] = hold
    return _DONE


def _ending(hold: Hold, operation: Settle | Release) -> Ending:
    if isinstance(operation, Settle):
        charge = _amount(operation.charge)
        return Ending(
            hold,
            State.SETTLED,
            charge,
            _bounded(operation.usage),
            operation.estimated,
            charge > hold.amount,
            operation.outcome,
            operation.at_ms,
            operation.attempts,
            operation.binding,
        )
    return Ending(
        hold,
        State.RELEASED,
        0,
        Usage(),
        estimated=False,
        overdraft=False,
        outcome=operation.outcome,
        at_ms=operation.at_ms,
        attempts=operation.attempts,
    )


def _expire(books: Books, expire: Expire, changes: Changes, ended_now: set[str]) -> Done:
    """Charge what the last marks say: nobody is left who knows better."""
    over = [hold for hold in books.holds.values() if hold.reserve.lease == expire.lease]
    for hold in over:
        ending = Ending(
            hold,
            State.EXPIRED,
            hold.charge,
            hold.usage or Usage(),
            estimated=hold.usage is not None,
            overdraft=hold.charge > hold.amount,
            outcome="expired",
            at_ms=expire.at_ms,
            attempts=(),
        )
        _end(books, ending, changes)
        ended_now.add(hold.reserve.request_id)
    return _DONE if over else _UNCHANGED


def _end(books: Books, ending: Ending, changes: Changes) -> None:
    hold, charged = ending.hold, ending.charged
    for account in hold.reserve.accounts:
        tally = books.tallies[account.id]
        tally.held -= hold.amount
        if charged:
            tally.spent = min(tally.spent + charged, MOST_IN_ACCOUNT)
    name = hold.reserve.request_id
    del books.holds[name]
    if hold.usage is not None:
        changes.marked.pop(name, None)
    changes.ended.append(ending)


def _amount(amount: int) -> int:
    if amount < 0:
        raise ValueError("an amount of the ledger is never below 0")
    return min(MOST, amount)


def _bounded(usage: Usage) -> Usage:
    if (
        usage.prompt_tokens <= MOST_TOKENS
        and usage.completion_tokens <= MOST_TOKENS
        and usage.cached_tokens <= MOST_TOKENS
    ):
        return usage
    return Usage(
        min(usage.prompt_tokens, MOST_TOKENS),
        min(usage.completion_tokens, MOST_TOKENS),
        min(usage.cached_tokens, MOST_TOKENS),
    )
