"""Rate limits in the memory of one process: exact for everybody who asks this process.

What the limits mean stands in `admission/limits.py`. Each window is a ring of 61 slices of a second:
the one that runs now and the 60 before it, so that what a slice holds is forgotten only when the whole
of it is more than 60 seconds ago. What a key costs in memory does not depend on how much it calls.
"""

from collections.abc import Callable
from math import ceil
from typing import Final

from onward.admission.limits import WINDOW_S, Exceeded, GiveBack, LimitKind, Take

LEASE_S: Final = 60
"""Seconds that a lease's places are kept without a sign of life."""
_SLICES: Final = WINDOW_S + 1
_FORGET: Final = 100
"""How many idle subjects are dropped at a time at the most: nobody waits long for it."""


class _Window:
    """What was taken in each of the last slices, and the sum."""

    __slots__ = ("at", "slots", "total")

    def __init__(self, now: int) -> None:
        self.slots = [0] * _SLICES
        self.total = 0
        self.at = now

    def advance(self, now: int) -> None:
        """Forget the slices that are past."""
        slots = self.slots
        if now - self.at >= _SLICES:
            self.slots = [0] * _SLICES
            self.total = 0
        else:
            for number in range(self.at + 1, now + 1):
                index = number % _SLICES
                self.total -= slots[index]
                slots[index] = 0
        self.at = now

    def add(self, number: int, amount: int) -> None:
        """Into a slice; nothing, if it is past."""
        if self.at - number < _SLICES:
            self.slots[number % _SLICES] += amount
            self.total += amount

    def wait(self, amount: int, limit: int, time: float) -> int:
        """Whole seconds until `amount`, which is not more than `limit`, fits; there is no room now."""
        missing = self.total + amount - limit
        for number in range(self.at - WINDOW_S, self.at + 1):
            missing -= self.slots[number % _SLICES]
            if missing <= 0:
                return max(1, ceil(number + _SLICES - time))
        raise AssertionError("a window without room holds nothing")


class _Subject:
    """A key's windows (made when they are first counted) and what runs."""

    __slots__ = ("name", "places", "requests", "tokens", "touched")

    def __init__(self, name: str, now: int) -> None:
        self.name = name
        self.requests: _Window | None = None
        self.tokens: _Window | None = None
        self.places = 0
        """How many are taken."""
        self.touched = now


