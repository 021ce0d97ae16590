"""HTTP itself: upgrades, half-closed connections, HTTP/1.0, what a header must and must not say."""

import asyncio
import json

import pytest

from onward.http.limits import Limits
from tests.http.harness import MODEL, SlowEngine, edge, until
from tests.http.test_bounds import assert_refused, parsed

TYPE = b"content-type: application/json\r\n"


def post(
    *fields: bytes, version: bytes = b"1.1", host: bytes = b"host: x\r\n", length: bool = True, **body
) -> bytes:
    content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 3, **body}).encode()
    head = b"POST /v1/completions HTTP/" + version + b"\r\n" + host + b"".join(f + b"\r\n" for f in fields)
    if length:
        head += b"content-length: %d\r\n" % len(content)
        return head + TYPE + b"\r\n" + content
    return head + TYPE + b"\r\n%x\r\n" % len(content) + content + b"\r\n0\r\n\r\n"


UPGRADE = (
    b"connection: Upgrade, HTTP2-Settings",
    b"upgrade: h2c",
    b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA",
)


@pytest.mark.parametrize("size", [1 << 20, 50, 7, 1])
@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
async def test_an_upgrade_is_ignored(text_side, tmp_path, length: bool, size: int):
    """The body is read, the answer is HTTP/1.1, and the connection goes on (RFC 9110 7.8)."""
    chunked = () if length else (b"transfer-encoding: chunked",)
    request = post(*UPGRADE, *chunked, length=length)
    get = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    sent = request + get + request + b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            answers = await reader.read(-1)
        writer.close()
        assert answers.count(b"HTTP/1.1 200 OK") == 4, answers
        assert answers.count(b'"finish_reason"') == 2
        assert b"upgrade" not in answers.lower()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_half_closed_connection_is_answered(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine) as running:
        reader, writer = await running.connect()
        writer.write(post(stream=stream, max_tokens=20))
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read(-1)
        writer.close()
        interim, _, final = answer.rpartition(b"HTTP/1.1 200 OK\r\n")
        assert interim in (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
        assert (b"data: [DONE]" if stream else b'"finish_reason":"length"') in final
        (line,) = await running.logged("/v1/completions")
        assert (line["status"], line.get("disconnected")) == (200, None)


async def test_requests_behind_each_other_on_a_half_closed_connection(text_side, tmp_path):
    async with edge(text_side, tmp_path, SlowEngine(260)) as running:
        reader, writer = await running.connect()
        writer.write(post() * 3)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read(-1)
        writer.close()
        assert answer.count(b'"finish_reason"') == 3


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("silent", [True, False], ids=["queued", "running"])
async def test_a_caller_that_closes_is_gone(text_side, tmp_path, stream: bool, version: bytes, silent: bool):
    """It looks half-closed at first, and must not keep the engine."""
    engine = SlowEngine(260, silent_first=1000 if silent else 0)
    async with edge(text_side, tmp_path, engine) as running:
        _, writer = await running.connect()
        writer.write(post(version=version, stream=stream, max_tokens=1000))
        await until(lambda: engine.entered.is_set() if silent else engine.steps > 3)
        writer.close()
        await until(engine.left.is_set)
        assert engine.cancelled == 1
        (line,) = await running.logged("/v1/completions")
        assert line["disconnected"]


async def test_half_a_request_and_an_end_is_no_request(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for piece in (b"", b"GET / HT", post()[:-5]):
            reader, writer = await running.connect()
            writer.write(piece)
            writer.write_eof()
            async with asyncio.timeout(5):
                assert await reader.read(-1) == b""
            writer.close()
        await until(lambda: running.http.connections == 0)


@pytest.mark.parametrize("host", [b"host: x\r\n", b""])
async def test_http_1_0_gets_no_chunks(text_side, tmp_path, host: bytes):
    async with edge(text_side, tmp_path) as running:
        for stream in (True, False):
            answer = await running.raw(
                post(b"connection: keep-alive", version=b"1.0", host=host, stream=stream)
            )
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"transfer-encoding" not in head
            assert b"connection: close" in head
            if stream:
                assert b"content-length" not in head
                assert body.startswith(b"data: {")
                assert body.endswith(b"data: [DONE]\n\n")
            else:
                assert json.loads(body)["choices"]
        head = await running.raw(b"HEAD /v1/models HTTP/1.0\r\n\r\n")
        assert head.endswith(b"\r\n\r\n")


GET = b"GET /v1/models HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status", "said"),
    [
        (GET + b"\r\n", 400, "Host"),
        (GET + b"host: a\r\nhost: b\r\n\r\n", 400, "Host"),
        (b"GET /v1/models HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", 400, "Host"),
        (b"GET /v1/models HTTP/2.0\r\nhost: a\r\n\r\n", 505, "HTTP/2.0"),
        (post(b"transfer-encoding: gzip, chunked", length=False), 501, "'gzip, chunked'"),
        (post(b"transfer-encoding: gzip", b"transfer-encoding: chunked", length=False), 501, "gzip"),
        (post(b"transfer-encoding: gzip", length=False), 400, "chunked"),
        (post(b"transfer-encoding: chunked", version=b"1.0", length=False), 400, "HTTP/1.0"),
        (b"FOO /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", 501, "FOO"),
        (b"get /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", 501, "get"),
        (b"CONNECT example.com:443 HTTP/1.1\r\nhost: a\r\n\r\n", 501, "CONNECT"),
    ],
)
async def test_headers_that_are_not_taken(text_side, tmp_path, request_bytes: bytes, status: int, said: str):
    async with edge(text_side, tmp_path) as running:
        answer = await running.raw(request_bytes)
        assert_refused(answer, status)
        assert said in parsed(answer)[2]["error"]["message"]


