"""Limits in Redis: the same as in memory, whatever happens to Redis."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from onward.admission.limits import Exceeded, GiveBack, Take
from onward.core.failure import Failure, FailureKind
from onward.stores import redis as redis_module
from onward.stores.error import StoreError
from onward.stores.limits import MemoryLimits
from onward.stores.redis import RedisLimits
from tests.contract.limits import REDIS, HeldClock, clear


@pytest.fixture
async def prefix() -> AsyncIterator[str]:
    prefix = f"onward:test:{secrets.token_hex(8)}:"
    await clear(REDIS, prefix)
    yield prefix
    await clear(REDIS, prefix)


def take(request_id: str, **fields) -> Take:
    return Take(
        request_id=request_id,
        lease=fields.get("lease", "lease"),
        subject=fields.get("subject", "key"),
        tokens=fields.get("cost", 1),
        requests_per_minute=fields.get("requests"),
        tokens_per_minute=fields.get("tokens"),
        concurrency=fields.get("concurrency"),
    )


def end(request_id: str) -> GiveBack:
    return GiveBack(request_id=request_id, subject="key", tokens=1, counts=True)


async def test_redis_decides_as_memory_does(prefix: str):
    """Thousands of random steps: takes, ends, leases that live, fall and are dropped."""
    draw = random.Random(3)
    clock = HeldClock()
    memory, shared = MemoryLimits(clock.read), RedisLimits(REDIS, prefix=prefix, clock=clock.read)
    running: list[tuple[str, str]] = []
    kinds = set()
    for step in range(250):
        clock.now += draw.choice((0, 0, 0.3, 2, 17))
        takes = []
        for number in range(draw.randrange(1, 9)):
            name, subject = f"r{step}-{number}", f"key-{draw.randrange(3)}"
            takes.append(
                take(
                    name,
                    subject=subject,
                    lease=f"lease-{draw.randrange(4)}",
                    cost=draw.randrange(60),
                    requests=draw.choice((None, 20, 40)),
                    tokens=draw.choice((None, 50, 500)),
                    concurrency=draw.choice((None, 5, 9)),
                )
            )
            running.append((name, subject))
        answers = await memory.take(takes)
        assert await shared.take(takes) == answers, step
        kinds |= {answer.kind for answer in answers if answer is not None}
        draw.shuffle(running)
        ends = [
            GiveBack(request_id=name, subject=subject, tokens=draw.randrange(80), counts=draw.random() < 0.7)
            for name, subject in (running.pop() for _ in range(draw.randrange(len(running))))
        ]
        await memory.give_back(ends)
        await shared.give_back(ends)
        lease = f"lease-{draw.randrange(4)}"
        for limits in (memory, shared):
            if step % 3 == 0:
                await limits.renew(lease)
            if step % 40 == 39:
                await limits.drop_lease(lease)
    assert len(kinds) == 3
    await shared.close()


async def test_redis_keeps_the_time(prefix: str):
    limits = RedisLimits(REDIS, prefix=prefix)
    assert await limits.take([take("a", requests=1)]) == [None]
    [refused] = await limits.take([take("b", requests=1)])
    assert isinstance(refused, Exceeded)
    assert 60 <= refused.retry_after_s <= 61
    await limits.close()


async def test_every_key_expires_and_none_grows(prefix: str):
    clock = HeldClock()
    limits = RedisLimits(REDIS, prefix=prefix, clock=clock.read)
    async with Redis.from_url(REDIS) as redis:
        for number in range(130):
            clock.now += 1
            await limits.renew("lease")
            await limits.take([take(f"r{number}", requests=1000, tokens=1000, concurrency=9)])
            if number:
                await limits.give_back([end(f"r{number}")])
        keys = sorted([key.decode().removeprefix(prefix) async for key in redis.scan_iter(prefix + "*")])
        assert keys == ["lease:lease", "leases", "places:key", "windows:key"]
        for key in keys:
            assert 0 < await redis.ttl(prefix + key) <= 86400, key
        assert await redis.ttl(prefix + "windows:key") <= 122
        assert await redis.strlen(prefix + "windows:key") == 1000
    await limits.close()


async def test_a_connection_that_redis_closed_costs_nobody_anything(prefix: str):
    limits = RedisLimits(REDIS, prefix=prefix)
    await limits.renew("lease")
    async with Redis.from_url(REDIS) as redis:
        for _ in range(3):
            await limits._connection.send_command("CLIENT", "ID")
            await redis.client_kill_filter(_id=str(await limits._connection.read_response()))
            assert await limits.take([take("a", concurrency=1)]) == [None]
        await redis.script_flush()
    assert await limits.take([take("a", concurrency=1)]) == [None], "the script is loaded again"
    await limits.close()


async def test_what_comes_together_is_one_run(prefix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_module, "_LARGEST", 10)
    limits = RedisLimits(REDIS, prefix=prefix)
    runs: list[int] = []
    send = limits._send

    async def counting(operations):
        runs.append(len(operations))
        return await send(operations)

    monkeypatch.setattr(limits, "_send", counting)
    batches = [[take(f"r{batch}-{number}", concurrency=12) for number in range(4)] for batch in range(6)]
    answers = await asyncio.gather(*(limits.take(batch) for batch in batches))
    assert [[one is None for one in answer] for answer in answers] == [[True] * 4] * 3 + [[False] * 4] * 3
    assert runs == [10, 10, 4]
    await asyncio.gather(limits.give_back([end("r0-0")]), limits.take([take("x", concurrency=12)]))
    await limits.give_back([])
    await limits.close()


async def test_redis_is_not_there(caplog: pytest.LogCaptureFixture):
    limits = RedisLimits("redis://:a-secret@127.0.0.1:1/0")
    began = time.monotonic()
    for call in (
        limits.take([take("a")]),
        limits.give_back([end("a")]),
        limits.renew("l"),
        limits.drop_lease("l"),
    ):
        with pytest.raises(Failure) as failure:
            await call
        assert failure.value.kind is FailureKind.STORE_DOWN
        assert failure.value.retry_after
    assert time.monotonic() - began < 3
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, "it is said once"
    assert "a-secret" not in caplog.text
    await limits.close()


async def test_redis_hangs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(redis_module, "ANSWER_S", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    limits = RedisLimits(f"redis://127.0.0.1:{port}")
    calls = [limits.take([take(f"r{number}")]) for number in range(50)]
    async with asyncio.timeout(5):
        failures = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in failures} == {Failure}
    assert "Redis does not answer: not within 0.1 s" in caplog.text
    await limits.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    server.close()


async def test_redis_comes_back(prefix: str, caplog: pytest.LogCaptureFixture):
    """What could not be answered is asked again by whoever wants it, and nothing is counted twice."""
    limits = RedisLimits(REDIS, prefix=prefix)
    await limits.take([take("a", concurrency=2)])
    async with Redis.from_url(REDIS) as redis:
        await redis.set(prefix + "places:odd", "not a hash")
    with pytest.raises(Failure):
        await limits.take([take("b", subject="odd", concurrency=1)])
    assert await limits.take([take("a", concurrency=2)]) == [None]
    assert await limits.take([take("b", concurrency=2)]) == [None]
    assert "answers again" in caplog.text
    await limits.close()


@pytest.mark.parametrize("url", ["http://a-secret@host", "redis://host:port-a-secret", "a-secret"])
def test_addresses_that_are_none(url: str):
    with pytest.raises(StoreError) as error:
        RedisLimits(url)
    assert "a-secret" not in str(error.value)
