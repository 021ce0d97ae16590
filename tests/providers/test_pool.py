"""Connections: kept, used again, bounded, replaced where nothing was written; and how a request leaves one."""

import asyncio
import gc

import pytest

from onward.core.failure import FailureKind
from onward.providers.connection import Connection
from tests.mock_provider import MockProvider
from tests.providers.raw import OK, RawHost, ask, body_of, fails, settled, whole

ANSWER = OK + b"content-length: 2\r\n\r\nhi"


async def test_the_connection_used_last_is_used_next(mock: MockProvider, client):
    provider = client(mock.base_url)
    answers = await asyncio.gather(*[ask(provider, "[[hold=2]]", stream=True) for _ in range(3)])
    mock.let_go()
    for answer in answers:
        await body_of(answer)
    assert provider.status().open == 3
    used = [seen.connection for seen in mock.requests]
    for _ in range(5):
        await whole(provider)
    assert {seen.connection for seen in mock.requests[3:]} == {mock.requests[-1].connection}
    assert mock.requests[-1].connection in used
    assert mock.connections == 3


async def test_an_answer_that_has_come_whole_frees_its_connection_before_it_is_read(host: RawHost, client):
    host.answer = [ANSWER]
    provider = client(await host.start())
    first = await ask(provider)
    assert provider.status().busy == 0
    second = await ask(provider)
    first.close()
    second.close()
    await whole(provider)
    assert host.connections == 1


async def test_status(mock: MockProvider, client):
    provider = client(mock.base_url, connections=2)
    assert (provider.status().open, provider.status().busy, provider.status().waiting) == (0, 0, 0)
    running = [asyncio.ensure_future(ask(provider, "[[never]]")) for _ in range(3)]
    await mock.comes(lambda: len(mock.requests) == 2)
    status = provider.status()
    assert (status.open, status.busy, status.waiting) == (2, 2, 1)
    await provider.close()
    for request in running:
        await fails(request)


async def test_no_more_connections_than_allowed_and_everybody_gets_a_turn(mock: MockProvider, client):
    provider = client(mock.base_url, connections=3)

    bodies = await asyncio.gather(*[whole(provider) for _ in range(200)])
    assert len(set(bodies)) == 1
    assert mock.connections == 3
    assert len(mock.requests) == 200


async def test_who_waits_is_served_in_order(mock: MockProvider, client):
    provider = client(mock.base_url, connections=1)
    first = await ask(provider, "[[hold=1]] first", stream=True)
    waiting = [asyncio.ensure_future(ask(provider, f"number {n}")) for n in range(4)]
    await asyncio.sleep(0)
    mock.let_go()
    await body_of(first)
    for request in waiting:
        await body_of(await request)
    assert [seen.json["prompt"] for seen in mock.requests[1:]] == [f"number {n}" for n in range(4)]
    assert mock.connections == 1


async def test_waiting_is_bounded_in_number(mock: MockProvider, client):
    provider = client(mock.base_url, connections=1, waiting=2)
    first = await ask(provider, "[[silent]]", stream=True)
    waiting = [asyncio.ensure_future(ask(provider)) for _ in range(2)]
    await asyncio.sleep(0)
    failure = await fails(ask(provider))
    assert failure.retry_after == 1
    first.close()
    for request in waiting:
        await body_of(await request)


async def test_waiting_is_bounded_in_time(mock: MockProvider, client):
    provider = client(mock.base_url, connections=1, connect_timeout_s=0.05)
    first = await ask(provider, "[[silent]]", stream=True)
    await fails(ask(provider), FailureKind.UPSTREAM_TIMEOUT)
    assert provider.status().waiting == 0
    first.close()
    await whole(provider)


async def test_who_waits_and_leaves_takes_nothing_along(mock: MockProvider, client):
    provider = client(mock.base_url, connections=1)
    first = await ask(provider, "[[hold=1]]", stream=True)
    leaving, staying = (asyncio.ensure_future(ask(provider, name)) for name in ("leaving", "staying"))
    await asyncio.sleep(0)
    assert provider.status().waiting == 2
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert provider.status().waiting == 1
    mock.let_go()
    await body_of(first)
    await body_of(await staying)
    assert [seen.json["prompt"] for seen in mock.requests[1:]] == ["staying"]


