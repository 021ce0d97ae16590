"""TLS: verified by name and authority, or no request is sent."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from onward.providers import connect
from tests.mock_provider import MockProvider
from tests.providers.raw import RawHost, ask, body_of, fails, settled, whole

Certificate = Callable[..., ssl.SSLContext]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """As a provider's own, with an authority of this test."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def secure(mock_tls: ssl.SSLContext):
    with MockProvider(tls=mock_tls) as provider:
        yield provider


@pytest.fixture
def mock_tls(authority: trustme.CA) -> ssl.SSLContext:
    return serving(authority.issue_cert("localhost", "127.0.0.1"))


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_over_tls(secure: MockProvider, trusting, client, stream):
    provider = client(secure.base_url, tls=trusting)
    for prompt in ("hello", "[[drip]]", "[[close]]", "[[huge=3000000]]"):
        assert b"w4" in await whole(provider, prompt, stream=stream)
    assert secure.connections == 2


async def test_the_server_is_told_the_name(mock_tls, trusting, client):
    names: list[str | None] = []
    mock_tls.sni_callback = lambda _socket, name, _context: names.append(name)
    with MockProvider(tls=mock_tls) as secure:
        await whole(client(f"https://localhost:{secure.port}/v1", tls=trusting))
    assert names == ["localhost"]


@pytest.mark.parametrize("name", ["elsewhere.example", "127.0.0.2"])
async def test_a_certificate_of_another_name(authority, trusting, client, name):
    with MockProvider(tls=serving(authority.issue_cert(name))) as secure:
        for url in (secure.base_url, f"https://localhost:{secure.port}/v1"):
            await fails(ask(client(url, tls=trusting)))
        assert secure.requests == []


async def test_a_certificate_of_another_authority(trusting, client):
    with MockProvider(tls=serving(trustme.CA().issue_cert("localhost", "127.0.0.1"))) as secure:
        await fails(ask(client(secure.base_url, tls=trusting)))
        assert secure.requests == []


async def test_a_certificate_that_ended(authority, trusting, client):
    from datetime import UTC, datetime

    old = authority.issue_cert(
        "127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC), not_before=datetime(2019, 1, 1, tzinfo=UTC)
    )
    with MockProvider(tls=serving(old)) as secure:
        await fails(ask(client(secure.base_url, tls=trusting)))
        assert secure.requests == []


async def test_by_default_nothing_is_trusted_but_the_systems_authorities(
    secure: MockProvider, client, caplog
):
    caplog.set_level("INFO")
    provider = client(secure.base_url)
    await fails(ask(provider))
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert secure.requests == []
    assert provider.status().open == 0


async def test_plain_http_behind_https(host: RawHost, trusting, client):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    host.serve = serve
    url = (await host.start()).replace("http:", "https:")
    await fails(ask(client(url, tls=trusting)))


async def test_the_authorities_of_the_default_context(monkeypatch, tmp_path: Path):
    """It verifies, and where the system has none it takes certifi's."""
    connect.verifying.cache_clear()
    nothing = ssl.DefaultVerifyPaths(None, str(tmp_path), "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    try:
        context = connect.verifying()
    finally:
        connect.verifying.cache_clear()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] > 50
    assert connect.verifying() is connect.verifying()


@pytest.mark.parametrize("prompt", ["[[drop]]", "[[reset]]", "[[cut=2]]"])
async def test_connections_that_break_under_tls(secure: MockProvider, trusting, client, prompt):
    provider = client(secure.base_url, tls=trusting)
    await whole(provider)
    await fails(whole(provider, prompt, stream=True))
    await settled(provider)
    assert len(secure.requests) == 2


async def test_closed_ones_are_replaced_under_tls(secure: MockProvider, trusting, client):
    provider = client(secure.base_url, tls=trusting)
    await whole(provider)
    await whole(provider)
    assert secure.connections == 1
    secure.close_connections()
    await whole(provider)
    assert (secure.connections, len(secure.requests)) == (2, 3)


async def test_cancelling_under_tls(secure: MockProvider, trusting, client):
    provider = client(secure.base_url, tls=trusting)
    answer = await ask(provider, "[[stall=2]]", stream=True)
    answer.close()
    await secure.comes(lambda: secure.requests[0].gone)
    await settled(provider)


async def test_a_connection_given_up_on_the_way_leaves_nothing_open(client):
    """At any turn of the loop between the name and the end of TLS."""
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    provider = client(f"https://127.0.0.1:{port}/v1")
    await fails_soon(provider)  # what is made once is made
    before = descriptors()
    for turns in range(12):
        request = asyncio.ensure_future(ask(provider))
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    async with asyncio.timeout(5):
        while descriptors() > before:
            await asyncio.sleep(0.01)
    silent.close()
    pool = provider._client._made
    assert pool is not None
    assert (pool._opening, len(pool._all)) == (0, 0)


async def fails_soon(provider) -> None:
    request = asyncio.ensure_future(ask(provider))
    await asyncio.sleep(0.05)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.sleep(0.05)


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


async def test_a_slow_reader_under_tls(secure: MockProvider, trusting, client):
    answer = await ask(client(secure.base_url, tls=trusting), "[[huge=20000000]]", stream=True)
    await asyncio.sleep(0.1)
    assert sum(map(len, answer.pieces)) < 2_000_000
    assert (await body_of(answer)).endswith(b"[DONE]\n\n")