class MemoryLimits:
    """`RateLimits` in this process. Nothing in it waits, so that its calls are atomic.

    Leases begin with their first place or sign of life. `clock` gives seconds and never runs back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._places: dict[str, tuple[_Subject, int, Take]] = {}
        """What running requests took, by their IDs: from whose windows, and in which slice."""
        self._leases: dict[str, float] = {}
        """Until when the places of each are kept."""
        self._next_fall = float("inf")
        self._subjects: dict[str, _Subject] = {}
        """Those that were touched longest ago come first."""

    async def take(self, takes: list[Take]) -> list[Exceeded | None]:
        return [self.take_one(take) for take in takes]

    async def give_back(self, ends: list[GiveBack]) -> None:
        for end in ends:
            self.give_back_one(end)

    async def renew(self, lease: str) -> None:
        time = self._clock()
        self._fall(time)
        if lease in self._leases:
            self._leases[lease] = time + LEASE_S
        else:
            self._begin(lease, time)
        self._forget_idle(int(time))

    async def drop_lease(self, lease: str) -> None:
        if self._leases.pop(lease, None) is not None:
            self._free({lease})

    async def close(self) -> None:
        """Nothing is held open."""

    def take_one(self, take: Take) -> Exceeded | None:
        """Take one place, as `take` does."""
        time = self._clock()
        if time >= self._next_fall:
            self._fall(time)
        if take.request_id in self._places:
            return None
        now = int(time)
        subject = self._subject(take.subject, now)
        requests: _Window | None = None
        tokens: _Window | None = None
        refused: Exceeded | None = None
        limit = take.requests_per_minute
        if limit is not None:
            requests = subject.requests
            if requests is None:
                requests = subject.requests = _Window(now)
            elif requests.at != now:
                requests.advance(now)
            if requests.total >= limit:
                refused = _refusal(LimitKind.REQUESTS, limit, 1, requests, time)
        limit = take.tokens_per_minute
        if limit is not None:
            tokens = subject.tokens
            if tokens is None:
                tokens = subject.tokens = _Window(now)
            elif tokens.at != now:
                tokens.advance(now)
            if tokens.total + take.tokens > limit:
                refused = _worse(refused, _refusal(LimitKind.TOKENS, limit, take.tokens, tokens, time))
        limit = take.concurrency
        if limit is not None and subject.places >= limit:
            wait = 1 if limit > 0 else 0
            refused = _worse(refused, Exceeded(kind=LimitKind.CONCURRENCY, limit=limit, retry_after_s=wait))
        if refused is not None:
            return refused
        if take.lease not in self._leases:
            self._begin(take.lease, time)
        self._places[take.request_id] = (subject, now, take)
        subject.places += 1
        if requests is not None:
            requests.slots[now % _SLICES] += 1
            requests.total += 1
        if tokens is not None:
            tokens.slots[now % _SLICES] += take.tokens
            tokens.total += take.tokens
        return None

    def give_back_one(self, end: GiveBack) -> None:
        """End one request, as `give_back` does."""
        place = self._places.pop(end.request_id, None)
        if place is None:
            return
        subject, number, take = place
        subject.places -= 1
        now = int(self._clock())
        if take.requests_per_minute is not None and not end.counts:
            requests = subject.requests
            if requests is not None:
                if requests.at != now:
                    requests.advance(now)
                requests.add(number, -1)
        if take.tokens_per_minute is not None:
            tokens = subject.tokens
            if tokens is not None:
                if tokens.at != now:
                    tokens.advance(now)
                more = (end.tokens if end.counts else 0) - take.tokens
                if more > 0:  # it is learnt now, so it counts from now
                    self._subject(subject.name, now)
                    number = now
                tokens.add(number, more)

    def _subject(self, name: str, now: int) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None:
            self._forget_idle(now)
            subject = self._subjects[name] = _Subject(name, now)
        elif subject.touched != now:
            subject.touched = now
            self._subjects[name] = self._subjects.pop(name)
        return subject

    def _forget_idle(self, now: int) -> None:
        """Drop subjects of which nothing runs and nothing is counted any more."""
        for _ in range(_FORGET):
            oldest = next(iter(self._subjects.values()), None)
            if oldest is None or now - oldest.touched < _SLICES:
                return
            del self._subjects[oldest.name]
            if oldest.places:
                oldest.touched = now
                self._subjects[oldest.name] = oldest

    def _begin(self, lease: str, time: float) -> None:
        until = time + LEASE_S
        self._leases[lease] = until
        self._next_fall = min(self._next_fall, until)

    def _fall(self, time: float) -> None:
        """End the leases that were not renewed in time."""
        over = {lease for lease, until in self._leases.items() if until <= time}
        for lease in over:
            del self._leases[lease]
        if over:
            self._free(over)
        self._next_fall = min(self._leases.values(), default=float("inf"))

    def _free(self, leases: set[str]) -> None:
        """End what runs in processes that are gone."""
        gone = [request_id for request_id, (_, _, take) in self._places.items() if take.lease in leases]
        for request_id in gone:
            subject, _, _ = self._places.pop(request_id)
            subject.places -= 1


def _refusal(kind: LimitKind, limit: int, amount: int, window: _Window, time: float) -> Exceeded:
    wait = 0 if amount > limit else window.wait(amount, limit, time)
    return Exceeded(kind=kind, limit=limit, retry_after_s=wait)


def _worse(one: Exceeded | None, other: Exceeded) -> Exceeded:
    """The refusal that lasts longer: a caller who waits for it is let in."""
    if one is None or other.retry_after_s == 0:
        return other
    if one.retry_after_s == 0 or one.retry_after_s >= other.retry_after_s:
        return one
    return other
