"""The way in and the way out: what is taken is given back, whatever becomes of a request."""

import asyncio
from datetime import UTC, datetime

import pytest

from onward.admission.books import Books, Tally, accounts_of, decide
from onward.admission.demand import Demand
from onward.admission.gate import Gate, Grant, Takes
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Done, Operation, Progress, Release, Reserve, Result, Settle
from onward.admission.limits import Exceeded, GiveBack, LimitKind, Take
from onward.core.attempt import Attempt
from onward.core.failure import Failure, FailureKind
from onward.core.money import NANO
from onward.core.price import Price
from onward.core.usage import Usage

PRICE = Price(input=1_000_000, cached_input=0, output=2_000_000)
"""A prompt token costs 1, a completion token 2."""
FREE = Price(input=0, cached_input=0, output=0)
KEY = Key(id="key_ci", name="ci", sha256=b"", tenant="acme")
LIMITED = Key(id="key_few", name="few", sha256=b"", tokens_per_minute=1000, concurrency=2)
ACME = Tenant(name="acme", prepaid=True)


class HeldClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp()

    def unix(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Ledger:
    """A ledger in memory, which can be slow or down."""

    def __init__(self) -> None:
        self.books = Books()
        self.operations: list[Operation] = []
        self.down = False
        self.lost = False
        """Whether operations are written though the store says that it is down."""
        self.go = asyncio.Event()
        self.go.set()

    def credit(self, amount: int, tenant: str = "acme") -> None:
        self.books.tallies.setdefault(f"balance:{tenant}", Tally()).credited = amount

    def write(self, operation: Operation) -> asyncio.Future[Result]:
        self.operations.append(operation)
        future = asyncio.get_running_loop().create_future()
        result: Result | None = None
        if not self.down or self.lost:
            for account in accounts_of([operation]):
                self.books.tallies.setdefault(account, Tally())
            [result], _ = decide(self.books, [operation])
        if self.down:
            future.set_exception(Failure(FailureKind.STORE_DOWN, "It is down."))
            future.exception()
        else:
            task = asyncio.ensure_future(self._answer(future, result))
            future.add_done_callback(lambda _: task.done())
        return future

    async def _answer(self, future: asyncio.Future[Result], result: Result) -> None:
        await self.go.wait()
        if not future.done():
            future.set_result(result)

    def said(self, kind: type) -> list:
        return [operation for operation in self.operations if isinstance(operation, kind)]

    @property
    def balance(self) -> Tally:
        return self.books.tallies["balance:acme"]


class Limits:
    """Rate limits that do what the test says."""

    def __init__(self) -> None:
        self.taken: list[Take] = []
        self.ended: list[GiveBack] = []
        self.answer: Exceeded | Failure | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def take(self, take: Take) -> Exceeded | None:
        self.taken.append(take)
        await self.go.wait()
        if isinstance(self.answer, Failure):
            raise self.answer
        return self.answer

    def give_back(self, end: GiveBack) -> asyncio.Future[None]:
        self.ended.append(end)
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
async def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def limits() -> Limits:
    return Limits()


@pytest.fixture
async def gate(ledger: Ledger, limits: Limits, clock: HeldClock) -> Gate:
    return Gate(
        write=ledger.write,
        limits=Takes(limits.take, limits.give_back),
        lease="lease",
        clock=clock,
        currency="EUR",
    )


def demand(**fields) -> Demand:
    values = {
        "request_id": "r",
        "key": KEY,
        "tenant": ACME,
        "model": "model",
        "price": PRICE,
        "surface": "chat",
        "prompt_tokens": 10,
        "choices": 1,
        "max_tokens": 20,
        "config_version": "v7",
    }
    return Demand(**(values | fields))


async def admit(gate: Gate, **fields) -> Grant:
    return await gate.admit(demand(**fields), Usage())


async def refused(gate: Gate, **fields) -> Failure:
    with pytest.raises(Failure) as caught:
        await admit(gate, **fields)
    assert list(gate.running) == []
    return caught.value


async def test_the_worst_case_is_held_and_the_real_one_charged(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    grant = await admit(gate, choices=3, label="theirs")
    assert (grant.max_tokens, grant.held) == (20, 10 + 3 * 20 * 2)
    [reserve] = ledger.said(Reserve)
    assert (reserve.amount, reserve.lease, reserve.label) == (grant.held, "lease", "theirs")
    assert (reserve.key_id, reserve.key_name, reserve.tenant) == ("key_ci", "ci", "acme")
    assert (reserve.model, reserve.surface, reserve.config_version) == ("model", "chat", "v7")
    assert [account.id for account in reserve.accounts] == [
        "balance:acme",
        "tenant:acme:2026-11",
        "key:key_ci:2026-11",
    ]
    assert list(gate.running) == [grant]
    grant.usage.prompt_tokens, grant.usage.completion_tokens = 10, 7
    tried = (Attempt(deployment="local", outcome="ok", started_ms=1),)
    assert await gate.settle(grant, attempts=tried, outcome="disconnected", estimated=True) == 24
    [settle] = ledger.said(Settle)
    assert (settle.charge, settle.usage, settle.attempts) == (24, Usage(10, 7, 0), tried)
    assert (settle.outcome, settle.estimated) == ("disconnected", True)
    assert ledger.balance == Tally(1000, 24, 0)
    assert list(gate.running) == []


async def test_a_settlement_keeps_what_was_used_then(gate: Gate, ledger: Ledger):
    """The engine may still count on while it is being stopped."""
    ledger.credit(1000)
    grant = await admit(gate)
    grant.usage.completion_tokens = 5
    await gate.settle(grant)
    grant.usage.completion_tokens = 6
    assert ledger.said(Settle)[0].usage.completion_tokens == 5


async def test_a_release_costs_nothing(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    grant = await admit(gate)
    grant.usage.completion_tokens = 5
    await gate.release(grant, outcome="upstream_unavailable")
    assert ledger.balance == Tally(1000, 0, 0)
    assert ledger.said(Release)[0].outcome == "upstream_unavailable"


async def test_a_grant_ends_once(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    grant = await admit(gate)
    await gate.settle(grant)
    with pytest.raises(RuntimeError):
        await gate.settle(grant)
    with pytest.raises(RuntimeError):
        await gate.release(grant, outcome="x")


async def test_a_request_id_is_used_once(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    await gate.settle(await admit(gate))

    async def ended(_: Operation) -> Result:
        return Done(ended=False)

    gate = Gate(write=ended, limits=None, lease="l", clock=HeldClock())
    with pytest.raises(RuntimeError):
        await admit(gate)
    assert list(gate.running) == []


@pytest.mark.parametrize(
    ("key", "tenant", "accounts"),
    [
        (None, None, []),
        (Key(id="k", name="k", sha256=b""), None, [("key:k:2026-11", None)]),
        (Key(id="k", name="k", sha256=b"", monthly_cap=7), None, [("key:k:2026-11", 7)]),
        (
            KEY,
            Tenant(name="acme", monthly_budget=9),
            [("tenant:acme:2026-11", 9), ("key:key_ci:2026-11", None)],
        ),
    ],
)
async def test_who_pays(gate: Gate, ledger: Ledger, key: Key | None, tenant: Tenant | None, accounts: list):
    await admit(gate, key=key, tenant=tenant, price=FREE)
    assert [(account.id, account.limit) for account in ledger.said(Reserve)[0].accounts] == accounts


async def test_the_month_turns_and_limits_change(gate: Gate, ledger: Ledger, clock: HeldClock):
    """The accounts of a key are those of now, whatever it had a moment ago."""

    async def accounts(key: Key) -> list[tuple[str, int | None]]:
        ledger.operations.clear()
        grant = await admit(gate, key=key, tenant=None, price=FREE)
        await gate.settle(grant)
        return [(account.id, account.limit) for account in ledger.said(Reserve)[0].accounts]

    key = Key(id="k", name="k", sha256=b"", monthly_cap=7)
    assert await accounts(key) == [("key:k:2026-11", 7)]
    assert await accounts(key) == [("key:k:2026-11", 7)]
    assert await accounts(Key(id="k", name="k", sha256=b"", monthly_cap=8)) == [("key:k:2026-11", 8)]
    clock.now += 60
    assert await accounts(key) == [("key:k:2026-12", 7)]
    clock.now -= 60
    assert await accounts(key) == [("key:k:2026-11", 7)]


async def test_a_request_that_runs_into_the_next_month_is_of_the_one_before(
    gate: Gate, ledger: Ledger, clock: HeldClock
):
    ledger.credit(1000)
    grant = await admit(gate)
    clock.now += 3600
    grant.usage.completion_tokens = 3
    await gate.settle(grant)
    assert ledger.books.tallies["key:key_ci:2026-11"].spent == 6
    assert "key:key_ci:2026-12" not in ledger.books.tallies


async def test_a_balance_that_is_too_small(gate: Gate, ledger: Ledger):
    ledger.credit(49)
    failure = await refused(gate)
    assert failure.kind is FailureKind.INSUFFICIENT_BALANCE
    assert "0.000000049 EUR" in failure.message
    assert "0.00000005 EUR" in failure.message
    assert ledger.balance.held == 0
    ledger.credit(50)
    await admit(gate)


async def test_budgets_that_are_used_up(gate: Gate, ledger: Ledger):
    budget = await refused(gate, tenant=Tenant(name="acme", monthly_budget=49))
    cap = await refused(gate, key=Key(id="k", name="k", sha256=b"", monthly_cap=49), tenant=None)
    assert (budget.kind, cap.kind) == (FailureKind.BUDGET_EXCEEDED,) * 2
    assert "account's monthly budget" in budget.message
    assert "key's monthly cap" in cap.message
    for failure in (budget, cap):
        assert failure.message.endswith("wait for the next month.")


@pytest.mark.covers("K-10")
async def test_max_tokens_are_lowered_to_what_the_balance_carries(gate: Gate, ledger: Ledger):
    ledger.credit(10 + 2 * 3 * 4 + 5)
    grant = await admit(gate, choices=3, max_tokens=8192, lowerable=True)
    assert (grant.max_tokens, grant.held) == (4, 10 + 2 * 3 * 4)
    assert grant.demand.max_tokens == 8192
    assert ledger.balance.held == grant.held


@pytest.mark.covers("K-10")
async def test_what_the_balance_cannot_carry_at_all_is_refused(gate: Gate, ledger: Ledger):
    ledger.credit(11)
    assert (await refused(gate, lowerable=True)).kind is FailureKind.INSUFFICIENT_BALANCE
    ledger.credit(9)
    assert (await refused(gate, lowerable=True)).kind is FailureKind.INSUFFICIENT_BALANCE
    ledger.credit(12)
    assert (await admit(gate, lowerable=True)).max_tokens == 1


@pytest.mark.covers("K-10")
async def test_only_the_balance_lowers(gate: Gate, ledger: Ledger):
    """Neither a budget nor a request that says how much it wants."""
    capped = Key(id="k", name="k", sha256=b"", monthly_cap=40)
    failure = await refused(gate, key=capped, tenant=None, lowerable=True)
    assert failure.kind is FailureKind.BUDGET_EXCEEDED
    ledger.credit(40)
    assert (await refused(gate, lowerable=False)).kind is FailureKind.INSUFFICIENT_BALANCE
    ledger.credit(45)
    failure = await refused(gate, key=capped, lowerable=True)
    assert failure.kind is FailureKind.BUDGET_EXCEEDED, "what the balance carries is more than the cap does"


async def test_lowering_while_others_take_the_balance(gate: Gate, ledger: Ledger):
    """It is tried again, and not for ever."""
    write = ledger.write

    def write_and_take(operation: Operation) -> asyncio.Future[Result]:
        future = write(operation)
        ledger.balance.held += 10
        return future

    ledger.write = write_and_take
    ledger.credit(48)
    greedy = Gate(write=ledger.write, limits=None, lease="l", clock=HeldClock())
    failure = await refused(greedy, lowerable=True)
    assert failure.kind is FailureKind.INSUFFICIENT_BALANCE
    assert [reserve.amount for reserve in ledger.said(Reserve)] == [50, 48, 38]


async def test_a_model_without_a_price(gate: Gate, ledger: Ledger):
    """Refused where money is counted, free elsewhere; a price of zero is a price."""
    ledger.credit(1000)
    for fields in (
        {},
        {"tenant": Tenant(name="acme", monthly_budget=5)},
        {"tenant": None, "key": Key(id="k", name="k", sha256=b"", monthly_cap=5)},
    ):
        failure = await refused(gate, price=None, **fields)
        assert (failure.kind, failure.param) == (FailureKind.PAYMENT_REQUIRED, "model")
    assert ledger.operations == []
    grant = await admit(gate, price=FREE)
    grant.usage.completion_tokens = 5
    assert await gate.settle(grant) == 0
    await admit(gate, request_id="s", price=None, key=Key(id="k", name="k", sha256=b""), tenant=None)
    await admit(gate, request_id="t", price=None, key=None, tenant=None)


async def test_limits_are_taken_and_given_back(gate: Gate, limits: Limits):
    grant = await admit(gate, key=LIMITED, tenant=None, choices=2)
    [take] = limits.taken
    assert (take.request_id, take.subject, take.lease, take.tokens) == ("r", "key_few", "lease", 50)
    assert (take.requests_per_minute, take.tokens_per_minute, take.concurrency) == (None, 1000, 2)
    grant.usage.prompt_tokens, grant.usage.completion_tokens = 9, 3
    await gate.settle(grant)
    assert limits.ended == [GiveBack(request_id="r", subject="key_few", tokens=12, counts=True)]
    grant = await admit(gate, key=LIMITED, tenant=None, request_id="s")
    await gate.release(grant, outcome="x")
    assert limits.ended[1:] == [GiveBack(request_id="s", subject="key_few", tokens=0, counts=False)]


async def test_a_key_without_limits_takes_none(gate: Gate, ledger: Ledger, limits: Limits):
    ledger.credit(1000)
    await gate.settle(await admit(gate))
    assert (limits.taken, limits.ended) == ([], [])


@pytest.mark.parametrize(
    ("kind", "after", "said"),
    [
        (LimitKind.REQUESTS, 7, "may make 60 requests per minute"),
        (LimitKind.TOKENS, 7, "60 tokens per minute and this request could use 30"),
        (LimitKind.TOKENS, 0, "so it never passes"),
        (LimitKind.CONCURRENCY, 1, "may have 60 requests running at once"),
    ],
)
async def test_limits_that_are_reached(
    gate: Gate, ledger: Ledger, limits: Limits, kind: LimitKind, after: int, said: str
):
    limits.answer = Exceeded(kind=kind, limit=60, retry_after_s=after)
    failure = await refused(gate, key=LIMITED, tenant=None)
    assert (failure.kind, failure.retry_after) == (FailureKind.RATE_LIMITED, after or 60)
    assert said in failure.message
    assert (ledger.operations, limits.ended) == ([], []), "nothing was taken, nothing is given back"


async def test_a_refused_request_costs_no_quota(gate: Gate, limits: Limits):
    key = Key(id="k", name="k", sha256=b"", monthly_cap=1, concurrency=1)
    assert (await refused(gate, key=key, tenant=None)).kind is FailureKind.BUDGET_EXCEEDED
    assert limits.ended == [GiveBack(request_id="r", subject="k", tokens=0, counts=False)]


async def test_limits_that_do_not_answer(gate: Gate, ledger: Ledger, limits: Limits):
    """Whether the place was taken is not known, so it is given back."""
    limits.answer = Failure(FailureKind.STORE_DOWN, "It is down.")
    assert (await refused(gate, key=LIMITED, tenant=None)).kind is FailureKind.STORE_DOWN
    assert [end.counts for end in limits.ended] == [False]
    assert ledger.operations == []


async def test_a_store_that_is_down_admits_nobody(gate: Gate, ledger: Ledger, limits: Limits):
    ledger.credit(1000)
    ledger.down = True
    key = Key(id="k", name="k", sha256=b"", concurrency=1)
    assert (await refused(gate, key=key)).kind is FailureKind.STORE_DOWN
    assert [end.counts for end in limits.ended] == [False]
    assert ledger.balance.held == 0


async def test_a_hold_that_was_written_though_the_store_failed_is_let_go(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    ledger.down, ledger.lost = True, True
    write = ledger.write

    def reserve_only(operation: Operation) -> asyncio.Future[Result]:
        ledger.lost = isinstance(operation, Reserve)
        return write(operation)

    ledger.write = reserve_only
    gate = Gate(write=ledger.write, limits=None, lease="l", clock=HeldClock())
    await refused(gate)
    assert ledger.balance.held == 50
    ledger.down = False
    await gate.mark()
    assert ledger.balance.held == 0
    count = len(ledger.operations)
    await gate.mark()
    assert len(ledger.operations) == count, "it is written once"


@pytest.mark.parametrize("turns", range(4))
async def test_who_goes_while_being_admitted_holds_nothing(
    gate: Gate, ledger: Ledger, limits: Limits, turns: int
):
    ledger.credit(1000)
    ledger.go.clear()
    key = Key(id="k", name="k", sha256=b"", concurrency=1)
    waiting = asyncio.create_task(admit(gate, key=key))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    ledger.go.set()
    await gate.mark()
    assert ledger.balance.held == 0
    assert list(gate.running) == []
    assert len(limits.ended) == len(limits.taken)


async def test_who_goes_while_a_place_is_taken(gate: Gate, ledger: Ledger, limits: Limits):
    limits.go.clear()
    waiting = asyncio.create_task(admit(gate, key=LIMITED, tenant=None))
    while not limits.taken:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert limits.ended == [GiveBack(request_id="r", subject="key_few", tokens=0, counts=False)]
    assert ledger.operations == []


@pytest.mark.parametrize("ending", ["settle", "release"])
async def test_an_end_that_the_store_did_not_take_is_written_later(
    gate: Gate, ledger: Ledger, limits: Limits, ending: str
):
    ledger.credit(1000)
    grant = await admit(gate, key=Key(id="k", name="k", sha256=b"", concurrency=1))
    grant.usage.completion_tokens = 5
    ledger.down = True
    with pytest.raises(Failure):
        await (gate.settle(grant) if ending == "settle" else gate.release(grant, outcome="x"))
    assert list(gate.running) == []
    assert len(limits.ended) == 1, "its place is free all the same"
    with pytest.raises(Failure):
        await gate.mark()
    assert ledger.balance.held == 50
    ledger.down = False
    await gate.mark()
    assert ledger.balance == Tally(1000, 10 if ending == "settle" else 0, 0)
    count = len(ledger.operations)
    await gate.mark()
    assert len(ledger.operations) == count, "it is written once"


async def test_who_goes_while_a_request_is_settled_is_charged_once(gate: Gate, ledger: Ledger):
    """The write goes on, and is repeated: that changes nothing."""
    ledger.credit(1000)
    grant = await admit(gate)
    grant.usage.completion_tokens = 5
    ledger.go.clear()
    ending = asyncio.create_task(gate.settle(grant))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    ledger.go.set()
    await gate.mark()
    assert ledger.balance == Tally(1000, 10, 0)


async def test_an_end_that_was_cut_off_and_not_written_is_not_lost(gate: Gate, ledger: Ledger):
    ledger.credit(1000)
    grant = await admit(gate)
    grant.usage.completion_tokens = 5
    never = asyncio.get_running_loop().create_future()
    real, ledger.write = ledger.write, lambda _: never
    gate._write = ledger.write
    ending = asyncio.create_task(gate.settle(grant))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    gate._write = real
    await gate.mark()
    assert ledger.balance == Tally(1000, 10, 0)


async def test_marks_of_progress(gate: Gate, ledger: Ledger):
    """Written when something moved, with what it would cost now."""
    ledger.credit(1000)
    grant = await admit(gate)
    await gate.mark()
    assert ledger.said(Progress) == []
    grant.usage.prompt_tokens, grant.usage.completion_tokens = 10, 3
    await gate.mark()
    await gate.mark()
    assert ledger.said(Progress) == [Progress(request_id="r", usage=Usage(10, 3, 0), charge=16)]
    grant.usage.completion_tokens = 4
    assert ledger.said(Progress)[0].usage.completion_tokens == 3
    ledger.down = True
    with pytest.raises(Failure):
        await gate.mark()
    ledger.down = False
    await gate.mark()
    assert [mark.charge for mark in ledger.said(Progress)] == [16, 18, 18]
    await gate.settle(grant)
    await gate.mark()
    assert len(ledger.said(Progress)) == 3


async def test_last_use_is_noted(gate: Gate, ledger: Ledger, clock: HeldClock):
    ledger.credit(1000)
    await admit(gate)
    assert gate.used == {"key_ci": int(clock.now * 1000)}


async def test_without_a_store_everybody_is_let_in():
    gate = Gate(write=None, limits=None, lease="l", clock=HeldClock())
    grant = await admit(gate, key=None, tenant=None)
    grant.usage.completion_tokens = 5
    assert await gate.settle(grant) == 10
    await gate.release(await admit(gate, key=None, tenant=None), outcome="x")
    await gate.mark()
    assert list(gate.running) == []


async def test_amounts_in_messages_are_decimals(gate: Gate, ledger: Ledger):
    ledger.credit(3 * NANO // 2)
    failure = await refused(gate, max_tokens=10**9)
    assert "carries 1.50 EUR" in failure.message
    assert "could cost 2.00000001 EUR" in failure.message
