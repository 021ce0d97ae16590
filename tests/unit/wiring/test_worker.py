"""An HTTP process ends with its supervisor, however that ends."""

import asyncio
import os
import socket

import pytest

from onward.wiring import worker
from onward.wiring.plan import DRAIN, READY


@pytest.mark.parametrize("read", [True, False])
async def test_a_supervisor_that_is_gone_ends_it(monkeypatch, read: bool):
    """Also one that was killed before it had read that we are ready: its end is an error then."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    theirs, ours = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(READY)
    await writer.drain()
    theirs.send(DRAIN)
    drain, hurry = asyncio.Event(), asyncio.Event()
    obeying = asyncio.create_task(worker._obey(reader, drain, hurry))
    async with asyncio.timeout(5):
        await drain.wait()
        if read:
            theirs.recv(len(READY))
        theirs.close()
        await obeying
    assert codes == [1]
    assert not hurry.is_set()
    writer.close()
