"""A slow reader slows its provider; what is held here is bounded; nothing grows."""

import asyncio
import gc
import tracemalloc

import pytest

from onward.providers.bounds import Bounds
from tests.mock_provider import MockProvider
from tests.providers.raw import OK, RawHost, ask, body_of, settled, whole

READ_BYTES = 256 * 1024
"""The most that the loop reads at once."""


@pytest.mark.parametrize("chunked", [False, True])
async def test_what_is_not_read_is_not_taken(host: RawHost, client, chunked):
    total = 64 * 1024 * 1024
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await host.request(reader)
        framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % total
        writer.write(OK + framing + b"\r\n\r\n")
        piece = b"x" * 65536
        data = b"10000\r\n%b\r\n" % piece if chunked else piece
        for _ in range(total // len(piece)):
            writer.write(data)
            await writer.drain()
            sent += len(piece)
        if chunked:
            writer.write(b"0\r\n\r\n")
        await reader.read()

    host.serve = serve
    provider = client(await host.start())
    answer = await ask(provider)
    async with asyncio.timeout(20):
        known = -1
        while known != sent or not sent:
            known = sent
            await asyncio.sleep(0.1)
    assert sent < total / 2  # the rest waits with the sender: what left it lies in buffers of the system
    held = sum(map(len, answer.pieces))
    assert held <= Bounds().buffer_bytes + READ_BYTES
    got = 0
    while piece := await answer.read():
        got += len(piece)
        assert len(piece) <= Bounds().buffer_bytes + READ_BYTES
    assert got == total
    assert provider.status().busy == 0


async def test_an_answer_nobody_reads_stops_nobody_else(mock: MockProvider, client):
    provider = client(mock.base_url)
    unread = [await ask(provider, "[[huge=20000000]]", stream=True) for _ in range(3)]
    assert b"w4" in await whole(provider)
    for answer in unread:
        answer.close()
    await mock.comes(lambda: all(seen.gone for seen in mock.requests[:3]))
    await settled(provider, opened=1)


async def test_pieces_are_given_as_they_come(mock: MockProvider, client):
    answer = await ask(client(mock.base_url), "[[hold=3]]", stream=True)
    before = b""
    while before.count(b"data: ") < 3:
        before += await answer.read()
    assert mock.requests[0].sent == 3
    mock.let_go()
    assert (await body_of(answer)).endswith(b"[DONE]\n\n")


async def test_what_came_in_one_go_is_read_in_one_go(host: RawHost, client):
    events = b"".join(b"5\r\nhello\r\n" for _ in range(100))
    host.answer = [OK + b"transfer-encoding: chunked\r\n\r\n" + events + b"0\r\n\r\n"]
    answer = await ask(client(await host.start()))
    assert [await answer.read(), await answer.read()] == [b"hello" * 100, b""]


async def test_nothing_is_left_of_requests(mock: MockProvider, client):
    """Answers of every fate, many times: as much memory before as after."""
    provider = client(mock.base_url)

    async def many(times: int) -> None:
        for _ in range(times):
            await whole(provider)
            await whole(provider, stream=True)
            (await ask(provider, "[[silent]]", stream=True)).close()
            with pytest.raises(Exception, match="broken"):
                await whole(provider, "[[cut=1]]", stream=True)
        mock.requests.clear()
        await settled(provider, opened=provider.status().open - provider.status().busy)

    await many(20)
    gc.collect()
    gc.disable()  # what is dropped goes without the collector's help: it is in no cycle
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/onward/providers/*")])
        await many(100)
        after = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/onward/providers/*")])
    finally:
        tracemalloc.stop()
        gc.enable()
    grown = sum(one.size_diff for one in after.compare_to(before, "filename"))
    assert grown < 20_000, after.compare_to(before, "lineno")[:5]
