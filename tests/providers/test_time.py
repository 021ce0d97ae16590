"""Bounds on time, each by itself, and that time which is ours does not count."""

import asyncio
import time

import pytest

from onward.core.failure import FailureKind
from tests.mock_provider import MockProvider
from tests.providers.raw import OK, RawHost, ask, body_of, fails, settled, whole

SLOW = FailureKind.UPSTREAM_TIMEOUT


@pytest.mark.parametrize("prompt", ["[[never]]", "[[silent]]"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_byte_is_awaited_for_so_long(mock: MockProvider, client, prompt, stream):
    """Of the body: a header that comes at once says little of when the work begins."""
    provider = client(mock.base_url, first_byte_timeout_s=0.2, idle_timeout_s=0.03)
    began = time.monotonic()

    failure = await fails(whole(provider, prompt, stream=stream), SLOW)
    assert 0.2 <= time.monotonic() - began < 2
    assert failure.message == "The provider of this model took too long to answer. Try again later."
    await mock.comes(lambda: mock.requests[0].gone)
    await settled(provider)


async def test_a_header_that_trickles_is_no_progress(host: RawHost, client):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await host.request(reader)
        writer.write(OK + b"x-a: ")
        while True:
            writer.write(b"b")
            await writer.drain()
            await asyncio.sleep(0.005)

    host.serve = serve
    provider = client(await host.start(), first_byte_timeout_s=0.1)
    await fails(ask(provider), SLOW)


@pytest.mark.parametrize("stream", [True, False])
async def test_silence_within_a_body(mock: MockProvider, client, stream):
    provider = client(mock.base_url, first_byte_timeout_s=20, idle_timeout_s=0.1)
    answer = await ask(provider, "[[stall=3]]", stream=stream)
    began = time.monotonic()
    await fails(body_of(answer), SLOW)
    assert time.monotonic() - began < 2
    await mock.comes(lambda: mock.requests[0].gone)


async def test_a_body_may_take_any_time_while_it_goes_on(mock: MockProvider, client):
    provider = client(mock.base_url, first_byte_timeout_s=0.2, idle_timeout_s=0.2)
    began = time.monotonic()
    answer = await ask(provider, "[[pause=0.05]] [[tokens=12]]", stream=True)
    assert (await body_of(answer)).endswith(b"[DONE]\n\n")
    assert time.monotonic() - began > 0.4


async def test_empty_chunk_framing_is_no_progress(host: RawHost, client):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await host.request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n5;")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.005)

    host.serve = serve
    answer = await ask(client(await host.start(), idle_timeout_s=0.1))
    assert await answer.read() == b"a"
    await fails(answer.read(), SLOW)


async def test_a_slow_reader_is_not_the_providers_fault(mock: MockProvider, client):
    """While its bytes lie here unread the provider is not called silent."""
    provider = client(mock.base_url, idle_timeout_s=0.1)
    answer = await ask(provider, "[[huge=5000000]]", stream=True)
    await asyncio.sleep(0.5)
    assert (await body_of(answer)).endswith(b"[DONE]\n\n")


async def test_connecting_is_bounded(host: RawHost, client):
    """TLS that is never answered."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    host.serve = serve
    url = (await host.start()).replace("http:", "https:")
    provider = client(url, connect_timeout_s=0.1)
    began = time.monotonic()
    await fails(ask(provider), SLOW)
    assert time.monotonic() - began < 2
    await host.until(lambda: host.open == 0)
    assert provider.status().open == 0


async def test_no_clock_runs_without_connections(mock: MockProvider, client):
    provider = client(mock.base_url, idle_timeout_s=0.05)
    await body_of(await ask(provider, "[[close]]"))
    await settled(provider)
    pool = provider._client._made
    assert pool is not None
    async with asyncio.timeout(5):
        while pool._sweeper is not None:
            await asyncio.sleep(0.005)
    await body_of(await ask(provider))
    assert pool._sweeper is not None
