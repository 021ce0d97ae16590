"""Whether a deployment is worth a try: it rests after failures of its own, and one request finds out when
it has recovered. Pure policy, of one process; the clock is given.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from onward.core.failure import Failure, FailureKind

_BLAMED: Final = frozenset(
    {
        FailureKind.ENGINE_FAILED,
        FailureKind.UPSTREAM_RATE_LIMITED,
        FailureKind.UPSTREAM_UNAVAILABLE,
        FailureKind.UPSTREAM_TIMEOUT,
        FailureKind.PARTIAL_RESPONSE_TIMEOUT,
    }
)
"""Failures of a deployment. All others are the request's, the caller's or ours."""


Clock = Callable[[], float]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When a deployment rests, and for how long. Times in seconds."""

    failures: int = 5
    """In a row, after which it rests. 0: it does not, but where it asks to."""
    open_s: float = 5.0
    """How long it rests at first; twice as long after each probe that failed."""
    open_most_s: float = 120.0
    retry_after_most_s: float = 60.0
    """What is believed of a `Retry-After`. 0: nothing."""


class State(StrEnum):
    """Of a breaker."""

    CLOSED = "closed"
    """Requests are sent."""
    OPEN = "open"
    """It rests."""
    HALF_OPEN = "half_open"
    """Its time is over: one request is sent, and decides."""


class Progress(Protocol):
    """What a breaker sees of a try that runs. A try is known by this object."""

    @property
    def first(self) -> float | None:
        """When the first output came; None: not yet."""
        ...


class Rest:
    """One time of rest. A try keeps the one that it began in."""

    __slots__ = ("guessed_s", "probe", "until")

    def __init__(self, until: float, guessed_s: float) -> None:
        self.until = until
        self.guessed_s = guessed_s
        """How long without a `Retry-After`; 0: only that made it rest."""
        self.probe: Progress | None = None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a breaker."""

    state: State = State.CLOSED
    failures: int = 0
    """In a row."""
    last_failure: FailureKind | None = None
    """Of the failures that count; None: it has had none since it last answered."""
    last_failure_s: float | None = None
    """Seconds since then."""
    probe_s: float | None = None
    """Seconds until a request is sent to find out; None: it does not rest."""
    probing: bool = False
    """Whether that request runs."""


class Breaker:
    """Of one deployment. No failures come here but those that count."""

    __slots__ = ("_changed", "_clock", "_policy", "_rest", "failures", "last", "last_at")

    def __init__(self, policy: Policy, clock: Clock, changed: Callable[[float | None], None]) -> None:
        """See `Breakers`."""
        self._policy = policy
        self._clock = clock
        self._changed = changed
        self._rest: Rest | None = None
        self.failures = 0
        self.last: FailureKind | None = None
        self.last_at = 0.0

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to remember."""
        return self._rest is None and not self.failures

    def rests(self) -> bool:
        """Whether it is passed over where another one can be tried. Else who begins may be its probe."""
        rest = self._now()
        return rest is not None and (rest.probe is not None or self._clock() < rest.until)

    def begin(self, progress: Progress) -> Rest | None:
        """A try begins. What comes back belongs to `succeeded`."""
        rest = self._now()
        if rest is not None and rest.probe is None and self._clock() >= rest.until:
            rest.probe = progress
        return rest

    def succeeded(self, began_in: Rest | None) -> None:
        """A try has ended well. One that began before the rest did says nothing of it."""
        rest = self._now()
        if rest is None or rest is began_in:
            self._close()

    def failed(self, failure: Failure, progress: Progress) -> None:
        """A try has failed by the deployment's fault.

        Where it rests already its time is moved by its probe alone, or by a later `Retry-After`.
        """
        policy, rest, now = self._policy, self._now(), self._clock()
        self.last, self.last_at = failure.kind, now
        asked_for = 0.0 if failure.one_address else float(failure.retry_after or 0)
        wait = min(asked_for, policy.retry_after_most_s)
        if rest is not None and rest.probe is not progress:
            rest.until = max(rest.until, now + wait)
            return
        self.failures += 1
        guessed = 0.0 if rest is None else rest.guessed_s
        if wait:
            seconds = wait
        elif rest is not None or 0 < policy.failures <= self.failures:
            seconds = guessed = min(max(2 * guessed, policy.open_s), policy.open_most_s)
        else:
            return
        self._rest = Rest(now + seconds, guessed)
        self._changed(seconds)

    def undecided(self, progress: Progress) -> None:
        """A try has ended that says nothing: the caller's fault, or gone. The next request probes."""
        rest = self._now()
        if rest is not None and rest.probe is progress:
            rest.probe = None

    def view(self) -> View:
        """How it does."""
        rest, now = self._now(), self._clock()
        return View(
            state=State.CLOSED if rest is None else State.OPEN if now < rest.until else State.HALF_OPEN,
            failures=self.failures,
            last_failure=self.last,
            last_failure_s=None if self.last is None else now - self.last_at,
            probe_s=None if rest is None else max(0.0, rest.until - now),
            probing=rest is not None and rest.probe is not None,
        )

    def _now(self) -> Rest | None:
        """Its rest, if it still has one. A probe whose first output has come has decided: it need not end
        before others are sent.
        """
        rest = self._rest
        if rest is not None and rest.probe is not None and rest.probe.first is not None:
            self._close()
        return self._rest

    def _close(self) -> None:
        rested, self._rest = self._rest is not None, None
        self.failures = 0
        self.last = None
        if rested:
            self._changed(None)


