"""Recordings: whoever follows one gets all of it, and no more is held than has to be."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from onward.admission.idempotency import Claim
from onward.core.failure import Failure, FailureKind
from onward.http.recording import NOT_KEPT, Recording, Room

pytestmark = pytest.mark.covers("P-8")
CLAIM = Claim(
    scope="k", name="n", path="/p", body_sha256=b"", request_id="r", lease="l", at_ms=int(time.time())
)


def recording(room: Room) -> Recording:
    return Recording(SimpleNamespace(header_values={}), CLAIM, room)  # type: ignore[arg-type]


async def read_all(one: Recording, follower) -> bytes:
    data, last = await one.read(follower)
    while not last:
        more, last = await one.read(follower)
        data += more
    return data


async def test_followers_read_at_their_own_pace_and_all_of_it():
    room = Room(1000, 1000, 8)
    one = recording(room)
    fast, slow = one.attach(), one.attach()
    async with one as stream:
        reading = asyncio.create_task(read_all(one, fast))
        for piece in (b"one ", b"two ", b"three "):
            await stream.put(piece)
            await asyncio.sleep(0)
        late = one.attach()
        binding = one.binding(b"end")
        await stream.end(b"end")
    assert await reading == await read_all(one, slow) == await read_all(one, late) == b"one two three end"
    assert binding.answer.body == b"one two three end"
    assert room.held == 17
    for follower in (fast, slow, late):
        one.detach(follower)
    assert room.held == 0


async def test_nobody_need_follow():
    room = Room(1000, 1000, 8)
    one = recording(room)
    async with one as stream:
        await stream.put(b"x" * 500)
        assert one.binding(b"").answer.body == b"x" * 500
        await stream.end(b"")
    assert room.held == 0


@pytest.mark.parametrize("room", [Room(20, 1000, 8), Room(1000, 20, 8)], ids=["answer", "all"])
async def test_what_is_too_large_waits_for_its_followers_and_is_not_kept(room: Room):
    one = recording(room)
    fast, slow = one.attach(), one.attach()
    texts = {fast: b"", slow: b""}

    async def follow(follower, pause_s: float) -> None:
        last = False
        while not last:
            data, last = await one.read(follower)
            texts[follower] += data
            await asyncio.sleep(pause_s)
        one.detach(follower)

    following = [asyncio.create_task(follow(fast, 0)), asyncio.create_task(follow(slow, 0.001))]
    async with one as stream:
        for number in range(50):
            await stream.put(b"%04d" % number)
            assert room.held <= 32
        with pytest.raises(Failure, match="too large to be kept") as refused:
            one.attach()
        assert refused.value.kind is FailureKind.IDEMPOTENCY_CONFLICT
        assert one.binding(b"end").answer == NOT_KEPT
        await stream.end(b"end")
    await asyncio.gather(*following)
    assert texts[fast] == texts[slow] == b"".join(b"%04d" % number for number in range(50)) + b"end"
    assert room.held == 0


async def test_who_leaves_does_not_hold_up_what_is_too_large():
    room = Room(20, 1000, 8)
    one = recording(room)
    stuck = one.attach()

    async def make() -> None:
        async with one as stream:
            for _ in range(50):
                await stream.put(b"12345")
            await stream.end(b"end")

    making = asyncio.create_task(make())
    await asyncio.sleep(0.01)
    assert not making.done()
    one.detach(stuck)
    await asyncio.wait_for(making, 1)
    assert room.held == 0


async def test_room_is_shared_by_what_is_repeated():
    room = Room(100, 100, 8)
    with room.taken(60), pytest.raises(Failure), room.taken(60):
        pass
    with room.taken(100):
        assert room.held == 100
    assert room.held == 0
