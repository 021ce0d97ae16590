"""Requests whose header came before on their connection: answered as if each had been the first."""

import asyncio
import json

import pytest

from onward.http.head import Head, learn
from tests.http.harness import MODEL, SECRET, edge
from tests.http.operated import operated

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def post(prompt: str = "hello", *, head: bytes = HEAD, length: bytes = b"content-length: %d\r\n") -> bytes:
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 2}).encode()
    return head + length % len(body) + b"\r\n" + body


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of one answer."""
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return head, await reader.readexactly(size)


def known(request: bytes):
    body = request.partition(b"\r\n\r\n")[2]
    return learn(request, len(body), Head("POST", b"/", "1.1", [], keep_alive=True))


@pytest.mark.parametrize(
    "length", [b"content-length: %d\r\n", b"Content-Length:%d\r\n", b"CONTENT-LENGTH:\t %d\r\n"]
)
def test_a_header_is_known_whatever_its_length_says(length: bytes):
    head = known(post(length=length))
    for prompt in ("", "x" * 10, "x" * 100_000):
        request = post(prompt, length=length)
        assert head.body(request) == request.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "other",
    [
        post()[:-1],
        post() + b"G",
        post() + post(),
        post(head=HEAD + b"transfer-encoding: chunked\r\n"),
        post(head=HEAD.replace(b"x\r\n", b"y\r\n")),
        post(length=b"content-length: %d\r\ncontent-length: 1\r\n"),
        post(length=b"content-length: +%d\r\n"),
        post(length=b"content-length: %d \r\n"),
        post(length=b"content-length: %d\r\nx: y\r\n"),
        post(length=b"content-length: 0000000000%d\r\n"),
        b"",
    ],
)
def test_what_differs_is_parsed(other: bytes):
    assert known(post()).body(other) is None


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(head=HEAD + b"x-note: Content-Length: 5\r\n"),
        post(head=HEAD + b"x: " + b"y" * 5000 + b"\r\n"),
        post().replace(b"\r\n\r\n", b"\n\n", 1),
        post(length=b"x-length: %d\r\n"),
    ],
)
def test_a_header_that_could_be_read_in_two_ways_is_not_remembered(request_bytes: bytes):
    assert known(request_bytes) is None


async def test_requests_of_one_connection(text_side, tmp_path):
    """The bodies differ, their lengths too; each has an ID of its own, and the last another header."""
    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        seen = set()
        for prompt in ("hello", "hello there", "a", "hello"):
            writer.write(post(prompt))
            head, body = await answer(reader)
            assert head.startswith(b"HTTP/1.1 200")
            assert json.loads(body)["choices"]
            seen.add(head.partition(b"x-request-id: ")[2].partition(b"\r")[0])
        assert len(seen) == 4
        writer.write(post(head=HEAD + b"x-request-id: mine\r\n"))
        assert b"x-request-id: mine\r\n" in (await answer(reader))[0]
        writer.write(post())
        assert b"mine" not in (await answer(reader))[0]
        writer.write(post("x" * 30)[:-10])  # in pieces
        await asyncio.sleep(0.02)
        writer.write(post("x" * 30)[-10:] + post() + post())  # and with others behind
        for _ in range(3):
            assert (await answer(reader))[0].startswith(b"HTTP/1.1 200")
        writer.close()
        assert len(await running.logged("/v1/completions", 9)) == 9


async def test_a_body_over_the_bound_is_refused_behind_a_known_header(text_side, tmp_path):
    from onward.http.limits import Limits

    async with edge(text_side, tmp_path, limits=Limits(body_bytes=1000)) as running:
        reader, writer = await running.connect()
        writer.write(post())
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200")
        writer.write(post("x" * 2000))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 413")
        writer.close()


async def test_a_key_is_looked_up_each_time(text_side, tmp_path):
    """Revoked in the middle of a connection it is refused with the next request."""
    async with operated(text_side, tmp_path) as running:
        await running.post("/tenants", {"name": "acme"})
        made = await running.post("/keys", {"name": "ci", "tenant": "acme"})
        head = HEAD + b"authorization: Bearer %b\r\n" % made["secret"].encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for _ in range(3):
            writer.write(post(head=head))
            assert (await answer(reader))[0].startswith(b"HTTP/1.1 200")
        assert (await running.ask("DELETE", f"/keys/{made['id']}")).status_code == 200
        await running.admission.refresh()
        writer.write(post(head=head))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 401")
        writer.close()


async def test_a_wrong_key_does_not_become_right(text_side, tmp_path):
    async with edge(text_side, tmp_path, keys=True) as running:
        reader, writer = await running.connect()
        for secret, status in ((SECRET, b"200"), (SECRET, b"200"), ("on-a-wrong-one", b"401")):
            writer.write(post(head=HEAD + b"authorization: Bearer %b\r\n" % secret.encode()))
            assert (await answer(reader))[0].split()[1] == status
        writer.close()
