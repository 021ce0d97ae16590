"""The one procedure that decides about money, for every store: a batch of operations in, outcomes out.

A store loads what a batch touches into `Books`, calls `decide`, and writes down `Changes`. Nothing
else changes an account, so that the laws of the ledger are kept in this file:

- An amount is held in all accounts of a request or in none.
- What is spent and held in an account never passes its limit; of a balance: what was credited.
  A charge above what was held is an overdraft (K-10): it is charged and flagged.
- A reservation ends once. Whatever ends it again changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final

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
_MOST_PAYINGS: Final = 4096
_GRANTED: Final = Granted()
_DONE: Final = Done()
_UNCHANGED: Final = Done(ended=False)
_NO_USAGE: Final = Usage()


class Tally:  # noqa: PLW1641 - it changes
    """The numbers of an account, in units of 10^-9."""

    __slots__ = ("credited", "held", "spent")

    def __init__(self, credited: int = 0, spent: int = 0, held: int = 0) -> None:
        self.credited = credited
        self.spent = spent
        self.held = held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (self.credited, self.spent, self.held) == (other.credited, other.spent, other.held)

    def __repr__(self) -> str:
        return f"Tally({self.credited}, {self.spent}, {self.held})"


class Hold:
    """A reservation that has not ended."""

    charge: int = 0
    """Of the last `Progress`."""
    usage: Usage | None = None
    """Of the last `Progress`; None: there was none."""
    position: int = 0
    origin: int = 0
    """Where a store keeps it, and what many requests share; of no meaning here."""

    def __init__(self, reserve: Reserve, amount: int) -> None:
        """`amount`: what is held of it, in every account."""
        self.reserve = reserve
        self.amount = amount

    def copy(self) -> "Hold":
        """One that can be changed apart."""
        copy = Hold(self.reserve, self.amount)
        copy.charge = self.charge
        copy.usage = self.usage
        copy.position = self.position
        copy.origin = self.origin
        return copy


class Ending:
    """How a reservation ended."""

    __slots__ = ("by", "charged", "hold", "state", "usage")

    def __init__(self, hold: Hold, state: State, charged: int, usage: Usage, by: Settle | Release) -> None:
        """`by`: what ended it, of which `charged` and `usage` are kept within their bounds."""
        self.hold = hold
        self.state = state
        self.charged = charged
        self.usage = usage
        self.by = by

    @property
    def estimated(self) -> bool:
        """Whether the usage was not reported by whom it ran at (K-9)."""
        return isinstance(self.by, Settle) and self.by.estimated

    @property
    def overdraft(self) -> bool:
        """Whether more was charged than was held (K-10)."""
        return self.charged > self.hold.amount

    @property
    def binding(self) -> Binding | None:
        """The answer that its request's name gets."""
        return self.by.binding if isinstance(self.by, Settle) else None


class Changes:
    """What a batch changed. A hold that is opened and ended in it is in both lists."""

    __slots__ = ("ended", "expired", "marked", "opened")

    def __init__(self) -> None:
        self.opened: list[Hold] = []
        self.marked: dict[str, Hold] = {}
        """By request ID; those that have not ended since."""
        self.ended: list[Ending] = []
        self.expired: list[str] = []
        """Leases of which everything has ended."""

    def accounts(self) -> set[str]:
        """Those whose `spent` or `held` may have changed."""
        holds = [*self.opened, *[ending.hold for ending in self.ended]]
        return {account.id for hold in holds for account in hold.reserve.accounts}

    def charged(self) -> set[str]:
        """The accounts whose `spent` changed."""
        return _names([ending.hold.reserve.accounts for ending in self.ended if ending.charged])


class _Paying:
    """The accounts of a request in the books: requests of one key have the same."""

    __slots__ = ("accounts", "shares")

    def __init__(self, accounts: tuple[Account, ...], shares: list[tuple[Tally, int | None]]) -> None:
        self.accounts = accounts
        """Kept, so that no other accounts get the same identity."""
        self.shares = shares
        """Each with its limit; None: what was credited."""