@pytest.mark.parametrize("free", ["release", "lost"])
async def test_a_turn_that_comes_as_its_request_leaves_is_passed_on(
    mock: MockProvider, client, monkeypatch, free
):
    """A place comes free for somebody who is cancelled before they know."""
    provider = client(mock.base_url, connections=1)
    first = await ask(provider, "[[hold=1]]", stream=True)
    leaving, staying = (asyncio.ensure_future(ask(provider, name)) for name in ("leaving", "staying"))
    await asyncio.sleep(0)
    pool = provider._client._made
    assert len(pool._waiters) == 2
    real = getattr(pool, free)

    def and_then_leave(*arguments: object) -> None:
        real(*arguments)
        leaving.cancel()

    monkeypatch.setattr(pool, free, and_then_leave)
    if free == "release":
        mock.let_go()
        await body_of(first)
    else:
        first.close()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await body_of(await asyncio.wait_for(staying, 5))
    await settled(provider, opened=1)
    assert pool._opening == 0
    assert [seen.json["prompt"] for seen in mock.requests[1:]] == ["staying"]


async def test_a_connection_that_was_closed_meanwhile_is_replaced(mock: MockProvider, client):
    provider = client(mock.base_url)
    await whole(provider)
    mock.close_connections()
    await whole(provider)
    assert mock.connections == 2
    assert len(mock.requests) == 2


async def test_one_whose_end_has_not_come_through_the_loop_yet_is_replaced(mock: MockProvider, client):
    """The system knows, the loop has not had a turn."""
    provider = client(mock.base_url)
    answers = [await ask(provider, "[[hold=1]]", stream=True) for _ in range(8)]
    mock.let_go()
    for answer in answers:
        await body_of(answer)
    assert provider.status().open == 8
    mock.close_connections()  # blocks this loop while it does
    assert (await ask(provider)).status == 200
    assert len(mock.requests) == 9
    assert mock.connections == 9


async def test_connections_that_are_closed_right_behind_an_answer(mock: MockProvider, client):
    provider = client(mock.base_url)
    for n in range(20):
        await whole(provider, "[[close_after]]")
        await mock.comes(lambda: mock.open == 0)
        assert len(mock.requests) == n + 1
    assert mock.connections == 20


async def test_a_server_that_speaks_first_is_not_used_again(host: RawHost, client):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await host.request(reader)
        writer.write(ANSWER.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=60\r\n\r\n"))
        await host.until(lambda: provider.status().open == 1 and provider.status().busy == 0)
        writer.write(ANSWER)
        await reader.read()

    host.serve = serve
    provider = client(await host.start())
    assert await whole(provider) == b"hi"
    await host.changed()
    await host.until(lambda: host.open == 0)
    assert provider.status().open == 0


async def test_closed_as_soon_as_it_is_open(host: RawHost, client):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    host.serve = serve
    await fails(ask(client(await host.start())))


async def test_unused_connections_are_closed_early(mock: MockProvider, client):
    provider = client(mock.base_url)
    await whole(provider, "[[keep_alive=timeout=1, max=9]]")
    assert provider.status().open == 1
    await mock.comes(lambda: mock.open == 0)  # it closes nothing by itself
    await whole(provider, "[[keep_alive=timeout=0]]")
    await whole(provider)
    assert mock.connections == 3


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 4),
        ("timeout=5", 4),
        ("timeout=5, max=100", 4),
        ("max=100, Timeout=20", 19),
        ("timeout=1", 0.5),
        ("timeout=0", 0),
        ("timeout=3600", 60),
        ("timeout=99999999999999999999", 60),
        ("timeout=-5", 4),
        ("timeout=soon", 4),
        ("max=5", 4),
        ("", 4),
    ],
)
async def test_how_long_they_are_kept(host: RawHost, client, monkeypatch, header, seconds):
    kept: list[float] = []
    line = "" if header is None else f"Keep-Alive: {header}\r\n"
    host.answer = [OK + line.encode() + b"content-length: 0\r\n\r\n"]
    provider = client(await host.start())
    pool = provider._client._pool()
    release = type(pool).release

    def seen(self: object, connection: Connection, keep_s: float) -> None:
        kept.append(keep_s)
        release(pool, connection, keep_s)

    monkeypatch.setattr(type(pool), "release", seen)
    await ask(provider)
    assert kept == [seconds]


