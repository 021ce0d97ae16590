"""Streams completions over HTTP from several clients at once, with as little work as possible."""

import asyncio
import json
import re
import time
from dataclasses import dataclass

_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')


@dataclass
class Answer:
    """One streamed completion. Times are in seconds from the sending of the request."""

    first: float
    last: float
    tokens: int


@dataclass
class Result:
    """What a number of requests at once gave."""

    answers: list[Answer]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(answer.tokens for answer in self.answers)

    @property
    def first(self) -> float:
        """Mean time to the first token, in seconds."""
        return sum(answer.first for answer in self.answers) / len(self.answers)


async def stream(port: int, prompt: list[int], max_tokens: int) -> Answer:
    """One greedy completion of exactly `max_tokens` tokens."""
    body = json.dumps(
        {
            "model": "smollm2-135m-instruct",
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    writer.write(head + body)
    first = last = 0.0
    text = b""
    while data := await reader.read(65536):
        if b"data: {" in data:
            last = time.perf_counter() - started
            first = first or last
        text += data
    writer.close()
    if b"data: [DONE]" not in text:
        raise RuntimeError(f"no end of the stream: {text[-500:]!r}")
    return Answer(first, last, int(_TOKENS.findall(text)[-1]))


async def at_once(port: int, prompts: list[list[int]], max_tokens: int) -> Result:
    """All prompts, started together."""
    started = time.perf_counter()
    answers = await asyncio.gather(*(stream(port, prompt, max_tokens) for prompt in prompts))
    return Result(answers, time.perf_counter() - started)
