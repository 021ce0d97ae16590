"""Names to addresses, in threads that hold nothing up."""

import asyncio
import socket
import threading

import pytest

from onward.sources import lookup
from onward.sources.lookup import resolve


async def test_every_address_of_a_name(monkeypatch):
    asked = []

    def answer(host, port, type):  # noqa: A002 - as the function that it stands for
        asked.append((host, port))
        if host == "nowhere.test":
            raise socket.gaierror
        return [
            (socket.AF_INET6, type, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, type, 6, "", ("127.0.0.1", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert await resolve("images.test", 81) == ["::1", "127.0.0.1"]
    assert await resolve("nowhere.test", 80) == []
    assert asked == [("images.test", 81), ("nowhere.test", 80)]


async def test_this_machine_knows_itself():
    assert {"127.0.0.1", "::1"} & set(await resolve("localhost", 80))
    assert await resolve("\udcff", 80) == []


async def test_look_ups_that_hang_are_bounded_and_hold_nothing_up(monkeypatch):
    found = socket.getaddrinfo
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def hang(*_arguments, **_options):
        begun.release()
        go_on.wait(20)
        return []

    monkeypatch.setattr(lookup, "_free", threading.BoundedSemaphore(2))
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    waiting = [asyncio.create_task(resolve("slow.test", 80)) for _ in range(2)]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=20)
    assert await resolve("images.test", 80) == []
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert await resolve("images.test", 80) == []  # its thread still runs
    go_on.set()
    assert await waiting[1] == []
    for thread in threading.enumerate():
        if thread.name == "lookup":
            thread.join(20)
    monkeypatch.setattr(socket, "getaddrinfo", found)
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
