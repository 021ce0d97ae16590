"""A new connection to a provider: to whichever of its addresses answers first, and TLS over it."""

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import certifi
from aiohappyeyeballs import start_connection

from onward.providers.address import Lookup

_P = TypeVar("_P", bound=asyncio.Protocol)
_STAGGER_S = 0.25
"""RFC 8305: when the next address is tried beside one that has not answered."""


@functools.cache
def verifying() -> ssl.SSLContext:
    """TLS that checks certificate and name, by the system's authorities or, where it has none, certifi's."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if paths.cafile is None and (folder is None or not any(folder.iterdir())):
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


async def connect(lookup: Lookup, make: Callable[[], _P], tls: ssl.SSLContext | None) -> _P:
    """A protocol that is connected. `tls`: the context; None: plain TCP.

    Raises OSError (which ssl.SSLError is). Sets no bound on time: its caller does.
    """
    loop = asyncio.get_running_loop()
    addresses = await lookup.addresses()
    connected = await start_connection(addresses, happy_eyeballs_delay=_STAGGER_S, interleave=1, loop=loop)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _, protocol = await loop.create_connection(
        make, sock=connected, ssl=tls, server_hostname=lookup.address.host if tls else None
    )
    return protocol