class Breakers:
    """Of all deployments of a process, by name. One that does well costs nothing."""

    def __init__(
        self, policy: Policy, clock: Clock, changed: Callable[[str, float | None], None] | None = None
    ) -> None:
        """`clock`: seconds that never run back. `changed` is told the name of a deployment and for how many
        seconds it rests now; None: it rests no more.
        """
        self._policy = policy
        self._clock = clock
        self._changed = changed
        self.troubled: dict[str, Breaker] = {}
        """Those that have failed since they last answered."""

    def rests(self, name: str) -> bool:
        """Whether a deployment is passed over where another one can be tried."""
        breaker = self.troubled.get(name)
        return breaker is not None and breaker.rests()

    def begin(self, name: str, progress: Progress) -> Rest | None:
        """A deployment is tried. What comes back belongs to `succeeded`."""
        breaker = self.troubled.get(name)
        return None if breaker is None else breaker.begin(progress)

    def succeeded(self, name: str, began_in: Rest | None) -> None:
        """It has answered."""
        breaker = self.troubled.get(name)
        if breaker is not None:
            breaker.succeeded(began_in)
            if breaker.healthy:
                del self.troubled[name]

    def failed(self, name: str, failure: Failure, progress: Progress) -> None:
        """It has not answered, by whose fault ever."""
        if not blames(failure):
            self.left(name, progress)
            return
        breaker = self.troubled.get(name)
        if breaker is None:
            breaker = self.troubled[name] = Breaker(
                self._policy, self._clock, lambda seconds: self._tell(name, seconds)
            )
        breaker.failed(failure, progress)

    def left(self, name: str, progress: Progress) -> None:
        """A try was given up, or went wrong on our side."""
        breaker = self.troubled.get(name)
        if breaker is not None:
            breaker.undecided(progress)

    def view(self, name: str) -> View:
        """How one does."""
        breaker = self.troubled.get(name)
        return View() if breaker is None else breaker.view()

    def _tell(self, name: str, seconds: float | None) -> None:
        if self._changed is not None:
            self._changed(name, seconds)


def blames(failure: Failure) -> bool:
    """Whether a failure is the deployment's own. A full engine is not ill: it is passed over by itself."""
    return failure.kind in _BLAMED and not failure.excused