async def test_a_method_that_a_path_does_not_take(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for method in ("PATCH", "PROPFIND", "OPTIONS", "TRACE"):
            answer = await running.client.request(method, "/v1/models")
            assert answer.status_code == 405
            assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ((b"content-type: text/plain", b"content-length: 50"), 400),
        ((b"content-length: 50",), 400),
        ((TYPE.strip(), b"content-encoding: gzip", b"content-length: 50"), 400),
        ((TYPE.strip(), b"content-length: 99999999999"), 413),
    ],
)
async def test_a_body_that_will_be_refused_is_not_asked_for(text_side, tmp_path, fields, status: int):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n" + b"\r\n".join(fields)
    async with edge(text_side, tmp_path) as running:
        assert_refused(await running.raw(head + b"\r\n\r\n"), status)


async def test_encoded_bodies_are_refused(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        got, _, body = parsed(await running.raw(post(b"content-encoding: gzip", b"connection: close")))
        assert got == 400
        assert "'gzip' is not taken: send the body uncompressed" in body["error"]["message"]


async def test_a_body_has_time_by_its_size(text_side, tmp_path):
    """What comes at the least rate is read to its end; what comes slower is cut off, though never silent."""
    limits = Limits(body_s=0.3, body_bytes_per_s=100_000)
    content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 1, "pad": "x" * 100_000}).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + TYPE + b"content-length: %d\r\n\r\n" % len(content)
    )
    async with edge(text_side, tmp_path, limits=limits) as running:
        reader, writer = await running.connect()
        writer.write(head)
        for start in range(0, len(content), 10_000):
            writer.write(content[start : start + 10_000])
            await asyncio.sleep(0.06)
        async with asyncio.timeout(5):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        reader, writer = await running.connect()
        writer.write(head)
        async with asyncio.timeout(5):
            while not (reader._eof or reader._buffer):
                writer.write(b" ")
                await asyncio.sleep(0.02)
            answer = await reader.read(-1)
        writer.close()
        assert_refused(answer, 408)
        assert "100000 bytes per second" in parsed(answer)[2]["error"]["message"]


@pytest.mark.parametrize(
    ("request_bytes", "method", "path", "status", "failure"),
    [
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 50_000, "GET", "/v1/models", 431, "headers_too_large"),
        (b"GET /" + b"x" * 9000, "GET", "/" + "x" * 199, 414, "headers_too_large"),
        (b"nonsense\r\n\r\n", "-", "-", 400, "invalid_request"),
        (b"FOO /v1/models HTTP/1.1\r\n\r\n", "FOO", "/v1/models", 501, "method_not_allowed"),
        (b"POST /v1/models HTTP/1.1\r\nho", "POST", "/v1/models", 408, "request_timeout"),
        (post()[:-5], "POST", "/v1/completions", 408, "request_timeout"),
        (post(b"transfer-encoding: chunked", length=False)[:-5] + b"zz\r\n", "POST", "/v1/completions", 400, "invalid_request"),
    ],
)  # fmt: skip
async def test_refusals_are_logged_and_counted_like_answers(
    text_side, tmp_path, request_bytes: bytes, method: str, path: str, status: int, failure: str
):
    async with edge(text_side, tmp_path, limits=Limits(header_s=0.2, body_idle_s=0.2)) as running:
        got, headers, _ = parsed(await running.raw(request_bytes))
        assert got == status
        (line,) = await running.logged(path)
        assert (line["method"], line["status"], line["failure"]) == (method, status, failure)
        assert line["request_id"] == headers["x-request-id"]
        assert line["duration_ms"] >= 0
        assert "disconnected" not in line
        metrics = (await running.client.get("/metrics")).text
        assert f'status="{status}"' in metrics
        assert "onward_requests_in_flight 1.0" in metrics
