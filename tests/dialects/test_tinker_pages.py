"""The example requests of the API's own pages, as they stand there but for the model's name.

The OpenAI SDK sends them to a server with the real model; `httpx` sends the one that it cannot.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.dialects.conftest import REPO as MODEL


class Seeded(httpx.HTTPTransport):
    """Adds a seed, and a limit to chats without one: the model says the same in every run, and ends."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            body = {"seed": 1, **json.loads(request.read())}
            if "messages" in body:
                body.setdefault("max_tokens", 150)
            headers = {name: value for name, value in request.headers.items() if name != "content-length"}
            request = httpx.Request(
                request.method,
                request.url,
                headers=headers,
                content=json.dumps(body),
                extensions=request.extensions,
            )
        return super().handle_request(request)


@pytest.fixture(scope="module")
def client(tinker_url: str) -> Iterator[OpenAI]:
    http_client = httpx.Client(transport=Seeded(), timeout=120)
    with OpenAI(base_url=tinker_url, api_key="none", max_retries=0, http_client=http_client) as client:
        yield client


@pytest.mark.covers("TC-11")
def test_completions(client):
    response = client.completions.create(
        model=MODEL,
        prompt="The capital of France is",
        max_tokens=50,
    )
    assert response.choices[0].text
    assert response.choices[0].finish_reason in ("stop", "length")
    assert response.usage.completion_tokens <= 50


@pytest.mark.covers("TC-8")
def test_completions_token_ids_in_and_out(client, tokenizer):
    tokens = tokenizer.encode_prompt("The capital of France is")
    response = client.completions.create(
        model=MODEL,
        prompt=tokens,  # token IDs from your own renderer or the model's tokenizer
        max_tokens=50,
        extra_body={"return_token_ids": True},
    )
    choice = response.choices[0]
    assert choice.prompt_token_ids == tokens
    assert len(choice.token_ids) == response.usage.completion_tokens


def png() -> bytes:
    """A picture of one red pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_completions_images(tinker_url):
    """Our model takes no images, so the page's request is a 400 that says so."""
    before_image, after_image = [5, 6], [7]
    body = {
        "model": f"{MODEL}:peft:262144",
        "prompt_chunks": [
            {"type": "tokens", "tokens": before_image},
            {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png()).decode()}"},
            },
            {"type": "tokens", "tokens": after_image},
        ],
        "max_tokens": 100,
    }
    response = httpx.post(
        f"{tinker_url}/completions",
        headers={"Authorization": "Bearer none"},
        json=body,
        timeout=60,
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt_chunks[1]"
    body["prompt_chunks"].pop(1)
    response = httpx.post(f"{tinker_url}/completions", json=body, timeout=60)
    assert isinstance(response.json()["choices"][0]["text"], str)


@pytest.mark.covers("TH-2", "TH-15")
def test_chat_completions(client):
    response = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is 17 * 23?"}],
    )
    assert response.choices[0].message.content


@pytest.mark.covers("TH-15")
def test_chat_completions_reference(client):
    response = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is 17 * 23?"}],
        max_completion_tokens=256,
        temperature=0.7,
    )
    assert response.choices[0].message.reasoning_content is None
    assert response.choices[0].message.content


def test_chat_completions_reasoning_effort(client):
    """A model without efforts refuses it, as the page says."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "What is 17 * 23?"}],
            reasoning_effort="high",
        )
    assert refused.value.param == "reasoning_effort"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "What is 17 * 23?"}],
            extra_body={"reasoning_effort": 0.8},
        )


@pytest.mark.covers("TH-4")
def test_chat_completions_streaming(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is 17 * 23?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    shown: list[str] = []
    totals: list[int] = []

    part = None
    for chunk in stream:
        if chunk.choices:
            delta = chunk.choices[0].delta
            parts = {"Reasoning": delta.reasoning_content, "Answer": delta.content}
            for name, text in parts.items():
                if text:
                    if name != part:
                        shown.append(f"[{name}]")
                        part = name
                    shown.append(text)
        if chunk.usage:
            totals.append(chunk.usage.total_tokens)

    assert shown[0] == "[Answer]"
    assert len(shown) > 2
    assert len(totals) == 1


TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def weather(client: OpenAI, model: str) -> tuple[Any, Any]:
    """The page's program around a tool: the first reply, and the one after the tool's results."""
    tools = TOOLS
    messages: list[Any] = [{"role": "user", "content": "What's the weather in Paris?"}]
    reply = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
    if reply.tool_calls:  # None when the model answers with text only
        messages.append(
            {
                "role": "assistant",
                "content": reply.content,
                "reasoning_content": reply.reasoning_content,
                "tool_calls": [call.model_dump() for call in reply.tool_calls],
            }
        )
        for call in reply.tool_calls:  # the model can call more than one function
            args = json.loads(call.function.arguments)  # {"city": "Paris"}
            result = {"city": args["city"], "temp_c": 18}  # run your own function here
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        response = client.chat.completions.create(model=model, messages=messages, tools=tools)
        return reply, response
    return reply, None


def test_chat_completions_tool_calls(client):
    """The real model answers with text; `test_tinker_replies.py` plays a reply with calls."""
    reply, _ = weather(client, MODEL)
    assert reply.content or reply.tool_calls


def test_chat_completions_multi_turn(client):
    messages: list[Any] = [{"role": "user", "content": "What is 17 * 23?"}]
    reply = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
    messages += [
        {
            "role": "assistant",
            "content": reply.content,
            "reasoning_content": reply.reasoning_content,
        },
        {"role": "user", "content": "Now add 9 to that."},
    ]
    response = client.chat.completions.create(model=MODEL, messages=messages)
    assert response.choices[0].message.content is not None
