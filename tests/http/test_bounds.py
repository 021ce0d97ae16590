"""Bounds of the protocol: headers, URLs, time, bodies, connections, slow readers."""

import asyncio
import json

import pytest

from onward.http.limits import Limits
from tests.http.harness import JSON, MODEL, SlowEngine, edge, until

QUICK = Limits(
    header_s=0.3,
    body_idle_s=0.3,
    body_s=0.6,
    keep_alive_s=0.4,
    write_stall_s=0.4,
    linger_s=0.3,
    body_bytes=100_000,
)


def parsed(answer: bytes) -> tuple[int, dict[str, str], dict]:
    """Status, headers and JSON of a raw answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, json.loads(body)


def assert_refused(answer: bytes, status: int) -> None:
    got, headers, body = parsed(answer)
    assert got == status, answer
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"]
    assert set(body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 50_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nendless: " + b"x" * 50_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"n" * 50_000, 431),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414),
        (b"GET /" + b"x" * 70_000, 414),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n", 400),
        (b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 501),
    ],
)
@pytest.mark.parametrize("size", [1 << 20, 1000])
async def test_requests_that_go_over_a_bound(
    text_side, tmp_path, request_bytes: bytes, status: int, size: int
):
    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        for start in range(0, len(request_bytes), size):
            writer.write(request_bytes[start : start + size])
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert_refused(await reader.read(-1), status)
        writer.close()
        assert (await running.complete()).status_code == 200


async def test_trailers_and_chunk_extensions_are_bounded(text_side, tmp_path):
    start = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    async with edge(text_side, tmp_path) as running:
        for endless in (b"5;ext=" + b"x" * 50_000, b"1\r\n{\r\n0\r\ntrailer: " + b"x" * 50_000):
            reader, writer = await running.connect()
            writer.write(start)
            for offset in range(0, len(endless), 4000):
                writer.write(endless[offset : offset + 4000])
                await asyncio.sleep(0.001)
            async with asyncio.timeout(10):
                assert_refused(await reader.read(-1), 431)
            writer.close()


async def test_silent_connections_and_half_headers_end(text_side, tmp_path):
    async with edge(text_side, tmp_path, limits=QUICK) as running:
        assert await running.raw(b"") == b""
        assert_refused(await running.raw(b"GET / HTTP/1.1\r\nhost:"), 408)
        reader, writer = await running.connect()
        async with asyncio.timeout(5):
            for letter in b"GET / HTTP/1.1\r\nx-slow: " + b"y" * 1000:
                writer.write(bytes([letter]))
                await asyncio.sleep(0.02)
                if reader._eof or reader._buffer:
                    break
            assert_refused(await reader.read(-1), 408)
        writer.close()
        await until(lambda: running.http.connections == 0)


async def test_bodies_that_stop_or_trickle_end(text_side, tmp_path):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{"
    async with edge(text_side, tmp_path, limits=QUICK) as running:
        assert_refused(await running.raw(head), 408)
        reader, writer = await running.connect()
        writer.write(head)
        async with asyncio.timeout(5):
            while not (reader._eof or reader._buffer):
                writer.write(b" ")
                await asyncio.sleep(0.05)
            assert_refused(await reader.read(-1), 408)
        writer.close()
        logged = await running.logged("/v1/completions", 2)
        assert all((line["status"], line["failure"]) == (408, "request_timeout") for line in logged)


async def test_idle_connections_end_after_the_keep_alive_time(text_side, tmp_path):
    async with edge(text_side, tmp_path, limits=QUICK) as running:
        reader, writer = await running.connect()
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await reader.read(65536)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            assert await reader.read(-1) == b""
        writer.close()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.covers("O-5")
async def test_bodies_over_the_bound(text_side, tmp_path, chunked: bool):
    """By its length before a byte of it is read, and by count where no length is told."""
    async with edge(text_side, tmp_path, limits=QUICK) as running:
        body = json.dumps({"model": MODEL, "prompt": "x" * 100_001}).encode()

        async def pieces():
            for start in range(0, len(body), 10_000):
                yield body[start : start + 10_000]

        response = await running.client.post(
            "/v1/completions", content=pieces() if chunked else body, headers=JSON
        )
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_entity_too_large"
        assert response.headers["x-request-id"]
        assert len(response.content) < 1000
        below = json.dumps(
            {"model": MODEL, "prompt": "hello", "max_tokens": 1, "padding": "x" * 60_000}
        ).encode()

        async def small():
            for start in range(0, len(below), 1000):
                yield below[start : start + 1000]

        answer = await running.client.post(
            "/v1/completions", content=small() if chunked else below, headers=JSON
        )
        assert answer.status_code == 200, answer.text


async def test_length_alone_refuses_without_the_body(text_side, tmp_path):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 200000\r\n\r\n"
    async with edge(text_side, tmp_path, limits=QUICK) as running:
        status, _, body = parsed(await running.raw(head))
        assert (status, body["error"]["code"]) == (413, "request_entity_too_large")


async def test_all_bodies_together_are_bounded(text_side, tmp_path):
    limits = Limits(body_bytes=100_000, held_body_bytes=150_000)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90000\r\n\r\n"
    async with edge(text_side, tmp_path, limits=limits) as running:
        first = await running.connect()
        first[1].write(head + b"{" + b" " * 80_000)
        await asyncio.sleep(0.1)
        status, headers, _ = parsed(await running.raw(head + b"{" + b" " * 80_000))
        assert status == 503
        assert int(headers["retry-after"]) >= 1
        first[1].close()
        await until(lambda: running.http.connections == 0)
        body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 1, "padding": "x" * 80_000})
        answer = await running.client.post("/v1/completions", content=body, headers=JSON)
        assert answer.status_code == 200


async def test_expect_continue(text_side, tmp_path):
    body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 2}).encode()
    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def test_pipelined_requests_are_answered_in_order(text_side, tmp_path):
    def post(number: int) -> bytes:
        body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 2}).encode()
        return (
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: r%d\r\n"
            b"content-length: %d\r\n\r\n" % (number, len(body))
        ) + body

    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        writer.write(b"".join(post(number) for number in range(10)))
        text = b""
        async with asyncio.timeout(10):
            while text.count(b"x-request-id") < 10:
                text += await reader.read(65536)
        order = [text.index(b"x-request-id: r%d\r\n" % number) for number in range(10)]
        assert order == sorted(order)
        writer.close()


async def test_a_flood_of_pipelined_requests_is_cut(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        answer = await running.raw(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 5000)
        assert 1 <= answer.count(b"200 OK") <= running.built.limits.pipelined + 1
        assert answer.endswith(b'{"status":"ok"}')
        assert (await running.complete()).status_code == 200


async def test_a_bad_request_behind_a_running_one_does_not_cut_its_answer(text_side, tmp_path):
    body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 20, "stream": True}).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    async with edge(text_side, tmp_path, SlowEngine(260)) as running:
        answer = await running.raw(head + body + b"nonsense\r\n\r\n")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"data: [DONE]" in answer
        assert answer.endswith(b"0\r\n\r\n")


async def test_connections_are_bounded(text_side, tmp_path):
    limits = Limits(connections=5)
    async with edge(text_side, tmp_path, limits=limits) as running:
        held = [await running.connect() for _ in range(5)]
        await until(lambda: running.http.connections == 5)
        assert_refused(await running.raw(b""), 503)
        for _, writer in held:
            writer.close()
        await until(lambda: running.http.connections == 0)
        assert (await running.complete()).status_code == 200


async def test_a_reader_that_stalls_slows_the_engine_and_is_cut_off(text_side, tmp_path):
    """Nothing piles up for it: the engine stops soon, and after the bound the connection is gone."""
    engine = SlowEngine(260, 0)
    limits = Limits(write_stall_s=1.0, stream_buffer_bytes=16_384)
    body = json.dumps(
        {
            "model": MODEL,
            "prompt": "hello",
            "max_tokens": 4000,
            "stream": True,
            "n": 32,
            "logprobs": 0,
            "ignore_eos": True,
        }
    ).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    async with edge(text_side, tmp_path, engine, limits=limits) as running:
        import socket

        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stalled, ("127.0.0.1", running.port))
        await loop.sock_sendall(stalled, head + body)
        await until(engine.entered.is_set)
        await until(lambda: running.http.connections == 0, 30)
        assert engine.steps < 5000  # of 128 000: neither we nor the system hold megabytes for it
        (line,) = await running.logged("/v1/completions")
        assert line["disconnected"]
        stalled.close()


async def test_a_slow_reader_gets_everything(text_side, tmp_path):
    engine = SlowEngine(260, 0)
    async with edge(text_side, tmp_path, engine) as running:
        content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 2000, "stream": True})
        text = b""
        async with running.client.stream(
            "POST", "/v1/completions", content=content, headers=JSON
        ) as response:
            async for chunk in response.aiter_raw():
                text += chunk
                await asyncio.sleep(0.001)
        assert text.count(b"data: {") == 2000
        assert text.endswith(b"data: [DONE]\n\n")
