"""G05, G06, G07, G09, G12, G28: what a stream must not lose, add, mix up or pretend."""

import json
import time
from typing import Any

import pytest

from onward.admission.ledger import State
from onward.dialects import DIALECTS
from onward.http.limits import Limits
from tests.http.gateway import MODEL, Gateway, cost, data_of, gateway
from tests.http.harness import until
from tests.mock_answers import SECRET as THEIR_SECRET
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "two words"}]


@pytest.fixture
async def paid(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}) as running:
        yield running


async def events(running: Gateway, path: str, **body: Any) -> list[Any]:
    """Of a stream that is answered."""
    base = {"messages": USER} if "chat" in path else {"prompt": "two words"}
    answer = await running.post(path, {**base, "max_tokens": 5, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return data_of(answer.text)


@pytest.mark.complaint("G05")
@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
@pytest.mark.parametrize(
    "way",
    [{}, {"usage_on_last": True}, {"usage_each": True}, {"usage": "always"}, {"usage": "never"}],
    ids=str,
)
async def test_g05_usage_comes_where_it_is_asked_for_and_nowhere_else(
    paid: Gateway, mock: MockProvider, path: str, way: dict
):
    mock.always(Behaviour(**way))
    *pieces, usage, done = await events(paid, path, stream_options={"include_usage": True})
    assert (usage["choices"], done) == ([], "[DONE]")
    assert usage["usage"]["completion_tokens"] >= 5
    assert all(piece["choices"] and not piece.get("usage") for piece in pieces)
    for options in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": None}):
        *pieces, done = await events(paid, path, **options)
        assert done == "[DONE]"
        assert all(piece["choices"] and not piece.get("usage") for piece in pieces)
    assert len({entry.charged for entry in await paid.ended(4)}) == 1


BROKEN = {
    "cut": Behaviour(cut=3),
    "reset": Behaviour(cut=3, reset=True),
    "stall": Behaviour(stall=3),
    "no end": Behaviour(cut=6),
    "http10": Behaviour(cut=3, http10=True),
    "error": Behaviour(error_event=3),
    "half an event": Behaviour(broken_json=True, no_done=True),
}


@pytest.mark.complaint("G06")
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions", CHAT])
@pytest.mark.parametrize("way", BROKEN)
async def test_g06_a_stream_that_breaks_off_does_not_look_whole(
    tmp_path, mock: MockProvider, path: str, way: str
):
    mock.always(BROKEN[way])
    limits = {"idle_timeout_s": 0.4}
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}, provider=limits) as running:
        *pieces, error = await events(running, path, max_tokens=9)
        assert set(error) == {"error"}
        assert error["error"]["message"].endswith(".")
        assert THEIR_SECRET not in json.dumps(error)
        assert pieces
        if way not in {"no end", "half an event"}:  # there the provider itself had said why it ended
            assert all(choice["finish_reason"] is None for piece in pieces for choice in piece["choices"])
        entry = await running.entry()
        assert (entry.state, entry.estimated) == (State.SETTLED, True)
        assert entry.outcome in {"upstream_unavailable", "partial_response_timeout"}
        assert 2 <= entry.usage.completion_tokens <= 5
        assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens)
        assert [attempt.outcome for attempt in entry.attempts] == [entry.outcome]
        await running.idle()


@pytest.mark.complaint("G06")
async def test_g06_what_is_whole_but_for_its_done_is_whole(paid: Gateway, mock: MockProvider):
    """Each choice said why it ended, and the body ended as it should."""
    mock.always(Behaviour(no_done=True))
    *_, last, done = await events(paid, "/v1/completions")
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")


@pytest.mark.complaint("G06")
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(length=7, close_after=True),
        Behaviour(cut=40),
        Behaviour(broken_json=True),
        Behaviour(html=True),
    ],
    ids=["too short", "cut", "half", "page"],
)
async def test_g06_half_an_answer_is_none(paid: Gateway, mock: MockProvider, behaviour: Behaviour):
    mock.always(behaviour)
    await paid.refused(503, "upstream_unavailable")
    assert (await paid.entry()).charged == 0


@pytest.mark.complaint("G07")
async def test_g07_parallel_calls_keep_their_places(paid: Gateway, mock: MockProvider):
    mock.always(Behaviour(tools=True))
    tools = [{"type": "function", "function": {"name": f"f{k}", "parameters": {}}} for k in range(2)]
    calls: dict[int, dict[str, str]] = {}
    for event in (await events(paid, CHAT, tools=tools))[:-1]:
        for choice in event["choices"]:
            for piece in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.get("id", "")
                call["name"] += piece["function"].get("name", "")
                call["arguments"] += piece["function"].get("arguments", "")
    assert calls == {k: {"id": f"call_{k}", "name": f"f{k}", "arguments": '{"a": 1}'} for k in range(2)}
    whole = await paid.post(CHAT, {"messages": USER, "tools": tools})
    assert [call["id"] for call in whole.json()["choices"][0]["message"]["tool_calls"]] == [
        "call_0",
        "call_1",
    ]


