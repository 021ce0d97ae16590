"""Streamed = unstreamed for messages: the blocks that events make are those of the whole answer.

Whatever order a provider mixes its pieces in, one block is open at a time, and nothing is lost.
"""

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta
from onward.core.generate import Sampling
from onward.core.request import ChatRequest, Message, Thinking, Thought
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.routing.catalog import Model
from onward.serve.model import ServedModel
from onward.serve.pipeline import prepare_chat, run
from onward.wire.messages import MessagesEncoder

pytestmark = pytest.mark.covers("P-12", "O-4")
OPENAI = DIALECTS["openai"]
USAGE = Usage(prompt_tokens=9, completion_tokens=7, cached_tokens=2)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
MARKS = [
    "<think>\n",
    "\n</think>\n\n",
    '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>',
    '<tool_call>\n{"name": "f", "argum',
    "\n",
    "hello",
    " END",
    "😀",
    "E",
]


def request(**fields: Any) -> ChatRequest:
    user = Message(role="user", content="Hi")
    return ChatRequest(model="m", messages=[user], tools=TOOLS, max_tokens=400, ordered=True, **fields)


def joined(stream: bytes) -> dict[str, Any]:
    """The message that events make; they come in the order of the API."""
    blocks = [block.split("\n") for block in stream.decode().split("\n\n") if block]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
    first, ping, *rest, delta, stop = events
    assert (first["type"], ping["type"]) == ("message_start", "ping")
    assert (delta["type"], stop) == ("message_delta", {"type": "message_stop"})
    message = first["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    arguments, is_open = "", False
    for event in rest:
        content = message["content"]
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == len(content)
            content.append(event["content_block"])
            arguments, is_open = "", True
            continue
        assert is_open
        assert event["index"] == len(content) - 1
        if kind == "content_block_stop":
            is_open = False
            if arguments:
                content[-1]["input"] = json.loads(arguments)
            continue
        piece = event["delta"]
        if piece["type"] == "input_json_delta":
            arguments += piece["partial_json"]
        elif piece["type"] == "signature_delta":
            content[-1]["signature"] = piece["signature"]
        else:
            name = piece["type"].removesuffix("_delta")
            assert piece[name]
            content[-1][name] += piece[name]
    assert not is_open
    message.update(delta["delta"])
    assert delta["usage"]["output_tokens"] >= message["usage"]["output_tokens"]
    message["usage"] = delta["usage"]
    return message


def both(
    asked: ChatRequest, whole: list[ChoiceDelta], pieces: list[ChoiceDelta], usage: Usage
) -> tuple[Any, Any]:
    """The unstreamed answer to one run, and what the events of another make."""
    body = MessagesEncoder(OPENAI, asked, id="1", created=1).whole(whole, usage)
    encoder = MessagesEncoder(OPENAI, asked, id="1", created=1)
    stream = b"".join([encoder.events(delta, usage) for delta in pieces]) + encoder.end(usage)
    return json.loads(body), joined(stream)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.sampled_from(MARKS), max_size=12),
    stop=st.lists(st.sampled_from([" END", "😀h", "lo"]), max_size=2),
    shown=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_what_a_model_says(tokenizer, texts: list[str], stop: list[str], shown: bool, seed: int):
    tokens = tokenizer.encode("".join(texts), control=True)
    asked = request(stop=stop, thinking=Thinking(shown=shown), sampling=Sampling(seed=seed))
    renderer = NativeRenderer(registry.BY_NAME["qwen3"], tokenizer)

    async def said(cuts: random.Random) -> tuple[list[ChoiceDelta], Usage]:
        steps, rest = [], list(tokens)
        while rest:
            size = cuts.randint(1, 9)
            steps.append(rest[:size])
            rest = rest[size:]
        model = Model(id="m", context_length=4096, capabilities=frozenset({"chat"}))
        served = ServedModel(model, tokenizer, renderer, ScriptedEngine(lambda _: steps))
        job = await prepare_chat(served, asked, "r")
        return [delta async for delta in run(job)], job.usage

    whole, usage = asyncio.run(said(random.Random(1)))
    pieces, _ = asyncio.run(said(random.Random(2)))
    body, streamed = both(asked, whole, pieces, usage)
    plain = whole[-1].plain
    if plain is None:
        if not shown:  # blocks of nothing at all are not worth telling apart
            assert all(not block.get("thinking") for block in body["content"])
        assert _without_ids(body) == _without_ids(streamed)
    else:
        assert body["content"] == ([{"type": "text", "text": plain.text}] if plain.text else [])


