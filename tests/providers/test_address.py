"""Addresses: the parts of a `base_url`, and the names behind them."""

import asyncio
import socket

import pytest

from onward.core.failure import FailureKind
from onward.providers.address import Address, Lookup
from tests.mock_provider import MockProvider
from tests.providers.raw import ask, fails, whole


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "authority", "prefix"),
    [
        ("https://api.example.com/v1", "api.example.com", 443, True, b"api.example.com", b"/v1"),
        ("http://api.example.com", "api.example.com", 80, False, b"api.example.com", b""),
        ("http://API.example.com:80/", "api.example.com", 80, False, b"api.example.com", b""),
        (
            "https://api.example.com:8443/a/b/",
            "api.example.com",
            8443,
            True,
            b"api.example.com:8443",
            b"/a/b",
        ),
        ("http://[::1]:8000/v1", "::1", 8000, False, b"[::1]:8000", b"/v1"),
        (
            "https://b\u00fccher.example/v1",
            "xn--bcher-kva.example",
            443,
            True,
            b"xn--bcher-kva.example",
            b"/v1",
        ),
        ("http://my_service:9/v1", "my_service", 9, False, b"my_service:9", b"/v1"),
        ("http://h/a%20b", "h", 80, False, b"h", b"/a%20b"),
    ],
)
def test_parts(url, host, port, tls, authority, prefix):
    assert Address.parse(url) == Address(host=host, port=port, tls=tls, authority=authority, prefix=prefix)


@pytest.mark.parametrize(
    "url",
    [
        "sk-secret",
        "ftp://sk-secret/v1",
        "https://",
        "https:///v1",
        "https://h:sk-secret/v1",
        "https://h:0/v1",
        "https://sk-secret@h/v1",
        "https://user:sk-secret@h/v1",
        "https://h/v1?key=sk-secret",
        "https://h/v1#sk-secret",
        "https://h/sk-secret b",
        "https://h/sk-secret\u00e9",
        "https://sk-secret b/v1",
        "https://[sk-secret/v1",
        f"https://{'sk-secret' * 10}.example/v1",
        "https://sk-secret\u2100/v1",
    ],
)
def test_what_is_no_address_is_refused_unseen(url):
    with pytest.raises(ValueError, match="base_url") as refused:
        Address.parse(url)
    assert "sk-secret" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


class Names:
    """The loop's resolver, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: object) -> None:
        self.asked = 0
        self.answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    async def getaddrinfo(self, host: str, port: int, **_: object) -> object:
        self.asked += 1
        await self.gate.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port))] if answer else []


ADDRESS = Address.parse("http://api.example.com:8000/v1")


async def test_a_name_is_asked_for_once_in_a_while(monkeypatch):
    names = Names(monkeypatch, "192.0.2.1", "192.0.2.2")
    lookup = Lookup(ADDRESS, kept_s=0.05)
    assert [(await lookup.addresses())[0][4][0] for _ in range(3)] == ["192.0.2.1"] * 3
    lookup._until = 0
    assert (await lookup.addresses())[0][4] == ("192.0.2.2", 8000)
    assert names.asked == 2


async def test_many_who_ask_at_once_are_one_question(monkeypatch):
    names = Names(monkeypatch, "192.0.2.1")
    names.gate.clear()
    lookup = Lookup(ADDRESS)
    asking = [asyncio.create_task(lookup.addresses()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    names.gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert all(isinstance(one, list) for one in found[1:])
    assert names.asked == 1


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "Name or service not known"), None])
async def test_failures_are_not_kept(monkeypatch, answer):
    names = Names(monkeypatch, answer, "192.0.2.1")
    lookup = Lookup(ADDRESS)
    with pytest.raises(OSError, match=r"[Nn]ame"):
        await lookup.addresses()
    await asyncio.sleep(0)
    assert (await lookup.addresses())[0][4][0] == "192.0.2.1"
    assert names.asked == 2


async def test_a_name_that_is_none(client):
    await fails(ask(client("http://no-such-name.invalid/v1")))


async def test_the_next_address_is_tried_where_one_does_not_answer(mock: MockProvider, client):
    """Happy eyeballs: the first takes no connections, the second does."""
    provider = client(f"http://localhost:{mock.port}/v1")
    pool = provider._client._pool()
    closed = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))
    silent = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 9))  # RFC 5737: nobody is there
    good = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", mock.port))
    for first in (closed, silent):
        pool._lookup._found, pool._lookup._until = [first, good], float("inf")
        assert b"w4" in await whole(provider, "[[close]]")


async def test_addresses_that_nobody_answers_at_are_asked_for_anew(mock: MockProvider, client):
    provider = client(f"http://localhost:{mock.port}/v1")
    pool = provider._client._pool()
    closed = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))
    pool._lookup._found, pool._lookup._until = [closed], float("inf")
    await fails(ask(provider))
    assert b"w4" in await whole(provider)


async def test_and_so_they_are_where_connecting_took_too_long(mock: MockProvider, client, monkeypatch):
    from onward.providers import pool

    provider = client(f"http://localhost:{mock.port}/v1", connect_timeout_s=0.05)
    await whole(provider, "[[close]]")
    lookup = provider._client._pool()._lookup
    assert lookup._found

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(pool, "connect", never)
        await fails(ask(provider), FailureKind.UPSTREAM_TIMEOUT)
    assert lookup._found == []
