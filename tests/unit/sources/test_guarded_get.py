"""One image from an address: what is fetched, and what is refused before a connection (G26)."""

import asyncio
import gzip
import ipaddress
import logging
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from onward.core.remote_image import RemoteImageError
from onward.sources.guarded_get import NOT_FETCHED, Bytes, GuardedGet, Rules
from onward.sources.public_address import Guard
from tests.image_host import ImageHost, answer, redirect
from tests.pictures import picture

RED = picture()
HERE = ipaddress.ip_network("127.0.0.1/32")
"""The one network that is allowed here; what else a test meets on this machine is private."""


class Names:
    """A resolver: each look-up of a name gives its next answer, the last one for ever."""

    def __init__(self, **names: list[list[str]]) -> None:
        self._names: dict[str, Iterator[list[str]]] = {
            name.replace("_", "."): chain(answers, repeat(answers[-1])) for name, answers in names.items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return next(self._names[host]) if host in self._names else []


@pytest.fixture
async def host() -> AsyncIterator[ImageHost]:
    async with ImageHost({"/red.png": answer(RED)}).listening() as host:
        yield host


@pytest.fixture
async def inside(host: ImageHost) -> AsyncIterator[ImageHost]:
    """What must never be asked: it listens on the same port of an address that is not allowed."""
    async with ImageHost({"/red.png": answer(RED)}).listening("127.0.0.2", host.port) as inside:
        yield inside
        assert inside.connections == 0


def getter(
    host: ImageHost | None = None,
    names: Names | None = None,
    *,
    redirects: int = 0,
    tls: ssl.SSLContext | None = None,
) -> GuardedGet:
    rules = Rules(
        guard=Guard([HERE]),
        ports=(80, 443) if host is None else (80, 443, host.port),
        most_redirects=redirects,
        connect_s=5,
    )
    return GuardedGet(rules, tls or ssl.create_default_context(), names or Names())


async def get(url: str, host: ImageHost | None = None, names: Names | None = None, **options) -> bytes:
    async with asyncio.timeout(20):
        return await getter(host, names, **options).get(url, Bytes(100_000, 200_000))


async def refused(url: str, host: ImageHost | None = None, names: Names | None = None, **options) -> str:
    with pytest.raises(RemoteImageError) as caught:
        await get(url, host, names, **options)
    return str(caught.value)


async def test_an_image_is_fetched(host: ImageHost):
    assert await get(host.url("/red.png"), host) == RED
    names = Names(images_test=[["127.0.0.1"]])
    host.answers["/red.png?a=%20b"] = answer(RED)
    assert await get(host.url("/red.png?a= b#there", "IMAGES.test."), host, names) == RED
    assert names.asked == ["images.test"]
    head = host.heads[-1].lower()
    assert head.startswith("get /red.png?a=%20b http/1.1\r\n")
    assert f"\r\nhost: images.test:{host.port}\r\n" in head
    assert "\r\naccept-encoding: identity\r\n" in head
    assert "cookie" not in head
    assert "authorization" not in head


@pytest.mark.parametrize(
    "host_part",
    [
        "169.254.169.254",
        "10.0.0.1",
        "127.0.0.2",
        "[::1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[fe80::1]",
        "0.0.0.0",  # noqa: S104
        "127。0。0。2",
    ],
)
async def test_g26_no_private_address(host_part: str):
    names = Names()
    assert await refused(f"http://{host_part}/latest/meta-data", names=names) == NOT_FETCHED
    assert names.asked == []


@pytest.mark.parametrize(
    "host_part",
    [
        "2852039166",
        "2130706433",
        "0xa9fea9fe",
        "0xA9.0xFE.0xA9.0xFE",
        "0251.0376.0251.0376",
        "169.254.43518",
        "169.16689662",
        "0",
        "127.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.b.0x7f",
        "169.254.169.254.",
        "１６９.254.169.254",
        "%31%36%39.254.169.254",
        "[169.254.169.254]",
        "[::1",
        "[::1%25lo]",
        "a..b",
        ".",
        "-a.test",
        "a b.test",
        "a\\b.test",
        "x" * 64 + ".test",
        ".".join(["x" * 60] * 5),
    ],
)
async def test_g26_no_host_that_is_written_oddly(host_part: str):
    """Decimal, octal, hexadecimal, short: nothing that one parser takes for a name and another for a number."""
    names = Names()
    assert await refused(f"http://{host_part}/", names=names)
    assert names.asked == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://images.test/a.png", "no http or https"),
        ("file:///etc/passwd", "no http or https"),
        ("gopher://images.test/", "no http or https"),
        ("//images.test/a.png", "no http or https"),
        ("http://user@images.test/a.png", "name or password"),
        ("http://user:word@images.test/a.png", "name or password"),
        ("http://images.test:22/a.png", "the port 22, and images are only fetched from 80, 443"),
        ("http://images.test:0/a.png", "the port 0"),
        ("http://images.test:99999/a.png", "the port 99999"),
        ("http://images.test/\r\nHost: other", "well-formed"),
        ("http://images.test/a\x00", "well-formed"),
        ("http://images.test/\ud800", "well-formed"),
        ("http:///a.png", "has a host"),
        ("http://images.test/" + "a" * 9000, "8192"),
    ],
)
async def test_an_address_of_another_form_is_refused_for_what_it_is(url: str, says: str):
    names = Names(images_test=[["127.0.0.1"]])
    assert says in await refused(url, names=names)
    assert names.asked == []


