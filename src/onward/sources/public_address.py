"""Which IP addresses a caller may make us talk to: public ones, and networks that the config names (G26).

The judge of a name is what it resolves to, never how it is written.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST_6: Final = ipaddress.IPv6Network("2000::/3")
"""All that is handed out to the public; `ipaddress` calls more than that global."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""An IPv4 address in its last 32 bits (RFC 6052): how hosts without IPv4 reach those with it."""
_SPECIAL: Final = [
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # protocol assignments, Teredo among them: IPv4 in disguise
        "2002::/16",  # 6to4: IPv4 in disguise
        "3fff::/20",  # documentation
    )
]
"""Not public, though some version of `ipaddress` calls it global."""
NEVER: Final = [
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",  # of every cloud, and link-local
        "fe80::/10",  # link-local
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
    )
]
"""Where clouds keep the secrets of a machine: not even a config opens them."""


class Guard:
    """Says which addresses are connected to. `networks` are allowed though they are not public."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    def allowed(self, text: str) -> str | None:
        """The one address to connect to for a resolved one; None: do not."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        if isinstance(address, ipaddress.IPv6Address):
            if address.scope_id is not None:  # a network card of ours
                return None
            address = address.ipv4_mapped or address
        meant = _behind_nat64(address) or address
        if any(meant in network for network in NEVER):
            return None
        if any(address in network for network in self._networks):
            return str(address)
        return str(address) if is_public(meant) and not is_own(address) else None


def is_never_fetched_from(network: Network) -> bool:
    """Whether no address of a network is allowed, whatever a config says."""
    return any(network.version == never.version and network.subnet_of(never) for never in NEVER)  # type: ignore[arg-type]


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet, and of one host."""
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST_6:
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _SPECIAL)
    )


def _behind_nat64(address: Address) -> ipaddress.IPv4Address | None:
    """Whom an address reaches that a network translates to IPv4."""
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def is_own(address: Address) -> bool:
    """Whether this machine itself has the address: what it opens to itself may be closed to others."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))  # of a datagram socket: chooses a route, sends nothing
        except OSError:
            return False
        return ipaddress.ip_address(probe.getsockname()[0]) == address
