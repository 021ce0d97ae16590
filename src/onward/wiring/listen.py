"""Sockets to listen on, and who may be let in through them."""

import errno
import ipaddress
import resource
import socket

from onward.wiring.config import Config

_BACKLOG = 2048
_TODO = {
    errno.EADDRINUSE: "Stop what listens there or choose another --port",
    errno.EADDRNOTAVAIL: "It is no address of this machine: choose another --host",
    errno.EACCES: "Choose a --port above 1023, or get the right to take this one",
}


class ServeError(Exception):
    """We cannot serve: one line that says why and what to do."""


def check_open(config: Config, *, has_keys: bool) -> None:
    """Refuse to listen where others can reach us while nobody needs a key. Raises `ServeError`."""
    server = config.server
    if has_keys or server.no_auth or is_loopback(server.host):
        return
    raise ServeError(
        f"refusing to listen on {server.host} while no key exists: everybody who can reach it could use it. "
        "Make a key with 'onward keys create NAME'; "
        "or listen on 127.0.0.1; or say --no-auth if something else keeps others out"
    )


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def bind(config: Config) -> list[socket.socket]:
    """Bound, listening sockets: one for each address of the host. Raises `ServeError`."""
    host, port = config.server.host.strip("[]"), config.server.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ServeError(f"cannot listen on {host}: {error.strerror}. Check --host") from None
    bound: list[socket.socket] = []
    refused: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        if bound and port == 0:
            address = (address[0], bound[0].getsockname()[1], *address[2:])  # noqa: PLW2901 - one port for all
        try:
            bound.append(_bound(family, kind, protocol, address))
        except OSError as error:
            refused = error
    if not bound:
        reason = refused.strerror if refused else "it has no address"
        todo = _TODO.get(refused.errno or 0 if refused else 0, "Choose another --host or --port")
        raise ServeError(f"cannot listen on {host} port {port}: {reason}. {todo}")
    return bound


def _bound(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def base_url(config: Config, sockets: list[socket.socket]) -> str:
    """The address to paste into a client, without a mount's path."""
    host = config.server.host.strip("[]")
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{sockets[0].getsockname()[1]}"


def raise_file_limit(wanted: int = 65_536) -> None:
    """Allow as many open connections as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
