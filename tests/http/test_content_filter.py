"""A model's content filter: what may not go in, and what may not come out, of models of ours."""

import json
from typing import Any

import httpx
import pytest

from onward.core.usage import Usage
from onward.engines.scripted import ScriptedEngine
from onward.wiring import config as settings
from tests.conftest import start_server
from tests.http.gateway import MODEL, Gateway, another_key, data_of, gateway
from tests.http.messages import message_of

OTHER = "it is another plan altogether"
PAYS = {"balance": "1.00"}
MOUNTS = {"openai": "/v1", "tinker": "/tinker/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
BLOCKED = {
    "/v1": "content_blocked",
    "/tinker/v1": "content_blocked",
    "/tokens/v1": "content_blocked",
    "/prentis/v1": "CONTENT_BLOCKED",
}
everywhere = pytest.mark.parametrize("mount", MOUNTS.values())


def filtering(
    *, block_input: list[str] | None = None, block_output: list[str] | None = None
) -> dict[str, Any]:
    return {
        "content_filter": settings.ContentFilter(
            block_input=block_input or [], block_output=block_output or []
        )
    }


def says(text_side, *texts: str) -> ScriptedEngine:
    """An engine that generates these texts, one for each request that it gets, and then ends."""
    tokenizer = text_side.tokenizer
    left = list(texts)

    def script(_):
        text = left.pop(0) if len(left) > 1 else left[0]
        return [
            [token] for token in [*tokenizer.encode(text, control=False), *list(tokenizer.end_token_ids)[:1]]
        ]

    return ScriptedEngine(script)


@pytest.fixture
def running(text_side, tmp_path):
    def start(engine: ScriptedEngine, **filters: list[str]):
        return gateway(
            tmp_path, engine, text_side=text_side, tenant=PAYS, model=filtering(**filters), mounts=MOUNTS
        )

    return start


async def refused(answer, param: str | None, code: str) -> None:
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert error["code"].startswith(code)
    assert error["param"] == param
    assert "secret" not in answer.text


async def is_free(gateway: Gateway) -> None:
    """Nothing was charged or even held."""
    assert await gateway.entries() == []
    assert await gateway.balance() == 10**9


@pytest.mark.covers("P-9")
@everywhere
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": "a secret plan"}, "prompt"),
        ("completions", {"prompt": ["a SECRET plan"]}, "prompt[0]"),
        ("chat/completions", {"messages": [{"role": "user", "content": "secret"}]}, "messages[0].content"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a secret"}]}]},
            "messages[0].content[0].text",
        ),
        (
            "chat/completions",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "sec"}, {"type": "text", "text": "ret"}],
                    }
                ]
            },
            "messages[0].content",
        ),
        (
            "chat/completions",
            {
                "messages": [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "hi"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "c",
                                "type": "function",
                                "function": {"name": "f", "arguments": '{"q":"secret"}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "c", "content": "ok"},
                ]
            },
            "messages[2].tool_calls[0].function.arguments",
        ),
        (
            "chat/completions",
            {
                "messages": [{"role": "user", "content": "hi"}],
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {"type": "object", "properties": {"secret": {"type": "string"}}},
                        },
                    }
                ],
            },
            "tools[0].function.parameters.properties",
        ),
    ],
    ids=["text", "batch", "chat", "part", "parts", "arguments", "tools"],
)
async def test_blocked_input_is_refused_and_costs_nothing(running, text_side, mount, path, body, param):
    engine = says(text_side, "fine")
    async with running(engine, block_input=["(?i)secret"]) as served:
        answer = await served.post(f"{mount}/{path}", {"max_tokens": 5, **body})
        await refused(answer, param, BLOCKED[mount])
        await is_free(served)
        assert engine.requests == []
        log = await served.logged("content_filter.block_input[0]")
        assert "secret" not in log


@pytest.mark.covers("P-9")
async def test_blocked_input_of_messages(running, text_side):
    async with running(says(text_side, "fine"), block_input=["secret"]) as served:
        body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "system": "a secret"}
        answer = await served.post("/prentis/v1/messages", body)
        assert answer.status_code == 400, answer.text
        assert "'system'" in answer.json()["error"]["message"]
        await is_free(served)


@pytest.mark.parametrize("mount", ["/v1", "/tinker/v1", "/tokens/v1"])
async def test_token_ids_are_checked_as_text(running, text_side, mount):
    async with running(says(text_side, "fine"), block_input=["secret"]) as served:
        ids = text_side.tokenizer.encode("my secret plan", control=False)
        answer = await served.post(f"{mount}/completions", {"prompt": ids, "max_tokens": 5})
        await refused(answer, "prompt", BLOCKED[mount])
        await is_free(served)
        fine = text_side.tokenizer.encode("my open plan", control=False)
        answer = await served.post(f"{mount}/completions", {"prompt": fine, "max_tokens": 5})
        assert answer.status_code == 200, answer.text


async def test_what_is_no_part_of_the_prompt_may_be_anything(running, text_side):
    async with running(says(text_side, "fine"), block_input=["secret"]) as served:
        answer = await served.complete(user="secret", stop=["secret"], unknown="secret")
        assert answer.status_code == 200, answer.text


