"""The `messages` surface over replies that a model must be made to give: reasoning, calls, failures.

A scripted engine says them in the format of Qwen3; the Anthropic Python SDK, unmodified, reads them.
"""

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import AsyncAnthropic

from onward.core.failure import Failure, FailureKind
from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.routing.catalog import Model
from tests.dialects.test_tinker_replies import CALL, END, OTHER, THOUGHT, Said, official
from tests.http.harness import Edge, edge

pytestmark = pytest.mark.covers("P-12", "O-4")
MODEL = "Qwen/Qwen3-8B"
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 500,
    "messages": [{"role": "user", "content": "What's the weather in Paris?"}],
}
TOOLS: list[Any] = [
    {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}},
    {"name": "now", "input_schema": {"type": "object"}},
]
REASONED = {"type": "thinking", "thinking": "I look it up.", "signature": ""}


class Talk:
    """A model that says what a test wants, and its caller."""

    def __init__(self, running: Edge, said: Said, client: AsyncAnthropic) -> None:
        self.edge, self.said, self.client = running, said, client

    def prompt(self) -> str:
        """What the engine was asked last."""
        return self.said.tokenizer.decode(self.edge.engine.requests[-1].prompt)

    async def whole(self, text: str, **body: Any) -> dict[str, Any]:
        self.said.text = text
        return (await self.client.messages.create(**{**ASK, **body})).to_dict()

    async def streamed(self, text: str, **body: Any) -> dict[str, Any]:
        """What the SDK makes of a stream."""
        self.said.text = text
        async with self.client.messages.stream(**{**ASK, **body}) as stream:
            return (await stream.get_final_message()).to_dict()

    async def events(self, text: str, **body: Any) -> list[tuple[str, dict[str, Any]]]:
        """The events of a stream as they were sent."""
        self.said.text = text
        answer = await self.edge.client.post("/v1/messages", json={**ASK, "stream": True, **body})
        assert answer.status_code == 200, answer.text
        return events_of(answer)


