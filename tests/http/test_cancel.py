"""Whoever goes away, runs out of time or says nothing for long."""

import asyncio
import json

import pytest

from onward.core.generate import Chunk, EngineFinish, ScoredToken
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from tests.http.harness import MODEL, SlowEngine, edge, until


def request(path: str = "/v1/completions", **body) -> bytes:
    content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 1000, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
async def test_a_disconnect_cancels(text_side, tmp_path, stream: bool, n: int):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine) as running:
        _, writer = await running.connect()
        writer.write(request(stream=stream, n=n))
        await until(lambda: engine.steps > 3)
        writer.transport.abort()
        await until(lambda: engine.cancelled == n)
        steps = engine.steps
        (line,) = await running.logged("/v1/completions")
        assert line["disconnected"]
        assert line["completion_tokens"] > 0
        assert engine.steps <= steps + n
        assert (await running.complete(max_tokens=2)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_disconnect_cancels_while_nothing_was_made(text_side, tmp_path, stream: bool):
    """Queued: the engine has not begun."""
    engine = SlowEngine(260, silent_first=1000)
    async with edge(text_side, tmp_path, engine) as running:
        _, writer = await running.connect()
        writer.write(request(stream=stream))
        await until(engine.entered.is_set)
        writer.close()
        await until(engine.left.is_set)
        assert engine.cancelled == 1
        (line,) = await running.logged("/v1/completions")
        assert line["disconnected"]


async def test_a_disconnect_with_another_request_behind(text_side, tmp_path):
    """The one that runs is cancelled, not the one that waits."""
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine) as running:
        _, writer = await running.connect()
        writer.write(request() + request())
        await until(lambda: engine.steps > 3)
        writer.transport.abort()
        await until(lambda: engine.cancelled == 1)
        assert len(engine.requests) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_the_time_of_a_request_is_bounded(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine, limits=Limits(request_s=0.3)) as running:
        response = await running.complete(max_tokens=1000, stream=stream)
        assert engine.cancelled == 1
        if stream:
            assert response.status_code == 200
            error = json.loads(response.text.rstrip().rsplit("\n", 1)[-1].removeprefix("data: "))["error"]
            assert "[DONE]" not in response.text
        else:
            assert response.status_code == 504
            error = response.json()["error"]
        assert error["code"] == "deadline_exceeded"


async def test_a_silent_stream_gets_a_comment(text_side, tmp_path):
    engine = SlowEngine(260, silent_first=0.5)
    async with edge(text_side, tmp_path, engine, limits=Limits(silence_s=0.1)) as running:
        response = await running.complete(max_tokens=2, stream=True)
        assert response.text.startswith(": keep-alive\n\n")
        assert response.text.endswith("data: [DONE]\n\n")
        assert response.text.count("data: {") == 2


async def test_what_is_ready_goes_out_in_one_write(text_side, tmp_path):
    """A burst of events is one chunk of the body, not a hundred."""

    class Bursting(ScriptedEngine):
        async def generate(self, request):
            await asyncio.sleep(0.05)
            for _ in range(99):
                yield Chunk([ScoredToken(260)])
            yield Chunk([ScoredToken(260)], EngineFinish.LENGTH)

    async with edge(text_side, tmp_path, Bursting([])) as running:
        answer = await running.raw(
            request(stream=True).replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n")
        )
        body = answer.partition(b"\r\n\r\n")[2]
        chunks = 0
        while body:
            size, _, body = body.partition(b"\r\n")
            body = body[int(size, 16) + 2 :]
            chunks += 1
        assert answer.count(b"data: {") >= 100
        assert chunks <= 3


@pytest.mark.parametrize("stream", [True, False])
async def test_draining_lets_running_requests_end(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine) as running:
        answer = asyncio.create_task(running.complete(max_tokens=30, stream=stream))
        await until(lambda: engine.steps > 2)
        draining = asyncio.create_task(running.http.drain(10))
        response = await answer
        assert response.status_code == 200
        assert (
            response.text.endswith("data: [DONE]\n\n")
            if stream
            else response.json()["usage"]["completion_tokens"] == 30
        )
        await draining
        with pytest.raises(OSError):
            await running.connect()


@pytest.mark.parametrize("stream", [True, False])
async def test_draining_ends_what_takes_too_long(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine) as running:
        answer = asyncio.create_task(running.complete(max_tokens=100_000 // 50, stream=stream))
        await until(lambda: engine.steps > 2)
        await running.http.drain(0.2)
        response = await answer
        assert engine.cancelled == 1
        if stream:
            assert json.loads(response.text.rstrip().rsplit("\n", 1)[-1].removeprefix("data: "))["error"]
        else:
            assert response.status_code == 503


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hurry_ends_what_runs_with_the_reason(text_side, tmp_path, stream: bool):
    """Long before its grace is over; nobody is merely cut off."""
    engine = SlowEngine(260)
    hurry = asyncio.Event()
    async with edge(text_side, tmp_path, engine) as running:
        answer = asyncio.create_task(running.complete(max_tokens=2000, stream=stream))
        await until(lambda: engine.steps > 2)
        draining = asyncio.create_task(running.http.drain(1000, hurry))
        steps = engine.steps
        await until(lambda: engine.steps > steps + 2)
        hurry.set()
        response = await answer
        async with asyncio.timeout(10):
            await draining
        (line,) = await running.logged("/v1/completions")
    assert (line["failure"], line.get("disconnected")) == ("engine_failed", None)
    assert "The server is shutting down" in response.text
    assert response.status_code == (200 if stream else 503)
    assert "[DONE]" not in response.text


async def test_a_body_that_still_comes_when_the_server_ends(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        reader, writer = await running.connect()
        writer.write(request()[:-5])
        await until(lambda: running.http.running)
        async with asyncio.timeout(10):
            await running.http.drain(0)
            answer = await reader.read(-1)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"The server is shutting down" in answer
