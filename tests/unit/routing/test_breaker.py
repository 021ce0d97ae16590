"""When a deployment rests, for how long, and who finds out that it has recovered: examples, and any history."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from onward.core.failure import Failure, FailureKind
from onward.routing.breaker import Breakers, Policy, Rest, State, blames

POLICY = Policy(failures=3, open_s=5, open_most_s=18, retry_after_most_s=60)
OWN = (
    FailureKind.ENGINE_FAILED,
    FailureKind.UPSTREAM_RATE_LIMITED,
    FailureKind.UPSTREAM_UNAVAILABLE,
    FailureKind.UPSTREAM_TIMEOUT,
    FailureKind.PARTIAL_RESPONSE_TIMEOUT,
)
OTHERS = tuple(kind for kind in FailureKind if kind not in OWN)
DOWN = Failure(FailureKind.UPSTREAM_UNAVAILABLE, "Down.")


@dataclass(eq=False)
class Try:
    first: float | None = None
    began_in: Rest | None = None


class Bench:
    """One deployment, a clock that is set, and what its breaker told."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.now = 1000.0
        self.told: list[float | None] = []
        self.breakers = Breakers(policy, lambda: self.now, lambda _, seconds: self.told.append(seconds))

    def begin(self) -> Try:
        one = Try()
        one.began_in = self.breakers.begin("d", one)
        return one

    def fail(self, one: Try | None = None, failure: Failure = DOWN) -> None:
        self.breakers.failed("d", failure, one or self.begin())

    def succeed(self, one: Try | None = None) -> None:
        one = one or self.begin()
        self.breakers.succeeded("d", one.began_in)

    @property
    def rests(self) -> bool:
        return self.breakers.rests("d")

    @property
    def state(self) -> State:
        return self.breakers.view("d").state

    def opened(self) -> "Bench":
        for _ in range(3):
            assert not self.rests
            self.fail()
        assert self.rests
        return self


def test_it_opens_after_so_many_failures_in_a_row():
    bench = Bench()
    for _ in range(2):
        bench.fail()
        bench.fail()
        bench.succeed()
    assert bench.told == []
    assert bench.breakers.troubled == {}
    bench.opened()
    assert bench.told == [5]
    assert bench.state is State.OPEN
    bench.now += 4.9
    assert bench.rests
    bench.now += 0.1
    assert not bench.rests
    assert bench.state is State.HALF_OPEN


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_its_own_failure_changes_nothing(kind: FailureKind):
    bench = Bench()
    bench.fail()
    bench.fail()
    for _ in range(10):
        bench.fail(failure=Failure(kind, "Yours.", retry_after=30))
    assert not bench.rests
    bench.fail()  # they did not count, and reset nothing
    assert bench.rests


@pytest.mark.parametrize("kind", OWN)
def test_an_excused_failure_does_not_count(kind: FailureKind):
    assert blames(Failure(kind, "Ill."))
    assert not blames(Failure(kind, "Busy.", excused=True))


def test_one_request_probes_and_decides():
    bench = Bench().opened()
    bench.now += 5
    probe = bench.begin()
    assert bench.rests, "others are not sent while it runs"
    bench.succeed(probe)
    assert not bench.rests
    assert bench.breakers.troubled == {}
    assert bench.told == [5, None]


def test_each_probe_that_fails_doubles_its_time_up_to_a_bound():
    bench = Bench().opened()
    for seconds in (5, 10, 18, 18):
        assert bench.told[-1] == seconds
        bench.now += seconds
        bench.fail()
        assert bench.rests
    bench.now += 18
    bench.succeed()
    bench.opened()
    assert bench.told[-1] == 5


def test_a_probe_with_output_has_decided_before_it_ends():
    bench = Bench().opened()
    bench.now += 5
    probe = bench.begin()
    assert bench.rests
    probe.first = bench.now
    assert not bench.rests
    bench.fail(probe)
    assert (bench.state, bench.breakers.view("d").failures) == (State.CLOSED, 1)


@pytest.mark.parametrize("end", ["fault of the caller", "gone"])
def test_a_probe_that_says_nothing_leaves_it_to_the_next(end: str):
    bench = Bench().opened()
    bench.now += 5
    probe = bench.begin()
    if end == "gone":
        bench.breakers.left("d", probe)
    else:
        bench.fail(probe, Failure(FailureKind.INVALID_REQUEST, "Yours."))
    assert bench.state is State.HALF_OPEN
    assert not bench.rests
    second = bench.begin()
    assert bench.rests
    bench.succeed(second)
    assert bench.state is State.CLOSED


def test_what_began_before_the_rest_says_nothing_of_it():
    bench = Bench()
    old, older = bench.begin(), bench.begin()
    bench.opened()
    bench.succeed(old)
    assert bench.rests
    bench.fail(older)
    assert bench.breakers.view("d").probe_s == 5
    bench.now += 5
    probe = bench.begin()
    bench.succeed(old)
    assert bench.rests, "the probe decides"
    bench.fail(probe)
    assert bench.told == [5, 10]


def test_who_is_sent_though_it_rests_may_find_it_well_and_does_it_no_harm():
    """Where nobody else can answer."""
    bench = Bench().opened()
    bench.fail()
    assert bench.breakers.view("d").probe_s == 5
    bench.succeed()
    assert bench.told == [5, None]