async def test_cancelling_a_request_tells_the_provider(mock: MockProvider, client):
    provider = client(mock.base_url)
    request = asyncio.ensure_future(ask(provider, "[[never]]"))
    await mock.comes(lambda: len(mock.requests) == 1)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await mock.comes(lambda: mock.requests[0].gone)
    await settled(provider)


async def test_cancelling_in_the_turn_in_which_it_fails(mock: MockProvider, client):
    """No exception is left that nobody has seen."""
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    provider = client(mock.base_url)
    request = asyncio.ensure_future(ask(provider, "[[never]]"))
    await mock.comes(lambda: len(mock.requests) == 1)
    (connection,) = provider._client._made._all
    connection.give_up()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    del request, connection
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert unseen == []


@pytest.mark.parametrize("stream", [True, False])
async def test_closing_an_answer_tells_the_provider(mock: MockProvider, client, stream):
    provider = client(mock.base_url)
    answer = await ask(provider, "[[stall=3]]", stream=stream)
    answer.close()
    answer.close()
    await mock.comes(lambda: mock.requests[0].gone)
    await settled(provider)
    await fails(answer.read())


async def test_closing_the_provider_fails_what_runs(mock: MockProvider, client):
    provider = client(mock.base_url, connections=2)
    answer = await ask(provider, "[[silent]]", stream=True)
    reading = asyncio.ensure_future(answer.read())
    heading = asyncio.ensure_future(ask(provider, "[[never]]"))
    waiting = asyncio.ensure_future(ask(provider))
    await mock.comes(lambda: len(mock.requests) == 2)
    await provider.close()
    for request in (reading, heading, waiting, ask(provider)):
        await fails(request)
    await mock.comes(lambda: mock.open == 0)
    await provider.close()
    assert mock.connections == 2


async def test_closing_the_provider_while_it_connects(mock: MockProvider, client, monkeypatch):
    from onward.providers import pool

    connected, go_on = asyncio.Event(), asyncio.Event()
    real = pool.connect

    async def slow(*arguments):
        connection = await real(*arguments)
        connected.set()
        await go_on.wait()
        return connection

    monkeypatch.setattr(pool, "connect", slow)
    provider = client(mock.base_url)
    request = asyncio.ensure_future(ask(provider))
    await connected.wait()
    await provider.close()
    go_on.set()
    await fails(request)
    await mock.comes(lambda: mock.open == 0)
    assert mock.requests == []


async def test_an_answer_outlives_its_connection(mock: MockProvider, client):
    provider = client(mock.base_url)
    answer = await ask(provider, "[[close]]")
    await mock.comes(lambda: mock.open == 0)
    await settled(provider)
    assert b"w0" in await body_of(answer)


async def test_an_answer_that_comes_before_the_request_was_taken_whole(host: RawHost, client):
    """It is taken; the connection, on which the rest of the request would have to go, is not used again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await host.until(lambda: done)

    done = False
    host.serve = serve
    provider = client(await host.start())
    answer = await provider.send("/completions", b" " * 40_000_000, [])
    assert (answer.status, await body_of(answer)) == (413, b"no")
    assert provider.status().open == provider.status().busy  # none is kept
    await settled(provider)
    done = True
    await host.changed()


async def test_a_provider_that_hangs_up_before_it_took_the_request(host: RawHost, client):
    """It is known at once, though there is still a lot to write."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        await host.until(lambda: done)

    done = False
    host.serve = serve
    provider = client(await host.start())
    await fails(asyncio.wait_for(provider.send("/completions", b" " * 40_000_000, []), 5))
    done = True
    await host.changed()