@pytest.mark.parametrize(
    "found",
    [
        [],
        ["127.0.0.2"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "::1"],
        ["127.0.0.1", "fe80::1%lo"],
        ["::ffff:127.0.0.2"],
        ["169.254.169.254"],
    ],
)
async def test_g26_a_name_with_one_private_address_has_none(
    host: ImageHost, inside: ImageHost, found: list[str]
):
    names = Names(images_test=[found])
    assert await refused(host.url("/red.png", "images.test"), host, names) == NOT_FETCHED
    assert host.connections == 0


async def test_g26_a_name_that_changes_its_address_gains_nothing(host: ImageHost, inside: ImageHost):
    """DNS rebinding: the address that was judged is the one that is connected to."""
    names = Names(images_test=[["127.0.0.1"], ["127.0.0.2"]])
    assert await get(host.url("/red.png", "images.test"), host, names) == RED
    assert names.asked == ["images.test"]
    names = Names(images_test=[["127.0.0.1"], ["127.0.0.2"]])
    host.answers["/again"] = redirect(host.url("/red.png", "images.test"))
    url = host.url("/again", "images.test")
    assert await refused(url, host, names, redirects=1) == NOT_FETCHED
    assert names.asked == ["images.test", "images.test"]


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_g26_no_redirect_where_none_is_followed(host: ImageHost, inside: ImageHost, status: str):
    host.answers["/"] = redirect(inside.url("/red.png", "127.0.0.2"), status)
    assert "none is followed" in await refused(host.url("/"), host)
    assert host.paths == ["/"]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:{port}/red.png",
        "//127.0.0.2:{port}/red.png",
        "http://2130706434:{port}/red.png",
        "http://inside.test:{port}/red.png",
        "http://user@127.0.0.1:{port}/red.png",
        "http://169.254.169.254/",
        "http://127.0.0.1:22/",
        "file:///etc/passwd",
        "http://[::1",
        "https:////65[+;<6",
        "http://127.0.0.1:{port}/" + "a" * 9000,
    ],
)
async def test_g26_a_redirect_goes_through_the_same_guard(host: ImageHost, inside: ImageHost, location: str):
    """And its refusal says nothing of what lies there."""
    host.answers["/"] = redirect(location.format(port=host.port))
    names = Names(inside_test=[["127.0.0.2"]])
    assert await refused(host.url("/"), host, names, redirects=3) == NOT_FETCHED
    assert host.paths == ["/"]


async def test_redirects_are_followed_as_far_as_allowed(host: ImageHost):
    host.answers |= {"/1": redirect("/2"), "/2": redirect(host.url("/red.png")), "/loop": redirect("loop")}
    assert await get(host.url("/1"), host, redirects=2) == RED
    assert all("crumb" not in head for head in host.heads)
    assert "more than 1 redirects" in await refused(host.url("/1"), host, redirects=1)
    host.heads.clear()
    assert "more than 3 redirects" in await refused(host.url("/loop"), host, redirects=3)
    assert host.paths == ["/loop"] * 4


async def test_what_is_not_there_reads_the_same_as_what_is_private(
    host: ImageHost, inside: ImageHost, caplog
):
    """Nobody maps our network by messages; the log knows, and never holds more of an address than its host."""

    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.close()

    host.answers |= {"/gone": hang_up, "/other": b"220 mail.test ESMTP\r\n"}
    names = Names(closed_test=[["127.0.0.1"]], inside_test=[["127.0.0.2"]])
    closed = ImageHost()
    async with closed.listening():
        pass
    with caplog.at_level(logging.INFO, "onward"):
        for url in (
            host.url("/secret", "inside.test"),
            host.url("/secret", "nowhere.test"),
            host.url("/gone"),
            host.url("/other"),
        ):
            assert await refused(url, host, names) == NOT_FETCHED
        assert await refused(closed.url("/secret", "closed.test"), closed, names) == NOT_FETCHED
    said = [record.getMessage() for record in caplog.records if record.name == "onward"]
    assert "inside.test: an address that is not public" in said[0]
    assert "nowhere.test: no such name" in said[1]
    assert "closed.test: ConnectError" in said[4]
    assert "secret" not in "".join(said)


