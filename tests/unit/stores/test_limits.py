"""Limits in memory: what they cost, and that they forget."""

import sys

from onward.admission.limits import GiveBack, Take
from onward.stores.limits import MemoryLimits
from tests.contract.limits import HeldClock


def take(number: int, subject: str = "key", lease: str = "lease", limit: int = 10**9) -> Take:
    return Take(
        request_id=f"r{number}",
        lease=lease,
        subject=subject,
        tokens=10,
        requests_per_minute=limit,
        tokens_per_minute=limit,
        concurrency=limit,
    )


def give_back(number: int, subject: str = "key") -> GiveBack:
    return GiveBack(request_id=f"r{number}", subject=subject, tokens=5, counts=True)


def size(value: object) -> int:
    """Bytes of a value and all that it holds."""
    seen: set[int] = set()

    def of(value: object) -> int:
        if id(value) in seen:
            return 0
        seen.add(id(value))
        parts: list[object] = []
        if isinstance(value, dict):
            parts = [*value.keys(), *value.values()]
        elif isinstance(value, list):
            parts = value
        elif hasattr(value, "__slots__"):
            parts = [getattr(value, name) for name in value.__slots__]
        elif hasattr(value, "__dict__"):
            parts = [value.__dict__]
        return sys.getsizeof(value) + sum(map(of, parts))

    return of(value)


def test_a_key_that_calls_much_takes_no_more_memory():
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    sizes = []
    for number in range(6000):
        limits.take_one(take(number))
        limits.give_back_one(give_back(number))
        clock.now += 0.05
        if number % 1000 == 999:
            sizes.append(size(limits))
    assert sizes[-1] < 10_000
    assert sizes[-1] <= sizes[1] * 1.1


async def test_idle_keys_are_forgotten():
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    for number in range(1000):
        limits.take_one(take(number, f"key-{number}", limit=10))
        if number != 500:
            limits.give_back_one(give_back(number, f"key-{number}"))
    clock.now += 59
    await limits.renew("lease")
    assert limits.take_one(take(-1, "key-0", limit=10)) is not None, "it is not idle yet"
    clock.now += 59
    for _ in range(12):
        await limits.renew("lease")
    # One still runs, one was refused a minute ago and asks again.
    assert {name: one.places for name, one in limits._subjects.items()} == {"key-0": 0, "key-500": 1}


def test_new_keys_drive_out_idle_ones():
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    for number in range(5000):
        limits.take_one(take(number, f"key-{number}"))
        limits.give_back_one(give_back(number, f"key-{number}"))
        clock.now += 0.5
    assert len(limits._subjects) < 200


def test_leases_without_places_are_forgotten():
    clock = HeldClock()
    limits = MemoryLimits(clock.read)
    for number in range(1000):
        limits.take_one(take(number, lease=f"lease-{number}"))
        limits.give_back_one(give_back(number))
        clock.now += 1
    assert len(limits._leases) <= 61
