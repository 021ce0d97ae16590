"""The images of a request, fetched together: few at once, in bounded time and memory (G26)."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.remote_image import RemoteImageError
from onward.sources import remote_images
from onward.sources.guarded_get import NOT_FETCHED, GuardedGet, Rules
from onward.sources.public_address import Guard
from onward.sources.remote_images import GuardedImages
from tests.image_host import ImageHost, answer
from tests.unit.sources.test_guarded_get import HERE, Names


@pytest.fixture
async def host() -> AsyncIterator[ImageHost]:
    async with ImageHost({f"/{n}": answer(b"%d" % n) for n in range(20)}).listening() as host:
        yield host


def images(host: ImageHost, *, timeout_s: float = 20, names: Names | None = None) -> GuardedImages:
    rules = Rules(guard=Guard([HERE]), ports=(host.port,), connect_s=5)
    get = GuardedGet(rules, ssl.create_default_context(), names or Names())
    return GuardedImages(get, largest=1000, most=16, timeout_s=timeout_s)


async def fetch(images: GuardedImages, *addresses: str) -> dict[str, bytes]:
    async with images.fetched(addresses) as found:
        return dict(found)


async def refused(images: GuardedImages, *addresses: str) -> RemoteImageError:
    with pytest.raises(RemoteImageError) as caught:
        await fetch(images, *addresses)
    return caught.value


async def forever(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_several_are_fetched_once_each(host: ImageHost):
    urls = [host.url(f"/{n}") for n in (3, 1, 3, 2, 1)]
    assert await fetch(images(host), *urls) == {host.url(f"/{n}"): b"%d" % n for n in (1, 2, 3)}
    assert sorted(host.paths) == ["/1", "/2", "/3"]


async def test_only_so_many_addresses(host: ImageHost):
    urls = [host.url(f"/{n}") for n in range(17)]
    failure = await refused(images(host), *urls, *urls)
    assert (failure.address, host.connections) == (urls[16], 0)
    assert "at most 16 images" in str(failure)
    assert len(await fetch(images(host), *urls[:16], *urls[:16])) == 16


async def test_few_connections_at_once(host: ImageHost):
    gate = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer(b"late"))

    host.answers = {f"/{n}": held for n in range(12)}
    fetching = asyncio.create_task(fetch(images(host), *(host.url(f"/{n}") for n in range(12))))
    await host.until(lambda: len(host.heads) == remote_images.AT_ONCE)
    gate.set()
    assert set((await fetching).values()) == {b"late"}
    assert host.most_open == remote_images.AT_ONCE


async def test_the_first_that_fails_ends_the_others(host: ImageHost):
    host.answers["/slow"] = forever
    missing = host.url("/missing")
    failure = await refused(images(host), host.url("/slow"), missing, host.url("/1"))
    assert failure.address == missing
    await host.until(lambda: host.open == 0)


@pytest.mark.parametrize("pieces", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"])
async def test_a_slow_drip_is_not_waited_for(host: ImageHost, pieces: bytes):
    """Neither before the answer nor in it, however alive it looks."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(pieces)
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    host.answers["/drip"] = drip
    started = time.monotonic()
    failure = await refused(images(host, timeout_s=0.3), host.url("/1"), host.url("/drip"))
    assert (failure.address, str(failure)) == (host.url("/drip"), NOT_FETCHED)
    assert time.monotonic() - started < 10
    await host.until(lambda: host.open == 0)


async def test_a_name_server_that_is_silent_is_not_waited_for(host: ImageHost):
    class Silent(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

    failure = await refused(images(host, timeout_s=0.2, names=Silent()), host.url("/1", "images.test"))
    assert str(failure) == NOT_FETCHED


async def test_who_goes_away_hangs_up(host: ImageHost):
    host.answers |= {"/a": forever, "/b": forever}
    fetching = asyncio.create_task(fetch(images(host), host.url("/a"), host.url("/b")))
    await host.until(lambda: len(host.heads) == 2)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await host.until(lambda: host.open == 0)


async def test_requests_that_fetch_are_bounded(host: ImageHost, monkeypatch):
    """What was fetched counts until it is let go of. Who waits too long may come again."""
    monkeypatch.setattr(remote_images, "MOST_REQUESTS", 2)
    fetcher = images(host, timeout_s=0.2)
    async with fetcher.fetched([host.url("/1")]):
        async with fetcher.fetched([host.url("/2")]):
            with pytest.raises(Failure) as caught:
                await fetch(fetcher, host.url("/3"))
            assert (caught.value.kind, caught.value.retry_after) == (FailureKind.ENGINE_FULL, 1)
            assert host.paths == ["/1", "/2"]
        await refused(fetcher, host.url("/missing"))
        assert await fetch(fetcher, host.url("/3"))


async def test_bytes_of_a_request_are_bounded(host: ImageHost):
    host.answers |= {f"/{n}": answer(b"x" * 900) for n in range(3)}
    failure = await refused(images(host), *(host.url(f"/{n}") for n in range(3)))
    assert "2000 bytes together" in str(failure)