ARGUMENTS = ['{"a": 1}', '{"a": {"b": "}"}}', "{}", "", '{"é": "😀 {"}']
calls = st.lists(st.tuples(st.sampled_from(ARGUMENTS), st.integers(1, 4)), min_size=1, max_size=4)


@pytest.mark.complaint("G07")
@settings(max_examples=300, deadline=None)
@given(made=calls, text=st.sampled_from(["", "I look."]), order=st.randoms(use_true_random=False))
def test_calls_that_a_provider_mixes(made: list[tuple[str, int]], text: str, order: random.Random):
    """Pieces of several calls in any order: each call has its own arguments, whole."""
    waiting: list[list[ToolCallDelta]] = []
    for index, (arguments, size) in enumerate(made):
        cut = [arguments[at : at + size] for at in range(0, len(arguments), size)]
        first = ToolCallDelta(index, f"call_{index}", f"f{index}")
        waiting.append([first, *[ToolCallDelta(index, arguments=piece) for piece in cut]])
    deltas = [ChoiceDelta(index=0, text=text)] if text else []
    begun = 0
    while any(waiting):
        index = order.choice(
            [place for place in range(min(begun + 1, len(waiting))) if waiting[place]] or [begun]
        )
        begun = max(begun, index + 1)
        deltas.append(ChoiceDelta(index=0, tool_calls=[waiting[index].pop(0)]))
    deltas.append(ChoiceDelta(index=0, finish=FinishReason.TOOL_CALLS))
    body, streamed = both(request(), deltas, deltas, USAGE)
    assert body == streamed
    found = [block for block in body["content"] if block["type"] == "tool_use"]
    assert {block["id"]: (block["name"], block["input"]) for block in found} == {
        f"call_{index}": (f"f{index}", json.loads(arguments or "{}"))
        for index, (arguments, _) in enumerate(made)
    }


pieces = st.one_of(
    st.builds(lambda text: ChoiceDelta(index=0, text=text), st.sampled_from(["a", "é", "\n"])),
    st.builds(lambda text: ChoiceDelta(index=0, reasoning=text), st.sampled_from(["r", "😀"])),
    st.builds(
        lambda one: ChoiceDelta(index=0, thoughts=[one]),
        st.sampled_from([Thought("", "c2ln"), Thought(sealed="x")]),
    ),
    st.just(ChoiceDelta(index=0)),
)


@pytest.mark.complaint("G09")
@settings(max_examples=200, deadline=None)
@given(made=st.lists(pieces, max_size=12), finish=st.sampled_from([*FinishReason, None]))
def test_reasoning_that_is_signed_keeps_its_signature(made: list[ChoiceDelta], finish: FinishReason | None):
    deltas = [*made, ChoiceDelta(index=0, finish=finish)]
    body, streamed = both(request(), deltas, deltas, USAGE)
    assert body == streamed
    signed = sum(len([one for one in delta.thoughts or () if one.signature]) for delta in made)
    sealed = sum(len([one for one in delta.thoughts or () if one.sealed]) for delta in made)
    content = body["content"]
    assert len([block for block in content if block.get("signature") == "c2ln"]) == signed
    assert content.count({"type": "redacted_thinking", "data": "x"}) == sealed
    assert "".join(block.get("text", "") for block in content) == "".join(delta.text for delta in made)
    told = "".join(block.get("thinking", "") for block in content)
    assert told == "".join(delta.reasoning for delta in made)


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return {**message, "content": content}