def events_of(answer: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    for block in answer.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(name == data["type"] for name, data in events)
    return events


def bare(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs from one answer to the next."""
    content = [
        {key: value for key, value in block.items() if key not in ("id", "parsed_output")}
        for block in message["content"]
    ]
    return {**message, "id": "", "content": content}


@pytest.fixture(params=["control tokens", "text"])
async def talk(request: Any, tokenizer: Any, tmp_path: Any) -> AsyncIterator[Talk]:
    """With marks of the format as control tokens, under `openai`; as text, under `prentis`."""
    own = request.param == "control tokens"
    said = Said(official() if own else tokenizer)
    dialects = {"openai" if own else "prentis": "/v1"}
    renderer = NativeRenderer(registry.BY_NAME["qwen3"], said.tokenizer)
    side = SimpleNamespace(tokenizer=said.tokenizer, renderer=renderer)
    entry = Model(id=MODEL, context_length=4096, kind="hybrid")
    async with (
        edge(side, tmp_path, ScriptedEngine(said), model=entry, dialects=dialects) as running,
        AsyncAnthropic(base_url=f"http://127.0.0.1:{running.port}", api_key="none", max_retries=0) as client,
    ):
        yield Talk(running, said, client)


@pytest.mark.parametrize("at_once", [1, 3, 1000])
async def test_reasoning_text_and_calls_are_blocks(talk: Talk, at_once: int):
    talk.said.at_once = at_once
    reply = f"{THOUGHT}One moment.\n{CALL}\n{OTHER}{END}"
    whole = await talk.whole(reply, tools=TOOLS)
    assert bare(whole)["content"] == [
        REASONED,
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "name": "now", "input": {}},
    ]
    assert whole["stop_reason"] == "tool_use"
    streamed = await talk.streamed(reply, tools=TOOLS)
    assert bare(streamed) == bare(whole)
    assert len({block["id"] for block in streamed["content"][2:]}) == 2


async def test_events_come_one_block_at_a_time(talk: Talk):
    events = await talk.events(f"{THOUGHT}Fine.\n{CALL}{END}", tools=TOOLS)
    short: list[str] = []
    for name, data in events:
        kind = data.get("delta", {}).get("type") or data.get("content_block", {}).get("type") or ""
        step = f"{data.get('index', '')} {name.removeprefix('content_block_')} {kind}".strip()
        if not short or short[-1] != step:
            short.append(step)
    assert short == [
        "message_start",
        "ping",
        "0 start thinking",
        "0 delta thinking_delta",
        "0 delta signature_delta",
        "0 stop",
        "1 start text",
        "1 delta text_delta",
        "1 stop",
        "2 start tool_use",
        "2 delta input_json_delta",
        "2 stop",
        "message_delta",
        "message_stop",
    ]


async def test_a_round_of_tools(talk: Talk):
    """The answer goes back as it came, with the results."""
    first = await talk.whole(f"{THOUGHT}One moment.\n{CALL}{END}", tools=TOOLS)
    result = {"type": "tool_result", "tool_use_id": first["content"][2]["id"], "content": "18 degrees"}
    history = [
        *ASK["messages"],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result]},
    ]
    last = await talk.whole(f"It is 18 degrees.{END}", messages=history, tools=TOOLS)
    assert last["content"] == [{"type": "text", "text": "It is 18 degrees."}]
    assert last["stop_reason"] == "end_turn"
    prompt = talk.prompt()
    assert "<tool_response>\n18 degrees\n</tool_response>" in prompt
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>' in prompt


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"output_config": {"effort": "max"}}, True),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, False),
    ],
    ids=str,
)
async def test_reasoning_is_switched_as_far_as_the_model_can(talk: Talk, fields: Any, thinks: bool):
    await talk.whole(f"Fine.{END}", **fields)
    assert talk.prompt().endswith("<think>\n\n</think>\n\n") == (not thinks)


async def test_reasoning_may_be_left_out_of_the_answer(talk: Talk):
    wish = {"type": "adaptive", "display": "omitted"}
    whole = await talk.whole(f"{THOUGHT}Fine.{END}", thinking=wish)
    assert whole["content"] == [{**REASONED, "thinking": ""}, {"type": "text", "text": "Fine."}]
    assert bare(await talk.streamed(f"{THOUGHT}Fine.{END}", thinking=wish)) == bare(whole)


@pytest.mark.parametrize(
    ("choice", "reply", "holds"),
    [
        ({"type": "any"}, f"No.{END}", False),
        ({"type": "any"}, f"{CALL}{END}", True),
        ({"type": "tool", "name": "now"}, f"{CALL}{END}", False),
        ({"type": "tool", "name": "now"}, f"{OTHER}{END}", True),
        ({"type": "none"}, f"{CALL}{END}", False),
        ({"type": "auto", "disable_parallel_tool_use": True}, f"{CALL}\n{OTHER}{END}", False),
        ({"type": "auto", "disable_parallel_tool_use": True}, f"{CALL}{END}", True),
    ],
    ids=str,
)
async def test_a_reply_is_held_against_the_choice_among_tools(
    talk: Talk, choice: Any, reply: str, holds: bool
):
    if holds:
        assert (await talk.whole(reply, tools=TOOLS, tool_choice=choice))["stop_reason"] == "tool_use"
        return
    with pytest.raises(anthropic.UnprocessableEntityError) as broken:
        await talk.whole(reply, tools=TOOLS, tool_choice=choice)
    assert broken.value.body["error"]["type"] == "invalid_request_error"


async def test_a_broken_reply_is_text(talk: Talk):
    reply = f'{THOUGHT}<tool_call>\n{{"name": "get_weather", "arg{END}'
    whole = await talk.whole(reply, tools=TOOLS)
    assert [block["type"] for block in whole["content"]] == ["text"]
    assert whole["content"][0]["text"] == reply.removesuffix(END)
    assert whole["stop_reason"] == "end_turn"


@pytest.mark.parametrize("after", [0, 12])
async def test_a_failure_has_the_shape_of_the_api(talk: Talk, after: int):
    talk.said.failure = Failure(FailureKind.ENGINE_FAILED, "The engine died. Try again.")
    with pytest.raises(anthropic.InternalServerError) as whole:
        await talk.whole("One two three four five six"[:after])
    assert (whole.value.status_code, whole.value.body["error"]["type"]) == (503, "overloaded_error")
    assert whole.value.response.headers["retry-after"] == "1"
    assert whole.value.body["request_id"] == whole.value.request_id
    with pytest.raises(anthropic.APIStatusError) as streamed:
        await talk.streamed("One two three four five six"[:after])
    assert streamed.value.status_code == (200 if after else 503)
    assert streamed.value.body["error"] == whole.value.body["error"]
    if after:
        name, data = (await talk.events("One two three four five six"[:after]))[-1]
        assert (name, data["error"]["type"]) == ("error", "overloaded_error")


async def test_the_engines_stop_is_told(talk: Talk):
    whole = await talk.whole(f"One two END three{END}", stop_sequences=["END", "five"])
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "END")
    assert whole["content"] == [{"type": "text", "text": "One two "}]
    assert bare(await talk.streamed(f"One two END three{END}", stop_sequences=["END"])) == bare(whole)


async def test_the_end_of_the_context_is_told(talk: Talk):
    whole = await talk.whole("word " * 5000, max_tokens=20_000)
    assert whole["stop_reason"] == "model_context_window_exceeded"
    assert whole["usage"]["input_tokens"] + whole["usage"]["output_tokens"] == 4096
    cut = await talk.whole("word " * 50, max_tokens=3)
    assert (cut["stop_reason"], cut["usage"]["output_tokens"]) == ("max_tokens", 3)
