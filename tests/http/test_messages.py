"""Failures, headers, keys, money and silence of the `messages` surface: Anthropic's shape on every mount."""

from typing import Any

import httpx
import pytest

from onward.admission.ledger import State
from onward.core.usage import Usage
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.wiring import config as settings
from tests.dialects.test_messages import events_of
from tests.http.gateway import SECRET, cost, gateway, units
from tests.http.harness import SECRET as KEY
from tests.http.harness import SlowEngine, edge

pytestmark = pytest.mark.covers("P-12", "O-4", "O-5")
ASK: dict[str, Any] = {"max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
SCRIPTED = {"model": "org/scripted", **ASK}
MOUNTS = {"openai": "/v1", "prentis": "/prentis/v1"}
both = pytest.mark.parametrize("mount", MOUNTS.values())


def error_of(answer: httpx.Response, status: int, type_: str) -> str:
    """The message of a failure, which must have the shape of the API."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], set(body["error"])) == ("error", {"type", "message"})
    assert body["error"]["type"] == type_
    shown = {answer.headers["request-id"], answer.headers["x-request-id"], body["request_id"]}
    assert len(shown) == 1
    return body["error"]["message"]


@both
async def test_keys_are_taken_from_both_places(text_side, tmp_path, mount: str):
    async with edge(text_side, tmp_path, keys=True, dialects=MOUNTS) as running:
        path = f"{mount}/messages"
        for headers in ({}, {"x-api-key": "on-a-wrong-one"}):
            refused = await running.client.post(path, json=SCRIPTED, headers=headers)
            error_of(refused, 401, "authentication_error")
        for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
            answer = await running.client.post(
                path, json=SCRIPTED, headers={**headers, "anthropic-version": "2023-06-01"}
            )
            assert answer.status_code == 200, answer.text
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
            assert answer.json()["type"] == "message"


@both
async def test_failures_before_the_surface_is_known(text_side, tmp_path, mount: str):
    limits = Limits(body_bytes=2000)
    async with edge(text_side, tmp_path, dialects=MOUNTS, limits=limits) as running:
        client, path = running.client, f"{mount}/messages"
        wrong_method = await client.get(path)
        assert "takes POST" in error_of(wrong_method, 405, "invalid_request_error")
        assert wrong_method.headers["allow"] == "POST"
        missing = await client.post(f"{path}/count_tokens", json=SCRIPTED)
        assert "There is nothing at" in error_of(missing, 404, "not_found_error")
        twice = await client.post(f"{mount}{path}", json=SCRIPTED)
        assert f"Did you mean {path}?" in error_of(twice, 404, "not_found_error")
        labelled = await client.post(path, content=b"{", headers={"x-request-id": "mine", **JSON})
        error_of(labelled, 400, "invalid_request_error")
        assert labelled.headers["request-id"] == "mine"
        untyped = await client.post(path, content=b"{}", headers={"content-type": "text/plain"})
        error_of(untyped, 400, "invalid_request_error")
        large = await client.post(path, json={**SCRIPTED, "system": "x" * 3000})
        error_of(large, 413, "request_too_large")
        slow = await client.post(path, json=SCRIPTED, headers={"x-large": "x" * 40_000})
        error_of(slow, 431, "invalid_request_error")
        unknown = await client.post(path, json={**SCRIPTED, "model": "org/none"})
        assert "'org/none'" in error_of(unknown, 404, "not_found_error")
        nameless = await client.post(path, json=ASK)
        assert "'model'" in error_of(nameless, 400, "invalid_request_error")


JSON = {"content-type": "application/json"}


async def test_other_routes_keep_the_shape_of_their_mount(text_side, tmp_path):
    async with edge(text_side, tmp_path, dialects=MOUNTS) as running:
        for path in ("/v1/nothing", "/v1/models/nothing/messages", "/prentis/v1/completions"):
            answer = await running.client.get(path)
            assert set(answer.json()) == {"error"}
            assert "request-id" not in answer.headers


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_answered_is_charged(text_side, tmp_path, mount: str, stream: bool):
    engine = ScriptedEngine([260] * 50)
    async with gateway(
        tmp_path, engine, text_side=text_side, tenant={"balance": "1.00"}, mounts=MOUNTS
    ) as running:
        answer = await running.post(f"{mount}/messages", {**ASK, "stream": stream}, secret=SECRET)
        assert answer.status_code == 200, answer.text
        prompt = len(engine.requests[0].prompt)
        entry = await running.entry()
        assert (entry.state, entry.usage) == (State.SETTLED, Usage(prompt, 5))
        assert entry.charged == cost(prompt, 5)
        assert await running.balance() == units("1.00") - entry.charged
        told = events_of(answer)[-2][1]["usage"] if stream else answer.json()["usage"]
        assert (told["input_tokens"], told["output_tokens"]) == (prompt, 5)


@both
async def test_refusals_of_money_and_limits(text_side, tmp_path, mount: str):
    async with gateway(
        tmp_path,
        ScriptedEngine([260] * 50),
        text_side=text_side,
        tenant={"balance": "0.000001"},
        mounts=MOUNTS,
    ) as running:
        error_of(await running.post(f"{mount}/messages", ASK), 402, "billing_error")
    second = tmp_path / "second"
    second.mkdir()
    async with gateway(
        second,
        ScriptedEngine([260] * 50),
        text_side=text_side,
        tenant={"balance": "1"},
        key={"requests_per_minute": 1},
        mounts=MOUNTS,
    ) as running:
        assert (await running.post(f"{mount}/messages", ASK)).status_code == 200
        limited = await running.post(f"{mount}/messages", ASK)
        error_of(limited, 429, "rate_limit_error")
        assert int(limited.headers["retry-after"]) > 0


async def test_silence_is_broken_by_pings(text_side, tmp_path):
    engine = SlowEngine(260, silent_first=0.5)
    async with edge(text_side, tmp_path, engine, limits=Limits(silence_s=0.1)) as running:
        answer = await running.client.post("/v1/messages", json={**SCRIPTED, "max_tokens": 2, "stream": True})
    events = [name for name, _ in events_of(answer)]
    assert events[0] == "ping"
    started = events.index("message_start")
    assert set(events[:started]) == {"ping"}
    assert events[started + 1] == "ping"
    assert events[-1] == "message_stop"
    assert "[DONE]" not in answer.text
    assert "keep-alive" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_an_answer_in_the_shape_of_the_api(text_side, tmp_path, stream: bool):
    engine = SlowEngine(260)
    async with edge(text_side, tmp_path, engine, limits=Limits(request_s=0.3)) as running:
        body = {**SCRIPTED, "max_tokens": 1000, "stream": stream}
        answer = await running.client.post("/v1/messages", json=body)
        if stream:
            name, data = events_of(answer)[-1]
            assert (name, data["error"]["type"]) == ("error", "timeout_error")
            assert data["request_id"] == answer.headers["request-id"]
        else:
            error_of(answer, 504, "timeout_error")


async def test_images_are_refused_by_the_path_that_the_caller_knows(text_side, tmp_path):
    """The second message holds them, behind a system prompt that is no message to the caller."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [image]}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    user = {"role": "user", "content": [{"type": "text", "text": "Look:"}, image]}
    async with edge(text_side, tmp_path) as running:
        for messages, path in (
            ([*ASK["messages"], user], "messages[1].content[1]"),
            (
                [
                    *ASK["messages"],
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": [result]},
                ],
                "messages[2].content[0].content[0]",
            ),
        ):
            body = {**SCRIPTED, "system": "Look at it.", "messages": messages}
            answer = await running.client.post("/v1/messages", json=body)
            assert f"'{path}' is an image" in error_of(answer, 400, "invalid_request_error")


@both
@pytest.mark.covers("O-6", "P-8")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_replays_the_answer(text_side, tmp_path, mount: str, stream: bool):
    engine = ScriptedEngine([260] * 50)
    async with gateway(
        tmp_path, engine, text_side=text_side, tenant={"balance": "1"}, mounts=MOUNTS
    ) as running:
        body, key = {**ASK, "stream": stream}, {"idempotency-key": "key-1"}
        first = await running.post(f"{mount}/messages", body, headers=key)
        second = await running.post(f"{mount}/messages", body, headers=key)
        assert first.status_code == 200, first.text
        assert first.content == second.content
        assert len(engine.requests) == 1
        assert second.headers["request-id"] == second.headers["x-request-id"]
        await running.entry()
        other = await running.post(f"{mount}/messages", {**body, "max_tokens": 4}, headers=key)
        error_of(other, 409, "invalid_request_error")


@pytest.mark.covers("P-11")
async def test_the_user_is_a_label_of_the_log_line(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        await running.client.post("/v1/messages", json={**SCRIPTED, "metadata": {"user_id": "u-17"}})
        [line] = await running.logged("/v1/messages")
    assert (line["user"], line["status"]) == ("u-17", 200)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_filter_finds_is_a_refusal(text_side, tmp_path, stream: bool):
    """In front of the match, where something was said before; else the request is refused."""
    tokenizer = text_side.tokenizer
    tokens = tokenizer.encode("All is well. The secret is out.", control=False)
    engine = ScriptedEngine(tokens)
    patterns = {"block_output": ["secret"], "block_input": ["forbidden"]}
    model = {"content_filter": settings.ContentFilter(**patterns)}
    async with gateway(tmp_path, engine, text_side=text_side, model=model) as running:
        body = {**ASK, "max_tokens": 50, "stream": stream}
        answer = await running.post("/v1/messages", body)
        if stream:
            events = events_of(answer)
            assert "".join(data["delta"].get("text", "") for _, data in events if "delta" in data) == (
                "All is well. The "
            )
            assert events[-2][1]["delta"]["stop_reason"] == "refusal"
        else:
            error_of(answer, 400, "invalid_request_error")
        asked = {**body, "messages": [{"role": "user", "content": "what is forbidden"}]}
        error_of(await running.post("/v1/messages", asked), 400, "invalid_request_error")
