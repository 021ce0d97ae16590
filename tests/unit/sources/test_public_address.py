"""Addresses that callers may make us talk to, and those that they may not (G26)."""

import ipaddress
import socket

import pytest

from onward.sources import public_address
from onward.sources.public_address import Guard, is_own

PUBLIC = {
    "8.8.8.8": "8.8.8.8",
    "1.1.1.1": "1.1.1.1",
    "172.15.255.255": "172.15.255.255",
    "172.32.0.1": "172.32.0.1",
    "100.63.255.255": "100.63.255.255",
    "2606:4700:4700::1111": "2606:4700:4700::1111",
    "2a00:1450:4001:0800:0000:0000:0000:200e": "2a00:1450:4001:800::200e",
    "::ffff:8.8.8.8": "8.8.8.8",
    "64:ff9b::808:808": "64:ff9b::808:808",
}
PRIVATE = [
    "0.0.0.0",  # noqa: S104
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.2.3",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",  # IPv4 in an old disguise, and in newer ones
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "64:ff9b:1:ffff::7f00:1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:808:808::1",
    "3fff::1",
    "100::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "4000::1",
    "",
    "localhost",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1 ",
]


@pytest.mark.parametrize(("text", "number"), PUBLIC.items())
def test_public_addresses(text: str, number: str):
    assert Guard().allowed(text) == number


@pytest.mark.parametrize("text", PRIVATE)
def test_addresses_that_are_not_public(text: str):
    assert Guard().allowed(text) is None


def test_networks_that_are_allowed_by_name():
    guard = Guard([ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00:1::/32")])
    assert guard.allowed("10.1.2.3") == guard.allowed("::ffff:10.1.2.3") == "10.1.2.3"
    assert guard.allowed("fd00:1::5") == "fd00:1::5"
    assert guard.allowed("8.8.8.8") == "8.8.8.8"
    for text in ("10.2.0.1", "127.0.0.1", "fd00:2::1", "fd00:1::5%eth0", "64:ff9b::a01:203"):
        assert guard.allowed(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
    ],
)
def test_what_no_config_opens(text: str):
    """Not even one that allows everything, in any disguise."""
    everything = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    assert Guard(everything).allowed(text) is None
    assert Guard(everything).allowed("10.0.0.1")


def test_an_address_of_this_machine_is_its_own(monkeypatch):
    """However public it is: what listens there may be closed to everybody else."""
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("192.0.2.1"))
    assert Guard().allowed("8.8.8.8")
    monkeypatch.setattr(public_address, "is_own", lambda address: str(address) == "8.8.8.8")
    assert Guard().allowed("8.8.8.8") is None
    assert Guard().allowed("::ffff:8.8.8.8") is None
    assert Guard().allowed("8.8.4.4")


def test_without_a_route_nothing_is_ours(monkeypatch):
    class Unroutable(socket.socket):
        def connect(self, address):
            raise OSError

    monkeypatch.setattr(socket, "socket", Unroutable)
    assert not is_own(ipaddress.ip_address("8.8.8.8"))