def test_it_rests_as_long_as_it_asks_to():
    bench = Bench()
    bench.fail(failure=Failure(FailureKind.UPSTREAM_RATE_LIMITED, "Wait.", retry_after=7))
    assert bench.told == [7]
    bench.now += 6.9
    assert bench.rests
    bench.now += 0.2
    assert not bench.rests
    bench.fail(failure=Failure(FailureKind.UPSTREAM_UNAVAILABLE, "Wait.", retry_after=3600))
    assert bench.told == [7, 60]
    bench.now += 60
    bench.fail()  # a guess of ours begins at the start
    assert bench.told == [7, 60, 5]


def test_a_later_retry_after_moves_its_time():
    bench = Bench().opened()
    bench.fail(failure=Failure(FailureKind.UPSTREAM_RATE_LIMITED, "Wait.", retry_after=20))
    assert bench.breakers.view("d").probe_s == 20
    bench.fail(failure=Failure(FailureKind.UPSTREAM_RATE_LIMITED, "Wait.", retry_after=2))
    assert bench.breakers.view("d").probe_s == 20


def test_both_can_be_switched_off():
    bench = Bench(Policy(failures=0, retry_after_most_s=0))
    for _ in range(100):
        bench.fail(failure=Failure(FailureKind.UPSTREAM_RATE_LIMITED, "Wait.", retry_after=20))
    assert not bench.rests
    assert bench.breakers.view("d").failures == 100


def test_deployments_do_not_share_anything():
    bench = Bench().opened()
    assert not bench.breakers.rests("e")
    assert bench.breakers.view("e").last_failure is None
    view = bench.breakers.view("d")
    assert (view.last_failure, view.last_failure_s) == (FailureKind.UPSTREAM_UNAVAILABLE, 0)


class Histories(RuleBasedStateMachine):
    """Requests begin, end somehow, and time passes."""

    tries = Bundle("tries")

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.running: set[Try] = set()
        self.deciding: Try | None = None
        """The probe, by what the breaker let pass."""

    @rule(seconds=st.sampled_from([0.1, 1, 4, 5, 18, 60, 100]))
    def time_passes(self, seconds: float) -> None:
        self.bench.now += seconds

    @rule(target=tries)
    def begin(self) -> Try:
        half_open = self.bench.state is State.HALF_OPEN
        passes = not self.bench.rests
        one = self.bench.begin()
        self.running.add(one)
        if half_open and passes:
            assert self.deciding is None or self.deciding not in self.running
            self.deciding = one
        return one

    @rule(one=tries)
    def output(self, one: Try) -> None:
        if one in self.running:
            one.first = self.bench.now
            if one is self.deciding:
                self.deciding = None  # it has decided: what it ends in says nothing of a later rest

    @rule(one=consumes(tries))
    def ends_well(self, one: Try) -> None:
        before = self.bench.state
        since = one.began_in
        resting = before is not State.CLOSED
        self.bench.succeed(one)
        self._over(one)
        if not resting:
            assert not self.bench.breakers.troubled
        elif one is self.deciding:
            assert self.bench.state is State.CLOSED
        elif since is None:
            assert self.bench.state is before, "it began when all was well"

    @rule(one=consumes(tries), kind=st.sampled_from(OWN), wait=st.sampled_from([None, 0, 3, 90]))
    def fails(self, one: Try, kind: FailureKind, wait: int | None) -> None:
        before = self.bench.breakers.view("d")
        self.bench.fail(one, Failure(kind, "Down.", retry_after=wait))
        after = self.bench.breakers.view("d")
        self._over(one)
        assert after.last_failure is kind
        if before.state is State.CLOSED:
            assert after.failures == before.failures + 1
            assert (after.state is State.OPEN) == (bool(wait) or after.failures >= 3)
        else:
            assert after.state is not State.CLOSED
            assert (after.probe_s or 0) >= min(wait or 0, 60) - 1e-6
            assert (after.probe_s or 0) >= (before.probe_s or 0) or before.probing

    @rule(one=consumes(tries), kind=st.sampled_from(OTHERS))
    def says_nothing(self, one: Try, kind: FailureKind) -> None:
        before = self.bench.breakers.view("d")
        self.bench.fail(one, Failure(kind, "Yours.", retry_after=9))
        self._unchanged(before, one)

    @rule(one=consumes(tries))
    def is_left(self, one: Try) -> None:
        before = self.bench.breakers.view("d")
        self.bench.breakers.left("d", one)
        self._unchanged(before, one)

    @precondition(lambda self: not self.running)
    @rule()
    def somebody_asks_in_the_end(self) -> None:
        self.bench.now += 61
        assert not self.bench.rests

    @invariant()
    def what_is_true_at_any_time(self) -> None:
        view = self.bench.breakers.view("d")
        assert (view.probe_s or 0) <= 60
        if view.state is State.CLOSED:
            assert not self.bench.rests
            assert view.failures < 3
        if view.state is State.OPEN:
            assert self.bench.rests
        if view.state is State.HALF_OPEN:
            assert self.bench.rests is view.probing
        if view.probing:
            assert self.deciding in self.running
            assert self.deciding is not None
            assert self.deciding.first is None

    def _unchanged(self, before, one: Try) -> None:
        after = self.bench.breakers.view("d")
        self._over(one)
        assert (after.state, after.failures, after.probe_s) == (before.state, before.failures, before.probe_s)
        assert after.probing is (before.probing and one is not self.deciding)

    def _over(self, one: Try) -> None:
        self.running.discard(one)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
