"""The ledger under everything that can happen to it, in any order: its laws hold after every step.

`ONWARD_EXAMPLES` sets how many histories are tried (a few by default).
"""

import asyncio
import os
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from onward.admission.ledger import (
    Account,
    AccountKind,
    Done,
    Expire,
    Granted,
    Operation,
    Refused,
    Reserve,
    Result,
    Settle,
    State,
)
from onward.admission.store import EntryQuery, Store, UsageQuery
from onward.core.failure import Failure
from onward.core.usage import Usage
from tests.contract.stores import PLACES, Place, attempt, progress, release, reserve, settle

EXAMPLES = int(os.environ.get("ONWARD_EXAMPLES", "20"))
STEPS = 40
MONTHLY_BUDGET, MONTHLY_CAP = 70, 40
LEASES = ("one", "two", "three")
MONTH_MS = 31 * 86_400_000
AMOUNTS = st.integers(0, 30)


class Request:
    """What we know of a request."""

    def __init__(self, operation: Reserve) -> None:
        self.accounts = operation.accounts
        self.lease = operation.lease
        self.held = operation.amount
        self.state = State.HELD
        self.charged = 0
        self.mark: int | None = None


class LedgerMachine(RuleBasedStateMachine):
    """Operations wait until a batch is full; what waits when a process dies was never answered."""

    requests = Bundle("requests")

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.context: AbstractAsyncContextManager[Place] = PLACES[kind](Path(self.folder.name))
        self.place: Place = self.runner.run(self.context.__aenter__())
        self.store: Store = self.runner.run(self.place.open())
        self.waiting: list[Operation] = []
        self.batch = 1
        self.known: dict[str, Request] = {}
        self.credited = 0
        self.month = 0
        self.names = 0
        self.now = 1_700_000_000_000

    def teardown(self) -> None:
        self.runner.run(self.context.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    # What happens.

    @initialize(amount=st.integers(0, 200))
    def open_the_account(self, amount: int) -> None:
        self.top_up(amount)

    @rule(amount=st.integers(1, 60))
    def top_up(self, amount: int) -> None:
        self.flush()
        self.credited += amount
        after = self.runner.run(self.store.credit("acme", amount, note="", at_ms=self.now))
        assert after.credited == self.credited

    @rule(amount=st.integers(1, 60))
    def take_out(self, amount: int) -> None:
        self.flush()
        _, spent, held = self.numbers("balance:acme")
        try:
            self.runner.run(self.store.credit("acme", -amount, note="", at_ms=self.now))
        except Failure:
            assert self.credited - amount < spent + held
        else:
            assert self.credited - amount >= spent + held
            self.credited -= amount

    @rule(size=st.integers(1, 6))
    def batches_of(self, size: int) -> None:
        self.flush()
        self.batch = size

    @rule(
        target=requests,
        amount=AMOUNTS,
        lease=st.sampled_from(LEASES),
        key=st.sampled_from(["a", "b"]),
        prepaid=st.booleans(),
    )
    def reserve(self, amount: int, lease: str, key: str, prepaid: bool) -> str:
        self.names += 1
        name = f"r{self.names}"
        accounts = [
            Account(f"tenant:acme:{self.month}", AccountKind.TENANT_MONTH, MONTHLY_BUDGET),
            Account(f"key:{key}:{self.month}", AccountKind.KEY_MONTH, MONTHLY_CAP),
        ]
        if prepaid:
            accounts.insert(0, Account("balance:acme", AccountKind.BALANCE))
        self.do(reserve(name, amount, tuple(accounts), lease=lease, at_ms=self.tick()))
        return name

    @rule(name=requests, amount=AMOUNTS)
    def reserve_again(self, name: str, amount: int) -> None:
        """Under a name that is known: held, ended or refused before."""
        accounts = (Account("balance:acme", AccountKind.BALANCE),)
        self.do(reserve(name, amount, accounts, lease="one", at_ms=self.tick()))

    @rule(name=requests, share=st.sampled_from([0, 0.3, 1, 1]))
    def settle(self, name: str, share: float) -> None:
        held = self.known[name].held if name in self.known else 10
        self.do(self.end(name, int(held * share)))

    @rule(name=requests, charge=AMOUNTS)
    def settle_by_what_was_used(self, name: str, charge: int) -> None:
        """Also more than was held."""
        self.do(self.end(name, charge))

    @rule(name=requests)
    def release(self, name: str) -> None:
        self.do(release(name, at_ms=self.tick()))

    @rule(name=requests, charge=AMOUNTS)
    def progress(self, name: str, charge: int) -> None:
        self.do(progress(name, charge, Usage(1, charge, 0)))

    @rule(lease=st.sampled_from(LEASES))
    def a_process_dies(self, lease: str) -> None:
        self.do(Expire(lease=lease, at_ms=self.tick()))

    @rule(index=st.integers(0, 50), charge=AMOUNTS)
    def killed_while_it_runs(self, index: int, charge: int) -> None:
        """What its last mark says is what it costs."""
        self.flush()
        if held := [name for name, request in self.known.items() if request.state is State.HELD]:
            name = held[index % len(held)]
            self.do(progress(name, charge, Usage(1, charge, 0)))
            self.flush()
            self.crash()
            self.a_process_dies(self.known[name].lease)

    @rule(living=st.sets(st.sampled_from(LEASES)), kept=st.sets(st.sampled_from(LEASES)))
    def leases_run_out(self, living: set[str], kept: set[str]) -> None:
        self.flush()
        self.now += 1000
        for lease in sorted(living):
            self.runner.run(self.store.renew(lease, self.now))
        over = [request for request in self.held() if request.lease not in living | kept]
        assert self.runner.run(self.store.expire_leases(self.now, frozenset(kept))) == len(over)
        for request in over:
            self.expired(request)
        self.now += 1000

    @rule()
    def crash(self) -> None:
        self.waiting.clear()
        self.store = self.runner.run(self.place.crash())

    @rule()
    def restart(self) -> None:
        self.flush()
        self.runner.run(self.store.close())
        self.store = self.runner.run(self.place.open())

    @rule()
    def the_month_ends(self) -> None:
        self.month += 1
        self.now += MONTH_MS

    @rule(target=requests)
    def many_at_once(self):
        """More than the balance carries: exactly what it carries is let in."""
        self.flush()
        accounts = (Account("balance:acme", AccountKind.BALANCE),)
        names = [f"m{self.names}-{number}" for number in range(12)]
        self.names += 1
        self.batch = len(names)
        for name in names:
            self.do(reserve(name, 9, accounts, lease="two", at_ms=self.tick()))
        self.flush()
        return multiple(*names[:3])

    # What holds after every step.

    @invariant()
    def the_laws_hold(self) -> None:
        if self.waiting:
            return
        accounts = {account.id: account for request in self.known.values() for account in request.accounts}
        accounts["balance:acme"] = Account("balance:acme", AccountKind.BALANCE)
        for account in accounts.values():
            credited, spent, held = self.numbers(account.id)
            mine = [
                request
                for request in self.known.values()
                if account.id in {one.id for one in request.accounts}
            ]
            assert credited == (self.credited if account.kind is AccountKind.BALANCE else 0)
            assert spent == sum(request.charged for request in mine)
            assert held == sum(request.held for request in mine if request.state is State.HELD)
            over = sum(max(request.charged - request.held, 0) for request in mine)
            assert spent + held - over <= self.limit(account)

    @invariant()
    def the_entries_say_what_happened(self) -> None:
        if self.waiting:
            return
        entries = self.runner.run(self.store.entries(EntryQuery(limit=1000))).entries
        assert {found.request_id for found in entries} == set(self.known)
        assert len(entries) == len(self.known)
        for found in entries:
            request = self.known[found.request_id]
            assert (found.state, found.charged, found.held) == (request.state, request.charged, request.held)
            assert found.overdraft == (request.charged > request.held)
            assert (found.ended_ms is None) == (request.state is State.HELD)
            assert len(found.attempts) == (request.state is State.SETTLED)
        sums = self.runner.run(self.store.usage(UsageQuery()))
        assert sum(row.charged for row in sums) == sum(request.charged for request in self.known.values())

    # What we expect.

    def do(self, operation: Operation) -> None:
        self.waiting.append(operation)
        if len(self.waiting) >= self.batch:
            self.flush()

    def flush(self) -> None:
        operations, self.waiting = self.waiting, []
        results = self.runner.run(self.store.apply(operations))
        assert len(results) == len(operations)
        for operation, result in zip(operations, results, strict=True):
            self.happened(operation, result)

    def happened(self, operation: Operation, result: Result) -> None:
        if isinstance(operation, Expire):
            over = [request for request in self.held() if request.lease == operation.lease]
            assert result == Done(ended=bool(over))
            for request in over:
                self.expired(request)
            return
        request = self.known.get(operation.request_id)
        if isinstance(operation, Reserve):
            self.reserved(operation, request, result)
        elif request is None or request.state is not State.HELD:
            assert result == Done(ended=False)
        else:
            assert result == Done()
            if isinstance(operation, Settle):
                request.state, request.charged = State.SETTLED, operation.charge
            elif hasattr(operation, "charge"):
                request.mark = operation.charge
            else:
                request.state = State.RELEASED

    def reserved(self, operation: Reserve, request: Request | None, result: Result) -> None:
        if request is not None and request.state is State.HELD:
            assert result == Granted()
            return
        for account in operation.accounts:
            left = self.limit(account)
            for other in self.known.values():
                if account.id in {one.id for one in other.accounts}:
                    left -= other.charged + (other.held if other.state is State.HELD else 0)
            if operation.amount and operation.amount > left:
                assert result == Refused(account.kind, max(left, 0))
                return
        if request is not None:
            assert result == Done(ended=False)
            return
        assert result == Granted()
        self.known[operation.request_id] = Request(operation)

    def expired(self, request: Request) -> None:
        request.state, request.charged = State.EXPIRED, request.mark or 0

    def held(self) -> list[Request]:
        return [request for request in self.known.values() if request.state is State.HELD]

    def limit(self, account: Account) -> int:
        return self.credited if account.limit is None else account.limit

    def numbers(self, account: str) -> tuple[int, int, int]:
        [money] = self.runner.run(self.store.money([account]))
        return money.credited, money.spent, money.held

    def end(self, name: str, charge: int) -> Settle:
        return settle(name, charge, at_ms=self.tick(), attempts=(attempt(),))

    def tick(self) -> int:
        self.now += 1
        return self.now


@pytest.mark.covers("K-10")
@pytest.mark.parametrize("kind", sorted(PLACES))
def test_the_laws_of_the_ledger(kind: str):
    run_state_machine_as_test(
        lambda: LedgerMachine(kind),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
