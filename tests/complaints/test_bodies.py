"""G11, G33, G34: what callers send arrives, whole and with nothing added."""

import json

import pytest

from tests.http.gateway import MODEL, UPSTREAM, Gateway, gateway
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

PATHS = ["/v1/completions", "/tokens/v1/completions"]


@pytest.fixture
async def free(tmp_path, mock: MockProvider):
    """Nobody's money is counted."""
    async with gateway(tmp_path, mock, key={}) as running:
        yield running


@pytest.mark.complaint("G11")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prompt", [[1, 2, 70000], [[1, 2], [3], [4, 5, 6]], [[0]]], ids=str)
@pytest.mark.parametrize("stream", [False, True])
async def test_g11_token_ids_and_scores_arrive(free: Gateway, mock: MockProvider, path, prompt, stream):
    mock.always(Behaviour(logprobs=True))
    fields = {"echo": True, "logprobs": 5, "seed": 1, "logit_bias": {"5": -100}, "suffix": "s", "best_of": 2}
    answer = await free.complete(path=path, prompt=prompt, stream=stream, **fields)
    assert answer.status_code == 200
    sent = mock.requests[0].json
    assert {name: sent[name] for name in fields} == fields
    assert sent["prompt"] == prompt
    choices = len(prompt) if isinstance(prompt[0], list) else 1
    entry = await free.entry()
    assert entry.usage.prompt_tokens == sum(len(one) if isinstance(one, list) else 1 for one in prompt)
    assert entry.usage.completion_tokens == choices * 2 * 5
    if not stream:
        assert [choice["index"] for choice in answer.json()["choices"]] == list(range(choices))
        assert answer.json()["choices"][0]["logprobs"]["tokens"]


@pytest.mark.complaint("G33")
@pytest.mark.parametrize("path", [*PATHS, "/v1/chat/completions"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_g33_one_byte_over_the_limit(tmp_path, mock: MockProvider, path: str, chunked: bool):
    settings = {"max_body_bytes": 1024}
    async with gateway(tmp_path, mock, key={}, server=settings) as running:

        def body(size: int) -> bytes:
            start = b'{"model": "org/model", "max_tokens": 1, "messages": [], "prompt": "'
            return start + b"x" * (size - len(start) - 2) + b'"}'

        async def pieces(whole: bytes):
            yield whole

        for size, status in ((1024, 200), (1025, 413)):
            whole = body(size)
            headers = {"content-type": "application/json", "authorization": "Bearer on-a-key-of-these-tests"}
            answer = await running.client.post(
                path, content=pieces(whole) if chunked else whole, headers=headers
            )
            assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert answer.headers["content-type"] == "application/json"
        assert (error["code"], error["type"]) == ("request_entity_too_large", "invalid_request_error")
        assert "1024" in error["message"]
        assert len(mock.requests) == 1


@pytest.mark.complaint("G34")
@pytest.mark.parametrize("path", [*PATHS, "/v1/chat/completions", "/tokens/v1/chat/completions"])
async def test_g34_nothing_is_added(free: Gateway, mock: MockProvider, path: str):
    """Of an unstreamed call the body differs in the model's name alone, in place."""
    own = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
    body = json.dumps({"zzz": 1, **own, "model": MODEL, "aaa": None}).encode()
    assert (await free.post(path, body)).status_code == 200
    [seen] = mock.requests
    assert seen.body == body.replace(json.dumps(MODEL).encode(), json.dumps(UPSTREAM).encode())
    names = {name for name, _ in seen.headers}
    assert names == {"host", "content-type", "content-length", "accept-encoding", "user-agent"}