async def test_a_pattern_that_takes_too_long_blocks(running, text_side):
    async with running(says(text_side, "fine"), block_input=["(a+)+b"]) as served:
        answer = await served.complete(prompt="a" * 5000 + "c")
        await refused(answer, "prompt", "content_blocked")
        await served.logged("takes too long: it blocked unseen")
        assert (await served.complete(prompt="c")).status_code == 200


@pytest.mark.covers("P-9")
@everywhere
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_blocked_output_is_refused_and_charged(running, text_side, mount, path):
    engine = says(text_side, "this is the secret plan of them all")
    async with running(engine, block_output=["(?i)the secret"]) as served:
        prompt = (
            {"prompt": "two words"}
            if path == "completions"
            else {"messages": [{"role": "user", "content": "two words"}]}
        )
        answer = await served.post(f"{mount}/{path}", {"max_tokens": 20, **prompt})
        await refused(answer, None, BLOCKED[mount])
        entry = await served.entry()
        sampled = len(text_side.tokenizer.encode("this is the secret", control=False))
        assert entry.usage.completion_tokens == sampled
        assert entry.charged > 0
        assert engine.cancelled == 1
        assert "the secret" not in await served.logged("content_filter.block_output[0]")


def content(events: list[Any], index: int = 0) -> str:
    said = ""
    for event in events:
        for choice in event.get("choices", []) if isinstance(event, dict) else []:
            if choice["index"] == index:
                said += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    return said


def finishes(events: list[Any]) -> dict[int, str]:
    found = {}
    for event in events:
        for choice in event.get("choices", []) if isinstance(event, dict) else []:
            if choice["finish_reason"]:
                assert choice["index"] not in found
                found[choice["index"]] = choice["finish_reason"]
    return found


@pytest.mark.covers("P-9", "P-6")
@everywhere
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_a_stream_ends_in_front_of_what_is_blocked(running, text_side, mount, path):
    engine = says(text_side, "this is the secret plan of them all")
    async with running(engine, block_output=["(?i)the secret"]) as served:
        prompt = (
            {"prompt": "two words"}
            if path == "completions"
            else {"messages": [{"role": "user", "content": "two words"}]}
        )
        more = {"stream": True, "stream_options": {"include_usage": True}}
        answer = await served.post(f"{mount}/{path}", {"max_tokens": 20, **prompt, **more})
        assert answer.status_code == 200
        events = data_of(answer.text)
        assert content(events) == "this is "
        assert finishes(events) == {0: "content_filter"}
        assert events[-1] == "[DONE]"
        sampled = len(text_side.tokenizer.encode("this is the secret", control=False))
        assert events[-2]["usage"]["completion_tokens"] == sampled
        assert events[-2]["choices"] == []
        assert (await served.entry()).usage.completion_tokens == sampled
        assert engine.cancelled == 1


@pytest.mark.covers("P-9")
async def test_nothing_given_yet_is_a_failure_with_a_status(running, text_side):
    async with running(says(text_side, "the secret plan"), block_output=["the secret"]) as served:
        answer = await served.complete(stream=True, max_tokens=10)
        await refused(answer, None, "content_blocked")
        assert (await served.entry()).charged > 0


async def test_other_choices_go_on(running, text_side):
    engine = says(text_side, "it is the secret plan", OTHER)
    async with running(engine, block_output=["the secret"]) as served:
        answer = await served.complete(stream=True, max_tokens=20, n=2)
        events = data_of(answer.text)
        assert sorted(finishes(events).values()) == ["content_filter", "stop"]
        assert sorted(content(events, index) for index in range(2)) == ["it is ", OTHER]
        assert events[-1] == "[DONE]"
        blocked, other = (
            len(text_side.tokenizer.encode(one, control=False)) for one in ("it is the secret", OTHER)
        )
        assert (await served.entry()).usage.completion_tokens == blocked + other + 1


async def test_best_of_asks_only_for_what_wins(running, text_side):
    engine = says(text_side, "the secret plan", "an open plan")
    async with running(engine, block_output=["the secret"]) as served:
        answer = await served.complete(max_tokens=20, n=1, best_of=2)
        assert answer.status_code in {200, 400}
        assert "the secret" not in answer.text


async def test_token_ids_and_logprobs_wait_for_their_text(running, text_side):
    engine = says(text_side, "this is the secret plan of them all")
    async with running(engine, block_output=["the secret"]) as served:
        answer = await served.complete(stream=True, max_tokens=20, logprobs=1, return_token_ids=True)
        events = data_of(answer.text)
        choices = [choice for event in events[:-1] for choice in event["choices"]]
        ids = [token for choice in choices for token in choice["token_ids"]]
        assert text_side.tokenizer.decode(ids) in "this is "
        tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
        assert "".join(tokens) in "this is "
        assert content(events) == "this is "


