"""Replies of the `tinker` dialect that a model must be made to give: reasoning, calls, broken ones.

A scripted engine says them, in the format of Qwen3: with Qwen3's own tokenizer where it is at
hand, where marks such as ``<tool_call>`` are control tokens, and with SmolLM2's, where they are text.
"""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from onward.core.failure import Failure, FailureKind
from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.routing.catalog import Model
from tests.api import Api
from tests.conftest import missing
from tests.dialects.test_tinker_pages import TOOLS
from tests.http.harness import Edge, edge
from tests.unit.rendering.families.oracle import tokenizer_of

MODEL = "Qwen/Qwen3-8B"
END = "<|im_end|>"
ASK = [{"role": "user", "content": "What's the weather in Paris?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nI look it up.\n</think>\n\n"
NOW: dict[str, Any] = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


class Said:
    """What the engine says next, and how many of its tokens come at once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.text = ""
        self.at_once = 1
        self.failure: Exception | None = None

    def __call__(self, request: Any) -> list[Any]:
        ids = self.tokenizer.encode(self.text, control=True)
        steps: list[Any] = [ids[at : at + self.at_once] for at in range(0, len(ids), self.at_once)]
        return [*steps, self.failure] if self.failure else steps


class Played:
    """A server whose model says what a test wants."""

    def __init__(self, running: Edge, said: Said) -> None:
        self.edge = running
        self.said = said
        running.client.base_url = f"http://127.0.0.1:{running.port}/tinker/api/v1/"
        self.api = Api(running.client, MODEL)

    async def whole(self, text: str, **body: Any) -> dict[str, Any]:
        """The choice of an unstreamed reply."""
        self.said.text = text
        return (await self.api.chat(**{"messages": ASK, **body}))["choices"][0]

    async def pieces(self, text: str, **body: Any) -> list[dict[str, Any]]:
        """The choices of a stream."""
        self.said.text = text
        events = self.api.events("chat/completions", **{"messages": ASK, **body})
        return [event["choices"][0] async for event in events]

    async def error(self, text: str, **body: Any) -> tuple[int, dict[str, Any]]:
        self.said.text = text
        response = await self.api.post("chat/completions", {"messages": ASK, **body})
        return response.status_code, response.json()["error"]

    async def broken_stream(self, text: str, **body: Any) -> list[str]:
        """The lines of data of a stream that does not end well."""
        self.said.text = text
        content = json.dumps({"model": MODEL, "messages": ASK, "stream": True, **body})
        headers = {"content-type": "application/json"}
        response = await self.edge.client.post("chat/completions", content=content, headers=headers)
        assert response.status_code == 200
        return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def joined(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream as the message it makes."""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        for call in piece["delta"].get("tool_calls") or []:
            if call["index"] == len(calls):
                calls.append({"id": call["id"], "type": call["type"], "function": {**call["function"]}})
            else:
                assert set(call) == {"index", "function"}
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    message: dict[str, Any] = {"tool_calls": calls or None}
    for key in ("content", "reasoning_content"):
        message[key] = "".join(piece["delta"][key] or "" for piece in pieces) or None
    return message


def shown(message: dict[str, Any]) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    """Content, reasoning, and the calls without their IDs."""
    calls = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"] or []
    ]
    return message["content"] or None, message["reasoning_content"], calls


def official() -> Any:
    folder = os.environ.get("ONWARD_TOKENIZERS")
    if not folder:
        missing("a folder of official tokenizers (the environment variable ONWARD_TOKENIZERS)")
    return tokenizer_of(Path(folder) / "qwen3", ("eos_token", END))[0]


async def played(tokenizer: Any, folder: Path, family: str, **model: Any) -> AsyncIterator[Played]:
    said = Said(tokenizer)
    side = SimpleNamespace(tokenizer=tokenizer, renderer=NativeRenderer(registry.BY_NAME[family], tokenizer))
    entry = Model(id=MODEL, context_length=4096, **{"kind": "hybrid", **model})
    mounts = {"tinker": "/tinker/api/v1"}
    async with edge(side, folder, ScriptedEngine(said), dialects=mounts, model=entry) as running:
        yield Played(running, said)


@pytest.fixture(params=["control tokens", "text"])
async def model(request, tokenizer, tmp_path):
    own = official() if request.param == "control tokens" else tokenizer
    async for running in played(own, tmp_path, "qwen3"):
        yield running


@pytest.fixture
async def talker(tokenizer, tmp_path):
    """A model without tool calls."""
    async for running in played(tokenizer, tmp_path, "smollm2", kind="instruct"):
        yield running


@pytest.fixture
async def base(tokenizer, tmp_path):
    async for running in played(tokenizer, tmp_path, "smollm2", kind="base"):
        yield running


@pytest.mark.covers("TH-4")
@pytest.mark.parametrize("at_once", [1, 3, 1000])
async def test_reasoning_and_content_come_in_the_order_of_the_reply(model, at_once):
    model.said.at_once = at_once
    whole = await model.whole(f"{THOUGHT}It is 18 °C.{END}")
    assert shown(whole["message"]) == ("It is 18 °C.", "I look it up.", [])
    assert whole["finish_reason"] == "stop"
    pieces = await model.pieces(f"{THOUGHT}It is 18 °C.{END}")
    assert shown(joined(pieces)) == shown(whole["message"])
    assert all({"content", "reasoning_content"} <= set(piece["delta"]) for piece in pieces)
    said = [
        "r" * bool(piece["delta"]["reasoning_content"]) + "c" * bool(piece["delta"]["content"])
        for piece in pieces
    ]
    assert "".join(said).strip("r").strip("c") == ""
    assert [piece["finish_reason"] for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1]["finish_reason"] == "stop"


@pytest.mark.covers("TH-3")
@pytest.mark.parametrize(
    ("effort", "thinks"), [(None, True), ("high", True), (True, True), (False, False), ("none", False)]
)
async def test_a_hybrid_model_can_turn_reasoning_off(model, effort, thinks):
    body = {} if effort is None else {"reasoning_effort": effort}
    await model.whole(f"Fine.{END}", **body)
    prompt = model.said.tokenizer.decode(model.edge.engine.requests[-1].prompt)
    assert prompt.endswith("<think>\n\n</think>\n\n") == (not thinks)


@pytest.mark.covers("TH-3")
@pytest.mark.parametrize("effort", ["max", "", 0.5, 1, -3, 1e300])
async def test_an_effort_that_is_not_taken_is_refused_with_the_list(model, effort):
    for stream in (False, True):
        status, error = await model.error("", reasoning_effort=effort, stream=stream)
        assert (status, error["param"]) == (400, "reasoning_effort")
        assert "true, false, 'none', 'high'" in error["message"]


@pytest.mark.covers("TH-5")
@pytest.mark.fault("D16", "D17")
@pytest.mark.parametrize("at_once", [1, 4, 1000])
async def test_calls_come_back_as_calls(model, at_once):
    model.said.at_once = at_once
    text = f"{THOUGHT}One moment.\n{CALL}\n{OTHER}{END}"
    tools = [*TOOLS, NOW]
    whole = await model.whole(text, tools=tools)
    assert whole["finish_reason"] == "tool_calls"
    calls = [("get_weather", '{"city": "Paris"}'), ("now", "{}")]
    assert shown(whole["message"]) == ("One moment.", "I look it up.", calls)
    for call in whole["message"]["tool_calls"]:
        assert set(call) == {"id", "type", "function"}
        assert call["type"] == "function"
        json.loads(call["function"]["arguments"])
    assert len({call["id"] for call in whole["message"]["tool_calls"]}) == 2
    pieces = await model.pieces(text, tools=tools)
    assert shown(joined(pieces)) == shown(whole["message"])
    assert pieces[-1]["finish_reason"] == "tool_calls"


@pytest.mark.covers("TH-5")
async def test_a_cut_reply_that_holds_a_whole_call_is_one(model):
    tokens = len(model.said.tokenizer.encode(CALL + " The", control=True))
    whole = await model.whole(f"{CALL} The end{END}", tools=TOOLS, max_tokens=tokens)
    assert whole["finish_reason"] == "tool_calls"
    assert shown(whole["message"])[2] == [("get_weather", '{"city": "Paris"}')]
    cut = await model.whole(f"{CALL}{END}", tools=TOOLS, max_tokens=tokens - 6)
    assert cut["finish_reason"] == "length"
    assert cut["message"]["tool_calls"] is None
    assert cut["message"]["content"]
    assert CALL.startswith(cut["message"]["content"])


@pytest.mark.covers("TH-5")
async def test_calls_of_a_model_without_them_are_text(talker):
    whole = await talker.whole(f"{CALL}{END}", tools=TOOLS)
    assert (whole["finish_reason"], shown(whole["message"])) == ("stop", (CALL, None, []))


@pytest.mark.covers("TH-5")
async def test_a_base_model_takes_no_tools(base):
    status, error = await base.error("", tools=TOOLS)
    assert (status, error["param"]) == (400, "tools")
    assert "base model" in error["message"]
    assert (await base.whole(f"fine{END}", tools=[]))["message"]["content"] == "fine"


NAMED = {"type": "function", "function": {"name": "now"}}
BROKEN = [
    ({"tool_choice": "required"}, f"Nothing.{END}", "tool_choice"),
    ({"tool_choice": "required"}, f"<tool_call>no JSON</tool_call>{END}", "tool_choice"),
    ({"tool_choice": "none"}, f"{CALL}{END}", "tool_choice"),
    ({"tool_choice": NAMED}, f"{CALL}{END}", "tool_choice"),
    ({"tool_choice": NAMED}, f"Nothing.{END}", "tool_choice"),
    ({"parallel_tool_calls": False}, f"{CALL}\n{OTHER}{END}", "parallel_tool_calls"),
]


@pytest.mark.covers("TH-6", "TH-11", "TH-12")
@pytest.mark.parametrize(("options", "text", "param"), BROKEN, ids=lambda value: str(value)[:40])
async def test_a_reply_that_breaks_the_choice_fails(model, options, text, param):
    status, error = await model.error(text, tools=[*TOOLS, NOW], **options)
    assert (status, error["param"], error["code"]) == (422, param, "tool_choice_broken")
    events = await model.broken_stream(text, tools=[*TOOLS, NOW], **options)
    assert "[DONE]" not in events
    last = json.loads(events[-1])
    assert set(last) == {"error"}
    assert set(last["error"]) == {"message", "type"}
    assert all(json.loads(event)["choices"][0]["finish_reason"] is None for event in events[:-1])


@pytest.mark.covers("TH-6")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tool_choice": "required"}, f"{CALL}{END}"),
        ({"tool_choice": "auto"}, f"{CALL}{END}"),
        ({"tool_choice": "none"}, f"Nothing.{END}"),
        ({"tool_choice": NAMED}, f"{OTHER}{END}"),
        ({"parallel_tool_calls": False}, f"{CALL}{END}"),
        ({"parallel_tool_calls": True}, f"{CALL}\n{OTHER}{END}"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_reply_that_keeps_the_choice_is_answered(model, options, text):
    whole = await model.whole(text, tools=[*TOOLS, NOW], **options)
    assert bool(whole["message"]["tool_calls"]) == text.startswith("<tool_call>")
    assert shown(joined(await model.pieces(text, tools=[*TOOLS, NOW], **options))) == shown(whole["message"])


@pytest.mark.covers("TH-6")
async def test_a_call_cannot_be_required_of_a_model_without_them(talker):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        status, error = await talker.error("", tools=TOOLS, tool_choice=choice)
        assert (status, error["param"]) == (400, "tool_choice")
        assert "no tool-call support" in error["message"]
    assert not talker.edge.engine.requests


@pytest.mark.covers("TH-7", "TH-10")
async def test_text_around_a_call_is_joined(model):
    text = f"Before.\n{CALL}\nAfter.{END}"
    whole = await model.whole(text, tools=TOOLS)
    content, _, calls = shown(whole["message"])
    assert (content, len(calls)) == ("Before.\nAfter.", 1)
    assert shown(joined(await model.pieces(text, tools=TOOLS))) == shown(whole["message"])


@pytest.mark.covers("TH-8")
async def test_reasoning_of_earlier_turns_reaches_the_prompt(model):
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    history = [
        *ASK,
        {"role": "assistant", "content": None, "reasoning_content": "Time first.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
    ]
    await model.whole(f"Noon.{END}", messages=history, tools=[NOW])
    prompt = model.said.tokenizer.decode(model.edge.engine.requests[-1].prompt)
    assert "<think>\nTime first.\n</think>" in prompt
    assert "12:00" in prompt


MALFORMED = [
    "abc</think>def",
    "<think>\nabc\n</think>\n\nx<tool_call>no JSON</tool_call>y",
    'a <tool_call>\n{"name": "now", "arguments": {}}',
]


@pytest.mark.covers("TH-11")
@pytest.mark.parametrize("text", MALFORMED)
@pytest.mark.parametrize("at_once", [1, 1000])
async def test_a_malformed_reply_is_one_text(model, text, at_once):
    model.said.at_once = at_once
    whole = await model.whole(f"{text}{END}", tools=[NOW])
    assert (whole["finish_reason"], shown(whole["message"])) == ("stop", (text, None, []))
    pieces = await model.pieces(f"{text}{END}", tools=[NOW])
    content, reasoning, calls = shown(joined(pieces))
    assert not calls
    if reasoning is None:
        assert content == text
    else:  # what was given before the error stays what it was
        assert (reasoning, content) == ("abc", "x<tool_call>no JSON</tool_call>y")


@pytest.mark.covers("TH-12")
async def test_an_error_in_mid_stream_is_an_event(model):
    model.said.failure = Failure(FailureKind.ENGINE_FAILED, "The engine stopped. Send the request again.")
    events = await model.broken_stream("Fine so far")
    assert json.loads(events[0])["choices"]
    assert json.loads(events[-1]) == {
        "error": {"message": "The engine stopped. Send the request again.", "type": "service_unavailable"}
    }
    assert "[DONE]" not in events
    base_url = str(model.edge.client.base_url)
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        with pytest.raises(openai.APIError, match="The engine stopped"):
            _ = [chunk async for chunk in stream]


@pytest.mark.covers("TH-14")
async def test_reasoning_can_be_left_in_the_content(model):
    text = f"{THOUGHT}It is 18 °C.{END}"
    whole = await model.whole(text, separate_reasoning=False)
    assert whole["message"]["reasoning_content"] is None
    content = whole["message"]["content"]
    assert "I look it up." in content
    assert content.endswith("It is 18 °C.")
    pieces = await model.pieces(text, separate_reasoning=False)
    assert shown(joined(pieces)) == (content, None, [])


@pytest.mark.covers("TH-5", "TH-15")
async def test_the_pages_program_around_a_tool_runs(model):
    """With the OpenAI SDK: a call, its result sent back, an answer."""
    base_url = str(model.edge.client.base_url)
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        messages: list[Any] = list(ASK)
        model.said.text = f"{THOUGHT}{CALL}{END}"
        first = (await client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)).choices[0]
        reply = first.message
        assert (first.finish_reason, reply.content, reply.reasoning_content) == (
            "tool_calls",
            None,
            "I look it up.",
        )
        messages.append(
            {
                "role": "assistant",
                "content": reply.content,
                "reasoning_content": reply.reasoning_content,
                "tool_calls": [call.model_dump() for call in reply.tool_calls],
            }
        )
        for call in reply.tool_calls:
            args = json.loads(call.function.arguments)
            result = {"city": args["city"], "temp_c": 18}
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        model.said.text = f"It is 18 °C.{END}"
        response = await client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    assert response.choices[0].message.content == "It is 18 °C."
    prompt = model.said.tokenizer.decode(model.edge.engine.requests[-1].prompt)
    assert '{"city": "Paris", "temp_c": 18}' in prompt
    assert "I look it up." in prompt