async def test_another_address_is_tried_where_one_does_not_answer(host: ImageHost):
    rules = Rules(guard=Guard([ipaddress.ip_network("127.0.0.0/8")]), ports=(host.port,), connect_s=5)
    names = Names(images_test=[["127.0.0.3", "127.0.0.1"]])
    get = GuardedGet(rules, ssl.create_default_context(), names)
    assert await get.get(host.url("/red.png", "images.test"), Bytes(10_000, 10_000)) == RED


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (answer(b"no", "404 Not Found"), "the status 404"),
        (answer(RED, "206 Partial Content"), "the status 206"),
        (answer(RED, "500 Oops"), "the status 500"),
        (answer(b"", "304 Not Modified"), "the status 304"),
        (answer(b"", "302 Found"), "the status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n", "more than 100000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 500 + b"\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", NOT_FETCHED),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000, NOT_FETCHED),
        (answer(b"x" * 100_001), "more than 100000 bytes"),
    ],
)
async def test_answers_that_are_no_image(host: ImageHost, given: bytes, says: str):
    host.answers["/"] = given
    assert says in await refused(host.url("/"), host)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
async def test_a_body_without_an_end_is_left_at_the_bound(host: ImageHost, head: bytes):
    chunk = b"x" * 10_000

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(b"2710\r\n" + chunk + b"\r\n" if b"chunked" in head else chunk)
            await writer.drain()

    host.answers["/"] = endless
    assert "more than 100000 bytes" in await refused(host.url("/"), host)
    await host.until(lambda: host.open == 0)


async def test_bytes_of_several_images_are_bounded_together(host: ImageHost):
    host.answers["/large"] = answer(b"x" * 90_000)
    room, get = Bytes(100_000, 200_000), getter(host)
    for _ in range(2):
        await get.get(host.url("/large"), room)
    with pytest.raises(RemoteImageError, match="200000 bytes together"):
        await get.get(host.url("/large"), room)


async def test_nothing_is_unpacked(host: ImageHost):
    packed = gzip.compress(bytes(1_000_000))
    host.answers["/"] = answer(packed, "200 OK", "Content-Encoding: gzip")
    assert await get(host.url("/"), host) == packed


async def test_proxies_of_the_environment_are_not_used(host: ImageHost, inside: ImageHost, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, inside.url("", "127.0.0.2"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert await get(host.url("/red.png"), host) == RED


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of its own for `images.test`."""
    path = tmp_path_factory.mktemp("tls") / "images.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=images.test", "-addext", "subjectAltName=DNS:images.test"]
    subprocess.run([*command, "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


async def test_tls_is_verified_for_the_name(certificate: Path):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)
    asked: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))
    names = Names(images_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    async with ImageHost({"/red.png": answer(RED)}).listening(tls=server) as host:
        url = f"https://images.test:{host.port}/red.png"
        assert await get(url, host, names, tls=trusting) == RED
        assert asked == ["images.test"]
        assert await refused(url, host, names) == NOT_FETCHED
        for wrong in ("other.test", "127.0.0.1"):
            wrong_url = f"https://{wrong}:{host.port}/red.png"
            assert await refused(wrong_url, host, names, tls=trusting) == NOT_FETCHED
        assert host.paths == ["/red.png"]


async def test_a_redirect_does_not_lead_out_of_tls(certificate: Path, host: ImageHost):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with ImageHost({"/down": redirect(host.url("/red.png"))}).listening(tls=server) as secure:
        secure.answers["/red.png"] = answer(RED)
        host.answers["/up"] = redirect(f"https://images.test:{secure.port}/red.png")
        ports = (host.port, secure.port)
        rules = Rules(guard=Guard([HERE]), ports=ports, most_redirects=1, connect_s=5)
        one = GuardedGet(rules, trusting, Names(images_test=[["127.0.0.1"]]))
        assert await one.get(host.url("/up"), Bytes(10_000, 10_000)) == RED
        with pytest.raises(RemoteImageError, match=NOT_FETCHED):
            await one.get(f"https://images.test:{secure.port}/down", Bytes(10_000, 10_000))
    assert host.paths == ["/up"]


async def test_tls_that_breaks_is_no_fault_of_ours(certificate: Path):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)

    async def garble(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhalf")
        await writer.drain()
        writer.get_extra_info("socket")._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))

    trusting = ssl.create_default_context(cafile=str(certificate))
    names = Names(images_test=[["127.0.0.1"]])
    async with ImageHost({"/": garble}).listening(tls=server) as host:
        assert await refused(f"https://images.test:{host.port}/", host, names, tls=trusting) == NOT_FETCHED
