"""Checkpoints over HTTP, with the real model: saved while the server runs, under both dialects (TC-1, O-3)."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.api import Api
from tests.checkpoints import BASE, CONFIG, WEIGHTS, config, save, weights
from tests.conftest import RunningServer, start_server

from .test_processes import named

CONFIGURATION = f"""
[server]
workers = 2
[dialects]
openai = "/v1"
tinker = "/tinker/api/v1"
[[models]]
id = "smol"
repo = "{BASE}"
checkpoints = "checkpoints"
  [[models.deployments]]
  name = "local"
  engine = "llama"
  source = "{{source}}"
  adapters = 2
"""
MOUNTS = ["v1", "tinker/api/v1"]
PROMPT = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "logprobs": 1}
CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def serving(gguf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "checkpoints").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONWARD_CACHE", str(folder / "cache"))
        running = start_server(folder, config=CONFIGURATION.replace("{source}", str(gguf)))
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture(params=MOUNTS)
async def api(serving, request):
    async with httpx.AsyncClient(base_url=f"{serving.base_url}/{request.param}/", timeout=60) as client:
        yield Api(client, "smol")


@pytest.fixture
def folder(serving, request) -> Path:
    """The folder of one checkpoint, a different one in each test."""
    name = request.node.name.replace("[", "-").replace("]", "").replace("/", "-")
    return serving.log.parent / "checkpoints" / "run-1" / "sampler_weights" / name


def path_of(folder: Path) -> str:
    return f"tinker://run-1/sampler_weights/{folder.name}"


async def status(api: Api, model: str, surface: str = "completions") -> int:
    body = PROMPT if surface == "completions" else CHAT
    response = await api.post(surface, {"model": model, **body})
    if response.status_code != 200:
        error = response.json()["error"]
        assert error["param"] == "model", error
    return response.status_code


def text(answer: dict) -> str:
    return answer["choices"][0]["text"]


@pytest.mark.covers("TC-1", "O-3")
async def test_it_can_be_sampled_the_moment_it_is_saved(api, folder):
    model = path_of(folder)
    whole = weights(1)
    assert await status(api, model) == 404
    folder.mkdir(parents=True)
    assert await status(api, model) == 404
    (folder / CONFIG).write_bytes(config())
    assert await status(api, model) == 404
    with (folder / WEIGHTS).open("wb") as file:
        for start in range(0, len(whole), len(whole) // 3):
            assert await status(api, model) == 404
            assert await status(api, model, "chat/completions") == 404
            file.write(whole[start : start + len(whole) // 3])
            file.flush()
    answer = await api.complete(model=model, **PROMPT)
    assert answer["model"] == model
    base = await api.complete(**PROMPT)
    assert text(answer) != text(base)
    for reference in (f"smol;{model}", f"{BASE};{model}", f"{BASE}:peft:8192;{model}"):
        again = await api.complete(model=reference, **PROMPT)
        assert (again["model"], again["choices"]) == (reference, answer["choices"])
    streamed = await api.stream_complete(model=model, **PROMPT)
    assert text(streamed) == text(answer)
    chat = await api.chat(model=model, **CHAT)
    assert chat["model"] == model
    assert chat["choices"][0]["message"] != (await api.chat(**CHAT))["choices"][0]["message"]


@pytest.mark.covers("TC-1")
async def test_another_base_model_is_refused(api, folder):
    save(folder, 1, base_model_name_or_path="org/Other-1B")
    assert await status(api, path_of(folder)) == 400
    assert await status(api, path_of(folder), "chat/completions") == 400
    assert await status(api, f"smol;{path_of(folder)}") == 400
    (folder / CONFIG).write_bytes(config(use_dora=True))
    assert await status(api, path_of(folder)) == 400
    (folder / CONFIG).write_bytes(config())
    assert await status(api, path_of(folder)) == 200
    assert await status(api, f"org/Unknown;{path_of(folder)}") == 404


@pytest.mark.covers("TC-1")
async def test_tricks_with_paths_lead_nowhere(api, folder, tmp_path):
    save(tmp_path / "run" / "sampler_weights" / "outside", 1)
    save(folder, 1)
    link = folder.parent / (folder.name + "-link")
    link.symlink_to(tmp_path / "run" / "sampler_weights" / "outside")
    up = os.path.relpath(tmp_path, folder.parents[2])
    for path in (
        f"{up}/run/sampler_weights/outside",
        f"{tmp_path}/run/sampler_weights/outside",
        f"run-1/sampler_weights/{link.name}",
        f"run-1/sampler_weights/../sampler_weights/{folder.name}",
        f"run-1/../run-1/sampler_weights/{folder.name}",
        f"./run-1/sampler_weights/{folder.name}",
        f"run-1/sampler_weights/{folder.name}/.",
        f"run-1/sampler_weights/{folder.name}\0",
        f"run-1/sampler_weights/{folder.name}\0/x",
        f"run-1/sampler_weights/{folder.name}\n",
        f"run-1/sampler_weights/{folder.name}%00",
        f"run-1%2fsampler_weights%2f{folder.name}",
        f"run-1\\sampler_weights\\{folder.name}",
        f"run-1/weights/{folder.name}",
        "run-1/sampler_weights/" + "n" * 400,
        "run-1/sampler_weights/\ud83d\ude00",
        "",
    ):
        reference = f"tinker://{path}"
        assert await status(api, reference) == 404, path
        assert await status(api, f"smol;{reference}") == 404, path
    assert await status(api, path_of(folder)) == 200


@pytest.mark.covers("TC-1")
async def test_many_at_once_answer_as_alone(api, folder):
    """More checkpoints than the engine keeps, through two workers."""
    models = ["smol"]
    for seed in range(3):
        one = save(folder.with_name(f"{folder.name}-{seed}"), 10 + seed)
        models.append(path_of(one))
    alone = [(await api.complete(model=model, **PROMPT))["choices"] for model in models]
    assert len({str(choices) for choices in alone}) == len(models)
    together = await asyncio.gather(*(api.complete(model=model, **PROMPT) for model in models * 3))
    assert [answer["choices"] for answer in together] == alone * 3


@pytest.mark.covers("TC-1")
async def test_what_is_saved_over_is_served_anew(api, folder):
    save(folder, 1)
    before = text(await api.complete(model=path_of(folder), **PROMPT))
    (folder / WEIGHTS).write_bytes(weights(2))
    after = text(await api.complete(model=path_of(folder), **PROMPT))
    assert after != before


@pytest.mark.covers("TC-1")
async def test_after_a_crash_of_the_engine_nothing_needs_to_be_done(serving: RunningServer, api, folder):
    save(folder, 1)
    before = await api.complete(model=path_of(folder), **PROMPT)
    (engine,) = named(serving.process.pid, "onward.engines.llama")
    os.kill(engine, signal.SIGKILL)
    async with asyncio.timeout(60):
        while named(serving.process.pid, "onward.engines.llama") in ([], [engine]):
            await asyncio.sleep(0.02)
    serving.wait_ready()
    after = await api.complete(model=path_of(folder), **PROMPT)
    assert after["choices"] == before["choices"]


@pytest.mark.covers("TC-1")
async def test_tokens_and_the_model_itself_can_be_asked_for_by_its_checkpoint(serving, folder):
    save(folder, 1)
    async with httpx.AsyncClient(base_url=serving.base_url, timeout=60) as client:
        api = Api(client, path_of(folder))
        ids = (await api.post("/tokenize", {"prompt": "hello"})).json()["tokens"]
        assert ids == (await api.post("/tokenize", {"model": "smol", "prompt": "hello"})).json()["tokens"]
        assert (await client.get(f"/v1/models/{path_of(folder)}")).status_code == 200
        assert (await client.get(f"/v1/models/{path_of(folder)}x")).status_code == 404
        listed = (await client.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["smol"]
