"""Several dialects on one server: each answers below its mount, in its own shape."""

import json

import pytest

from onward.core.checkpoint import Adapter
from onward.routing.checkpoints import Checkpoint, unknown_checkpoint
from tests.http.harness import JSON, MODEL, SECRET, edge

BOTH = {"openai": "/v1", "tinker": "/tinker/api/v1"}
TURNED = {"tinker": "/tinker/api/v1", "openai": "/v1"}
CHECKPOINT = "tinker://run/sampler_weights/last"


class One:
    """There is one checkpoint."""

    async def find(self, path: str, base: object) -> Checkpoint:
        if path != CHECKPOINT:
            raise unknown_checkpoint(path)
        return Checkpoint(MODEL, Adapter("adapter-1", "/adapters/1.gguf"))


@pytest.fixture(params=[BOTH, TURNED], ids=["openai first", "tinker first"])
async def both(request, text_side, tmp_path):
    async with edge(text_side, tmp_path, dialects=request.param, checkpoints=One()) as running:
        yield running


async def post(running, path, **body):
    return await running.client.post(path, content=json.dumps({"model": MODEL, **body}), headers=JSON)


@pytest.mark.covers("TC-11", "TC-12")
async def test_each_mount_reads_and_answers_as_its_dialect(both):
    for path, count in (("/v1", 2), ("/tinker/api/v1", 1)):
        answer = await post(both, f"{path}/completions", prompt="hello", max_tokens=2, n=2)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["choices"]) == count
        chat = await post(
            both, f"{path}/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=2
        )
        keys = set(chat.json()["choices"][0]["message"])
        assert ("refusal" in keys, "tool_call_id" in keys) == (path == "/v1", path != "/v1")


async def test_each_mount_lists_the_models_and_describes_itself(both):
    for path, title in (("/v1", "Onward: OpenAI"), ("/tinker/api/v1", "Onward: Tinker")):
        listed = await both.client.get(f"{path}/models")
        assert [model["id"] for model in listed.json()["data"]] == [MODEL]
        for reference in (MODEL, "alias", f"{MODEL}:peft:8", CHECKPOINT):
            one = await both.client.get(f"{path}/models/{reference}")
            assert (one.status_code, one.json()["id"]) == (200, MODEL)
        described = (await both.client.get(f"{path}/openapi.json")).json()
        assert described["info"]["title"] == title
        assert described["servers"] == [{"url": path}]
    assert (await both.client.get("/tinker/api/v1/tokenizer_info")).status_code == 404
    front = (await both.client.get("/")).text
    assert "/v1/openapi.json" in front
    assert "/tinker/api/v1/openapi.json" in front


async def test_the_root_speaks_the_dialect_that_has_the_page(both):
    """Whichever dialect comes first in the config."""
    answer = await post(both, "/tokenize", prompt="hello")
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] > 0
    wrong = await post(both, "/tokenize", prompt=5)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.covers("TC-1")
async def test_a_checkpoint_reaches_the_engine_by_its_adapter(both):
    for reference in (CHECKPOINT, f"{MODEL};{CHECKPOINT}", f"{MODEL}:peft:8;{CHECKPOINT}"):
        answer = await post(both, "/tinker/api/v1/completions", prompt="hello", model=reference, max_tokens=1)
        assert (answer.status_code, answer.json()["model"]) == (200, reference)
        assert both.engine.requests[-1].adapter == "adapter-1"
        chat = await post(
            both,
            "/tinker/api/v1/chat/completions",
            messages=[{"role": "user", "content": "hi"}],
            model=reference,
            max_tokens=1,
        )
        assert (chat.status_code, chat.json()["model"]) == (200, reference)
        assert both.engine.requests[-1].adapter == "adapter-1"
    await post(both, "/tinker/api/v1/completions", prompt="hello", max_tokens=1)
    assert both.engine.requests[-1].adapter is None
    unknown = await post(both, "/tinker/api/v1/completions", prompt="hello", model=f"{MODEL};{CHECKPOINT}x")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_key_is_asked_for_in_each_dialects_own_way(text_side, tmp_path):
    """`openai` takes the key in either header, `tinker` in its own one."""
    async with edge(text_side, tmp_path, dialects=BOTH, keys=True) as running:
        for path, header, status in (
            ("/v1", {}, 401),
            ("/v1", {"x-api-key": SECRET}, 200),
            ("/tinker/api/v1", {}, 401),
            ("/tinker/api/v1", {"x-api-key": SECRET}, 401),
            ("/tinker/api/v1", {"authorization": f"Bearer {SECRET}"}, 200),
        ):
            answer = await running.client.get(f"{path}/models", headers=header)
            assert answer.status_code == status
            if status == 401:
                error = answer.json()["error"]
                assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
