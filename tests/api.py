"""A caller of a running server for tests: plain HTTP, streamed answers joined as a client would."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

ARRAYS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class Api:
    """Sends JSON to one mount of a server."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self.client = client
        self.model = model

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """One request; a dict without a model gets the server's."""
        if isinstance(body, dict):
            body = {"model": self.model, **body}
            return await self.client.post(path, content=json.dumps(body), headers=JSON, **options)
        return await self.client.post(path, content=body, headers=JSON, **options)

    async def complete(self, **body: Any) -> dict[str, Any]:
        """An unstreamed completion that must succeed."""
        response = await self.post("completions", body)
        assert response.status_code == 200, response.text
        return response.json()

    async def chat(self, **body: Any) -> dict[str, Any]:
        """An unstreamed chat completion that must succeed."""
        response = await self.post("chat/completions", body)
        assert response.status_code == 200, response.text
        return response.json()

    async def events(self, path: str, **body: Any) -> AsyncIterator[dict[str, Any]]:
        """The events of a stream that must succeed and end with [DONE]."""
        content = json.dumps({"model": self.model, **body, "stream": True})
        async with self.client.stream("POST", path, content=content, headers=JSON) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            done = False
            async for line in response.aiter_lines():
                assert not done or not line, f"after [DONE]: {line}"
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))
                else:
                    assert not line or line.startswith(":"), line
            assert done, "the stream did not end with [DONE]"

    async def stream_complete(self, **body: Any) -> dict[str, Any]:
        """A streamed completion, joined into the shape of an unstreamed one."""
        return join_completion([event async for event in self.events("completions", **body)])

    async def stream_chat(self, **body: Any) -> dict[str, Any]:
        """A streamed chat completion, joined into the shape of an unstreamed one."""
        return join_chat([event async for event in self.events("chat/completions", **body)])

    async def tokenize(self, text: str) -> list[int]:
        response = await self.post("tokenize", {"prompt": text, "add_special_tokens": False})
        assert response.status_code == 200, response.text
        return response.json()["tokens"]

    async def alive(self) -> None:
        """The server still answers a plain request."""
        answer = await self.complete(prompt="The capital of France is", max_tokens=1, temperature=0)
        assert answer["choices"][0]["text"].strip()


JSON = {"content-type": "application/json"}


def join_completion(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Events of a completions stream as one answer; asserts the frame's rules on the way."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for event in events:
        assert event["object"] == "text_completion"
        assert (event["id"], event["created"], event["model"]) == (
            events[0]["id"],
            events[0]["created"],
            events[0]["model"],
        )
        if not event["choices"]:
            assert event is events[-1], "an event without choices that is not the last"
            usage = event["usage"]
            continue
        assert len(event["choices"]) == 1
        piece = event["choices"][0]
        choice = choices.setdefault(
            piece["index"], {"index": piece["index"], "text": "", "logprobs": None, "finish_reason": None}
        )
        assert choice["finish_reason"] is None, "a piece after the finish"
        choice["text"] += piece["text"]
        choice["finish_reason"] = piece["finish_reason"]
        if piece.get("logprobs") is not None:
            joined = choice["logprobs"] or {name: [] for name in ARRAYS}
            choice["logprobs"] = {name: joined[name] + piece["logprobs"][name] for name in ARRAYS}
        if "token_ids" in piece:
            choice["token_ids"] = choice.get("token_ids", []) + piece["token_ids"]
        if piece.get("prompt_token_ids") is not None:
            assert "prompt_token_ids" not in choice, "prompt_token_ids twice"
            choice["prompt_token_ids"] = piece["prompt_token_ids"]
    assert all(choice["finish_reason"] for choice in choices.values())
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}


def join_chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Events of a chat stream as one answer; asserts the frame's rules on the way."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for event in events:
        assert event["object"] == "chat.completion.chunk"
        if not event["choices"]:
            assert event is events[-1], "an event without choices that is not the last"
            usage = event["usage"]
            continue
        piece = event["choices"][0]
        new = piece["index"] not in choices
        choice = choices.setdefault(
            piece["index"],
            {"index": piece["index"], "message": {"content": ""}, "logprobs": None, "finish_reason": None},
        )
        assert choice["finish_reason"] is None, "a piece after the finish"
        if new:
            assert piece["delta"]["role"] == "assistant"
        choice["message"]["content"] += piece["delta"].get("content") or ""
        choice["finish_reason"] = piece["finish_reason"]
        if piece.get("logprobs") is not None:
            joined = choice["logprobs"] or {"content": []}
            choice["logprobs"] = piece["logprobs"] | {
                "content": joined["content"] + piece["logprobs"]["content"]
            }
        if "token_ids" in piece:
            choice["token_ids"] = choice.get("token_ids", []) + piece["token_ids"]
        if piece.get("prompt_token_ids") is not None:
            assert "prompt_token_ids" not in choice, "prompt_token_ids twice"
            choice["prompt_token_ids"] = piece["prompt_token_ids"]
    assert all(choice["finish_reason"] for choice in choices.values())
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}