class Books:
    """Accounts and reservations as they are. `decide` changes them in place."""

    def __init__(
        self,
        tallies: dict[str, Tally] | None = None,
        holds: dict[str, Hold] | None = None,
        meet: Callable[[tuple[Account, ...]], None] | None = None,
    ) -> None:
        """`meet`: adds accounts that are not among the tallies. None: all are there that a batch touches."""
        self.tallies: dict[str, Tally] = {} if tallies is None else tallies
        """By account ID. Each is the same object as long as the books are used."""
        self.holds: dict[str, Hold] = {} if holds is None else holds
        """By request ID: at least all that a batch touches; of a lease that it expires, all."""
        self._meet = meet
        self._payings: dict[int, _Paying] = {}
        """By the identity of the accounts."""

    def paying(self, accounts: tuple[Account, ...]) -> _Paying:
        """These accounts, as they are."""
        known = self._payings.get(id(accounts))
        return self._look_up(accounts) if known is None else known

    def _look_up(self, accounts: tuple[Account, ...]) -> _Paying:
        if self._meet is not None:
            self._meet(accounts)
        tallies = self.tallies
        paying = _Paying(accounts, [(tallies[account.id], _limit(account)) for account in accounts])
        if len(self._payings) >= _MOST_PAYINGS:
            self._payings.clear()
        self._payings[id(accounts)] = paying
        return paying


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
    books: Books, operations: list[Operation], ended: Iterable[str] = ()
) -> tuple[list[Result], Changes]:
    """Decide a batch, in order. `ended`: those of its request IDs whose reservation ended before it.

    ValueError for amounts below 0, which no caller of ours makes; the books are spoilt then.
    """
    changes = Changes()
    over = set(ended)
    results: list[Result] = []
    holds = books.holds
    for operation in operations:
        if isinstance(operation, Reserve):
            name = operation.request_id
            if name in holds:
                results.append(_GRANTED)
            else:
                results.append(_reserve(books, operation, changes, over=name in over))
        elif isinstance(operation, _ENDS):
            name = operation.request_id
            hold = holds.pop(name, None)
            if hold is None:
                results.append(_UNCHANGED)
            else:
                changes.ended.append(_end(books, hold, operation))
                if hold.usage is not None:
                    changes.marked.pop(name, None)
                over.add(name)
                results.append(_DONE)
        elif isinstance(operation, Progress):
            results.append(_progress(books, operation, changes))
        else:
            results.append(_expire(books, operation, changes, over))
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
    amount = reserve.amount
    if not 0 <= amount <= MOST:
        amount = _amount(amount)
    shares = books.paying(reserve.accounts).shares
    if amount:
        for tally, limit in shares:
            held = tally.held + amount
            if held > (tally.credited if limit is None else limit) - tally.spent:
                return _refused(shares, reserve.accounts, tally, amount)
            tally.held = held
    if over:
        for tally, _ in shares:
            tally.held -= amount
        return _UNCHANGED
    hold = Hold(reserve, amount)
    books.holds[reserve.request_id] = hold
    changes.opened.append(hold)
    return _GRANTED


def _refused(
    shares: list[tuple[Tally, int | None]], accounts: tuple[Account, ...], small: Tally, amount: int
) -> Refused:
    """Let go of what is held in the accounts before the one that is too small."""
    for account, (tally, limit) in zip(accounts, shares, strict=True):
        if tally is small:
            available = (tally.credited if limit is None else limit) - tally.spent - tally.held
            return Refused(account.kind, max(available, 0))
        tally.held -= amount
    raise AssertionError("one of the accounts is too small")


def _limit(account: Account) -> int | None:
    """The most of `spent` and `held`; None: what was credited."""
    if account.kind is AccountKind.BALANCE:
        return None
    return MOST_IN_ACCOUNT if account.limit is None else min(account.limit, MOST_IN_ACCOUNT)


def _progress(books: Books, progress: Progress, changes: Changes) -> Done:
    hold = books.holds.get(progress.request_id)
    if hold is None:
        return _UNCHANGED
    hold.charge = _amount(progress.charge)
    hold.usage = _bounded(progress.usage)
    changes.marked[progress.request_id] = hold
    return _DONE


def _end(books: Books, hold: Hold, by: Settle | Release) -> Ending:
    """End a hold that is taken out of the books."""
    if isinstance(by, Settle):
        charged, usage = by.charge, by.usage
        if not 0 <= charged <= MOST:
            charged = _amount(charged)
        ending = Ending(hold, State.SETTLED, charged, _bounded(usage), by)
    else:
        charged = 0
        ending = Ending(hold, State.RELEASED, 0, _NO_USAGE, by)
    _pay(books, hold, charged)
    return ending


def _pay(books: Books, hold: Hold, charged: int) -> None:
    """Let go of what is held, and charge."""
    amount = hold.amount
    for tally, _ in books.paying(hold.reserve.accounts).shares:
        tally.held -= amount
        if charged:
            tally.spent = min(tally.spent + charged, MOST_IN_ACCOUNT)


def _expire(books: Books, expire: Expire, changes: Changes, ended: set[str]) -> Done:
    """Charge what the last marks say: nobody is left who knows better."""
    over = [hold for hold in books.holds.values() if hold.reserve.lease == expire.lease]
    for hold in over:
        name, usage = hold.reserve.request_id, hold.usage or _NO_USAGE
        by = Settle(
            request_id=name,
            charge=hold.charge,
            usage=usage,
            at_ms=expire.at_ms,
            estimated=hold.usage is not None,
            outcome="expired",
        )
        _pay(books, hold, hold.charge)
        del books.holds[name]
        changes.marked.pop(name, None)
        changes.ended.append(Ending(hold, State.EXPIRED, hold.charge, usage, by))
        ended.add(name)
    changes.expired.append(expire.lease)
    return _DONE if over else _UNCHANGED


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
