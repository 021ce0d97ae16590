"""Providers that answer with bytes that no mock of a good API would send."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onward.admission.ledger import State
from onward.wiring import config as settings
from tests.http.gateway import cost, data_of, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, message_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


def chunk(*choices: dict[str, Any], **fields: Any) -> bytes:
    return (
        b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, **one} for one in choices], **fields}).encode()
    )


def said(**delta: Any) -> bytes:
    return chunk({"delta": delta, "finish_reason": None})


FINISH = chunk({"delta": {}, "finish_reason": "stop"})


@contextlib.asynccontextmanager
async def saying(*pieces: bytes) -> AsyncIterator[settings.Provider]:
    """A provider whose every answer is these bytes, and then the end of the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        await reader.readexactly(size)
        writer.write(HEAD + b"".join(pieces))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield settings.Provider(name="odd", protocol="openai", base_url=f"http://127.0.0.1:{port}/v1")


@pytest.mark.covers("K-9", "P-12")
@pytest.mark.parametrize("path", [PATH, CHAT])
@pytest.mark.parametrize("end", [DONE, chunk(usage=USAGE) + DONE, chunk(usage=USAGE)])
async def test_a_stream_without_an_answer_costs_nothing(tmp_path, path: str, end: bytes):
    async with saying(end) as odd, gateway(tmp_path, odd, tenant=PAYS) as running:
        answer = await running.post(path, {**BODY, "stream": True})
        assert answer.status_code == 503
        entry = await running.entry()
        assert (entry.state, entry.charged) == (State.RELEASED, 0)


@pytest.mark.covers("K-9", "P-12")
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_content_in_parts_is_told_and_counted(tmp_path, path: str):
    """Nor does its stream wait for its end."""
    text = [{"type": "text", "text": "Bonjour, tout le monde"}]
    async with (
        saying(said(content=text), FINISH, DONE) as odd,
        gateway(tmp_path, odd, tenant=PAYS) as running,
    ):
        answer = await running.post(path, {**BODY, "stream": True})
        if path == PATH:
            assert message_of(answer.text)["content"] == text
        else:
            assert data_of(answer.text)[0]["choices"][0]["delta"]["content"] == text
        entry = await running.entry()
        assert entry.estimated
        assert entry.usage.completion_tokens > 2


@pytest.mark.covers("P-12")
async def test_half_a_character_is_no_fault_of_ours(tmp_path):
    pieces = said(content="a\ud83d"), said(content="\ude00b"), said(content="\ud83d")
    async with saying(*pieces, FINISH, DONE) as odd, gateway(tmp_path, odd, tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert message_of(answer.text)["content"][0]["text"] == "a\U0001f600b\ufffd"
        entry = await running.entry()
        assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens) > 0


@pytest.mark.covers("P-13")
async def test_under_prentis_a_choice_is_as_its_page_says(tmp_path):
    pieces = (
        chunk({"text": "a", "finish_reason": None, "logprobs": {"tokens": ["a"]}, "provider": "Acme"}),
        chunk({"text": "", "finish_reason": "eos_token", "native_finish_reason": "acme_stop"}),
    )
    mounts = {"prentis": "/v1"}
    async with saying(*pieces, DONE) as odd, gateway(tmp_path, odd, tenant=PAYS, mounts=mounts) as running:
        answer = await running.complete(stream=True)
        first, last, _, _ = data_of(answer.text)
        assert first["choices"] == [{"index": 0, "text": "a", "finish_reason": None, "logprobs": None}]
        assert last["choices"] == [{"index": 0, "text": "", "finish_reason": "stop"}]


@pytest.mark.covers("P-12")
@pytest.mark.parametrize("counted", [b"", chunk(usage={**USAGE, "completion_tokens": 2})])
async def test_a_length_is_not_taken_for_the_end_of_the_context(tmp_path, counted: bytes):
    """Clients shorten the conversation then; its provider may have limits of its own, or not count."""
    cut = chunk({"delta": {"content": "a"}, "finish_reason": "length"})
    async with saying(cut, counted, DONE) as odd, gateway(tmp_path, odd, tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert message_of(answer.text)["stop_reason"] == "max_tokens"