async def test_what_is_not_blocked_is_the_same_as_without_a_filter(text_side, tmp_path):
    text = "this is the secre of a plan, the sec"
    answers = []
    for number, patterns in enumerate([["the secret"], []]):
        folder = tmp_path / str(number)
        folder.mkdir()
        model = filtering(block_output=patterns) if patterns else {}
        async with gateway(
            folder, says(text_side, text), text_side=text_side, tenant=PAYS, model=model
        ) as served:
            answer = await served.complete(max_tokens=50, logprobs=2, return_token_ids=True)
            assert answer.status_code == 200, answer.text
            streamed = await served.complete(max_tokens=50, logprobs=2, return_token_ids=True, stream=True)
            answers.append(answer.json()["choices"])
            events = data_of(streamed.text)
            assert content(events) == text == answer.json()["choices"][0]["text"]
            ids = [
                token for event in events[:-1] for choice in event["choices"] for token in choice["token_ids"]
            ]
            assert ids == answer.json()["choices"][0]["token_ids"]
    assert answers[0] == answers[1]


async def test_other_models_have_no_filter(text_side, tmp_path):
    async with gateway(tmp_path, says(text_side, "the secret"), text_side=text_side) as served:
        answer = await served.post("/v1/completions", {"prompt": "secret", "max_tokens": 5})
        assert json.loads(answer.text)["choices"][0]["text"] == "the secret"
        assert answer.json()["model"] == MODEL
        assert (await served.entry()).usage == Usage(1, 3)


@pytest.mark.covers("P-9", "P-12")
@pytest.mark.parametrize("mount", ["/v1", "/prentis/v1"])
async def test_a_stream_of_messages_ends_in_front_of_what_is_blocked(running, text_side, mount):
    engine = says(text_side, "this is the secret plan of them all")
    async with running(engine, block_output=["the secret"]) as served:
        body = {"messages": [{"role": "user", "content": "two words"}], "max_tokens": 20}
        streamed = message_of((await served.post(f"{mount}/messages", {**body, "stream": True})).text)
        assert (streamed["content"][0]["text"], streamed["stop_reason"]) == ("this is ", "refusal")
        assert streamed["stopped"]
        whole = await served.post(f"{mount}/messages", body)
        assert whole.status_code == 400
        assert whole.json()["error"]["type"] == "invalid_request_error"


REAL = """
[dialects]
openai = "/v1"
prentis = "/prentis/v1"

[[models]]
id = "org/model"
context_length = 2048
content_filter = {{ block_input = ["(?i)forbidden"], block_output = ['\\bParis\\b'] }}

  [[models.deployments]]
  name = "local"
  engine = "llama"
  source = "{source}"
  slots = 2
"""


def test_the_real_model_says_no_word_that_is_blocked(gguf, tmp_path):
    """Over processes of their own: two that answer, one that samples."""
    running = start_server(tmp_path, "--workers", "2", config=REAL.format(source=gguf))
    try:
        running.wait_ready()
        body = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
        with httpx.Client(base_url=running.base_url, timeout=30) as client:
            whole = client.post("/prentis/v1/completions", json=body)
            assert (whole.status_code, whole.json()["error"]["code"]) == (400, "CONTENT_BLOCKED_OUTPUT")
            body["prompt"] = "Repeat: one two three Paris. Repeat: one two three"
            stream = client.post("/v1/completions", json={**body, "stream": True, "return_token_ids": True})
            assert "Paris" not in stream.text
            refused = client.post("/v1/completions", json={**body, "prompt": "a Forbidden word"})
            assert refused.json()["error"]["code"] == "content_blocked"
            fine = client.post("/v1/completions", json={**body, "prompt": "1 2 3 4 5", "max_tokens": 5})
            assert fine.status_code == 200, fine.text
        assert "blocked by content_filter.block_output[0]" in running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.mark.covers("P-9", "K-7")
@everywhere
@pytest.mark.parametrize("path", ["completions", "chat/completions", "messages"])
async def test_terms_that_nobody_has_accepted(text_side, tmp_path, mount, path):
    """Before anything else is read of the body, and it costs nothing."""
    engine = says(text_side, "fine")
    accepted = settings.Tenant(name="other", balance="1.00", agreements=[MODEL])
    model = {"agreement": True}
    async with gateway(
        tmp_path,
        engine,
        text_side=text_side,
        tenant=PAYS,
        tenants=[accepted],
        keys=[another_key("accepts", tenant="other")],
        model=model,
        mounts=MOUNTS,
    ) as served:
        prompt = (
            {"prompt": "two words"}
            if path == "completions"
            else {"messages": [{"role": "user", "content": "two words"}]}
        )
        answer = await served.post(f"{mount}/{path}", {"max_tokens": 5, **prompt})
        if answer.status_code == 404:
            assert (mount, path) in {("/tinker/v1", "messages"), ("/tokens/v1", "messages")}
            return
        error = answer.json()["error"]
        assert answer.status_code == 403
        if path == "messages":
            assert error["type"] == "permission_error"
        else:
            code = "AGREEMENT_REQUIRED" if mount.startswith("/prentis") else "agreement_required"
            assert (error["code"], error["param"]) == (code, "model")
        assert engine.requests == []
        assert await served.entries() == []
        answer = await served.post(f"{mount}/{path}", {"max_tokens": 5, **prompt}, secret="on-secret-accepts")
        assert answer.status_code == 200, answer.text
