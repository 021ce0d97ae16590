"""The time of a request ends it under every API: before its first output and after, streamed and not."""

import asyncio
import json
import time

import pytest

from onward.admission.ledger import State
from onward.dialects import DIALECTS
from onward.http.limits import Limits
from tests.http.gateway import MODEL, gateway
from tests.http.harness import SlowEngine
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

MOUNTS = {name: f"/{name}/v1" for name in DIALECTS}
CODES = {"prentis": "REQUEST_DEADLINE_EXCEEDED"}
PASSING = [name for name in MOUNTS if DIALECTS[name].passed]
CHAT = {"messages": [{"role": "user", "content": "two words"}]}
BODIES = {
    "/completions": {"prompt": "two words", "max_tokens": 500},
    "/chat/completions": {**CHAT, "max_tokens": 500},
    "/messages": {**CHAT, "max_tokens": 500},
}
streamed = pytest.mark.parametrize("stream", [False, True])
surfaces = pytest.mark.parametrize(
    ("dialect", "path"),
    [
        (name, one.path)
        for name in MOUNTS
        for one in DIALECTS[name].surfaces.values()
        if one.path in BODIES and one.method == "POST"
    ],
)


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


def over(answer, dialect: str, path: str, *, in_stream: bool) -> None:
    """The answer ended because its time was over, and says so as its API does."""
    said = (
        json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))
        if in_stream
        else answer.json()
    )
    assert answer.status_code == (200 if in_stream else 504), answer.text
    if path == "/messages":
        assert said["error"]["type"] == "timeout_error"
    elif in_stream and dialect == "tinker":  # whose events of errors have no code (TH-12)
        assert said["error"]["type"] == "server_error"
    else:
        assert said["error"]["code"] == CODES.get(dialect, "deadline_exceeded")
    assert "was not complete after" in said["error"]["message"]


@streamed
@surfaces
async def test_of_a_served_model(tmp_path, text_side, dialect: str, path: str, stream: bool):
    """Streamed it comes after output, else before any was given; what was made is charged either way."""
    engine = SlowEngine(260)
    async with gateway(
        tmp_path,
        engine,
        text_side=text_side,
        limits=Limits(request_s=0.25),
        mounts=MOUNTS,
        tenant={"balance": "1"},
    ) as running:
        began = time.monotonic()
        answer = await running.post(MOUNTS[dialect] + path, {**BODIES[path], "stream": stream})
        assert time.monotonic() - began < 1.5
        over(answer, dialect, path, in_stream=stream)
        async with asyncio.timeout(5):
            await engine.left.wait()
        entry = await running.entry()
        assert (entry.state, entry.outcome) == (State.SETTLED, "deadline_exceeded")
        assert entry.usage.completion_tokens > 0


@pytest.mark.parametrize("after", [False, True])
@streamed
@pytest.mark.parametrize("dialect", PASSING)
async def test_of_a_provider(tmp_path, mock, dialect: str, stream: bool, after: bool):
    mock.say(Behaviour(stall=2) if after else Behaviour(never=True))
    async with gateway(
        tmp_path, mock, limits=Limits(request_s=0.25), mounts=MOUNTS, tenant={"balance": "1"}
    ) as running:
        answer = await running.complete(path=f"{MOUNTS[dialect]}/completions", stream=stream)
        over(answer, dialect, "/completions", in_stream=stream and after)
        await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert entry.outcome == "deadline_exceeded"
        assert entry.usage.completion_tokens == (2 if stream and after else 0)


async def test_the_time_to_send_a_body_counts(tmp_path, mock):
    mock.say(Behaviour(never=True))
    async with gateway(tmp_path, mock, limits=Limits(request_s=0.6), tenant={"balance": "1"}) as running:
        content = json.dumps({"model": MODEL, "prompt": "two words", "max_tokens": 5}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        began = time.monotonic()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer on-a-key-of-these-tests\r\ncontent-length: %d\r\n\r\n" % len(content)
        )
        await asyncio.sleep(0.4)
        writer.write(content)
        async with asyncio.timeout(5):
            assert b" 504 " in await reader.readline()
        assert time.monotonic() - began < 0.9
        writer.close()
        await writer.wait_closed()