THOUGHT = [
    {"role": "user", "content": "two words"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "h\u00fcm\n\u2026", "signature": "EqQB/+abc=="},
            {"type": "text", "text": "so"},
        ],
        "reasoning_content": "caf\u00e9 \U0001f44d  ",
        "thinking_blocks": [{"type": "thinking", "thinking": "x", "signature": "QUJD+/=="}],
    },
    {"role": "user", "content": "more"},
]


@pytest.mark.complaint("G09")
@pytest.mark.parametrize("path", [CHAT, "/tokens/v1/chat/completions"])
async def test_g09_reasoning_goes_both_ways(paid: Gateway, mock: MockProvider, path: str):
    mock.always(Behaviour(reasoning=3, echo_model=True))
    body = json.dumps({"model": MODEL, "messages": THOUGHT, "max_tokens": 5}).encode()
    answer = await paid.post(path, body)
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (" w0 w1 w2", " w3 w4")
    [seen] = mock.requests
    assert seen.body[seen.body.index(b'"messages"') :] == body[body.index(b'"messages"') :]
    deltas = [choice["delta"] for event in (await events(paid, path))[:-1] for choice in event["choices"]]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == " w0 w1 w2"
    assert "".join(delta.get("content") or "" for delta in deltas) == " w3 w4"


@pytest.mark.complaint("G12")
@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
async def test_g12_choices_and_log_probabilities_stay_together(paid: Gateway, mock: MockProvider, path: str):
    mock.always(Behaviour(logprobs=True))
    chat = "chat" in path
    base = {"messages": USER, "logprobs": True} if chat else {"prompt": "two words", "logprobs": 1}
    whole = (await paid.post(path, {**base, "max_tokens": 5, "n": 3})).json()["choices"]
    merged: dict[int, dict[str, Any]] = {}
    for event in (await events(paid, path, **base, n=3))[:-1]:
        for choice in event["choices"]:
            one = merged.setdefault(choice["index"], {"text": "", "tokens": [], "finish": None})
            one["text"] += choice["delta"].get("content") or "" if chat else choice["text"]
            if choice["logprobs"]:
                scores = choice["logprobs"]
                one["tokens"] += [item["token"] for item in scores["content"]] if chat else scores["tokens"]
            one["finish"] = one["finish"] or choice["finish_reason"]
    assert [merged[choice["index"]] for choice in whole] == [
        {
            "text": choice["message"]["content"] if chat else choice["text"],
            "tokens": [item["token"] for item in choice["logprobs"]["content"]]
            if chat
            else choice["logprobs"]["tokens"],
            "finish": choice["finish_reason"],
        }
        for choice in whole
    ]
    assert sorted(merged) == [0, 1, 2]


@pytest.mark.complaint("G28")
async def test_g28_a_silent_provider_does_not_make_us_silent(tmp_path, mock: MockProvider):
    """15 s by default, in every dialect; less here."""
    mock.say(Behaviour(hold=0))
    quick = Limits(silence_s=0.05)
    async with (
        gateway(tmp_path, mock, key={}, limits=quick) as running,
        running.caller(stream=True) as caller,
    ):
        await caller.reads(2, ": keep-alive")
        mock.let_go()
        text = await caller.reads_all()
        assert text.index(": keep-alive") < text.index("data: ")
        assert "data: [DONE]" in text
    assert all(dialect.stream.keep_alive_s <= 15 for dialect in DIALECTS.values())


@pytest.mark.complaint("G28")
@pytest.mark.parametrize(
    "behaviour", [Behaviour(never=True), Behaviour(silent=True)], ids=["never", "silent"]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_g28_the_first_byte_has_its_time(tmp_path, mock, other, behaviour: Behaviour, stream: bool):
    mock.always(behaviour)
    limits = {"first_byte_timeout_s": 0.4, "idle_timeout_s": 0.4}
    async with gateway(tmp_path, mock, other, tenant={"balance": "1.00"}, provider=limits) as running:
        began = time.monotonic()
        assert (await running.complete(stream=stream)).status_code == 200
        assert time.monotonic() - began < 5
        first, second = (await running.entry()).attempts
        assert (first.outcome, second.outcome) == ("upstream_timeout", "ok")
        await until(lambda: mock.requests[0].gone)
