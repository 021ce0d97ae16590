"""D21 and D25: images, with a tiny random vision model behind a real server.

The model's answers mean nothing; that they differ, and when, does.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api import Api
from tests.conftest import RunningServer, start_server
from tests.pictures import animation, data_url, part, picture, png
from tests.unit.engines.tiny_vision import END, START, write_model, write_projector

CONFIG = """
[dialects]
openai = "/v1"
tinker = "/tinker/api/v1"

[[models]]
id = "sees"
repo = "Qwen/Qwen3.5-4B"
context_length = 512

[[models.deployments]]
name = "sees"
engine = "llama"
source = "{folder}/model.gguf"
mmproj = "{folder}/mmproj.gguf"
slots = 2

[[models]]
id = "blind"
context_length = 512

[[models.deployments]]
name = "blind"
engine = "llama"
source = "{folder}/model.gguf"
slots = 1

[[models]]
id = "at-once"
context_length = 512

[[models.deployments]]
name = "at-once"
engine = "llama"
source = "{folder}/model.gguf"
mmproj = "{folder}/gemma.gguf"
slots = 2
"""
RED, BLUE = picture(color=(250, 0, 0), size=(64, 48)), picture(color=(0, 0, 250), size=(64, 48))
TOKENS = 12
"""Of an image of 64 x 48."""
BOMB = png(20_000, 20_000, b"")


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("seeing")
    write_model(folder / "model.gguf")
    write_projector(folder / "mmproj.gguf")
    write_projector(folder / "gemma.gguf", form="gemma")
    running = start_server(folder, config=CONFIG.format(folder=folder))
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture(scope="module")
async def client(seeing: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=seeing.base_url, timeout=60) as client:
        yield client


@pytest.fixture(params=["/tinker/api/v1/", "/v1/"])
def mounted(request: pytest.FixtureRequest, client: httpx.AsyncClient) -> Api:
    """A caller of either dialect."""

    class Mounted(Api):
        async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
            return await super().post(request.param + path, body, **options)

    return Mounted(client, "sees")


@pytest.fixture
def api(mounted: Api) -> Api:
    """Whose server must answer after each test: the one with the images."""

    async def alive() -> None:
        assert (await mounted.complete(prompt=[20, 21], max_tokens=2))["choices"][0]["finish_reason"]

    mounted.alive = alive
    return mounted


def tokens(*ids: int) -> dict:
    return {"type": "tokens", "tokens": list(ids)}


def chunks(*parts: dict, **more: Any) -> dict:
    return {"prompt_chunks": list(parts), "max_tokens": 4, "temperature": 0, "logprobs": 3, **more}


def around(image: dict) -> dict:
    return chunks(tokens(20, 21, START), image, tokens(END, 22))


def asked(*parts: dict, **more: Any) -> dict:
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 4, "temperature": 0, **more}


def text(value: str) -> dict:
    return {"type": "text", "text": value}


def assert_refused(response: httpx.Response, param: str) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(param), error
    assert param in error["message"]


def firsts(answer: dict) -> dict:
    """The log probabilities of the first token's alternatives: what the prompt alone makes."""
    return answer["choices"][0]["logprobs"]["top_logprobs"][0]


BAD = {
    "text": part(b"hello, world"),
    "svg": part(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/png"),
    "svg by its name": part(b"<svg/>", "image/svg+xml"),
    "half a png": part(RED[: len(RED) // 2]),
    "half a jpeg": part(picture("JPEG")[:200], "image/jpeg"),
    "0 x 0": part(png(0, 0)),
    "wrong type": part(picture("JPEG"), "image/png"),
    "bomb": part(BOMB),
    "no base64": {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%%"}},
    "not base64": {"type": "image_url", "image_url": {"url": "data:image/png,abc"}},
    "file": {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    "empty": {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    "no url": {"type": "image_url", "image_url": {}},
}


@pytest.mark.fault("D21")
@pytest.mark.covers("TC-10")
@pytest.mark.parametrize("image", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_images_are_400_that_name_the_part(api: Api, image: dict, stream: bool):
    body = around(image) | {"stream": stream}
    assert_refused(await api.post("completions", body), "prompt_chunks[1].image_url")
    chat = asked(text("a"), image, stream=stream)
    assert_refused(await api.post("chat/completions", chat), "messages[0].content[1].image_url")


@pytest.mark.fault("D21")
@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://2852039166/",
        "http://127.0.0.1:{port}/a.png",
        "http://localhost:{port}/a.png",
        "http://[::1]:{port}/a.png",
        "https://example.com/a.png",
    ],
)
async def test_no_address_is_fetched(api: Api, address: str):
    """Not in `tinker`, ever; not in `openai`, where nothing is configured."""
    called = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        image = {"type": "image_url", "image_url": {"url": address.format(port=port)}}
        assert_refused(await api.post("completions", around(image)), "prompt_chunks[1].image_url")
        assert_refused(
            await api.post("chat/completions", asked(text("a"), image)), "messages[0].content[1].image_url"
        )
    assert not called.is_set()


@pytest.mark.fault("D21")
async def test_many_bombs_take_neither_time_nor_memory(api: Api, seeing: RunningServer):
    started = time.monotonic()
    answers = await asyncio.gather(*(api.post("completions", around(part(BOMB))) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {400}
    assert time.monotonic() - started < 20  # one that goes off takes longer, or the memory
    status = Path(f"/proc/{seeing.process.pid}/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        assert int(peak.split()[1]) < 1_000_000


@pytest.mark.fault("D21")
@pytest.mark.covers("TC-10")
async def test_a_model_that_takes_none_says_which_part_is_one(api: Api):
    for path, body, param in (
        ("completions", around(part(RED)), "prompt_chunks[1]"),
        ("completions", around(part(BOMB)), "prompt_chunks[1]"),
    ):
        assert_refused(await api.post(path, body | {"model": "blind"}), param)


@pytest.mark.fault("D21")
@pytest.mark.covers("TC-10")
@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([part(RED)], "prompt_chunks[0]"),
        ([tokens(20), part(RED), tokens(END)], "prompt_chunks[1]"),
        ([tokens(20, START), part(RED), tokens(22)], "prompt_chunks[1]"),
        ([tokens(START), part(RED), part(BLUE), tokens(END)], "prompt_chunks[1]"),
        ([tokens(START), part(RED), tokens(END, START), part(BLUE)], "prompt_chunks[3]"),
    ],
)
async def test_token_parts_without_the_renderers_tokens(api: Api, parts: list[dict], param: str):
    assert_refused(await api.post("completions", chunks(*parts)), param)


@pytest.mark.covers("TC-10")
@pytest.mark.parametrize(
    ("kind", "type_"), [("PNG", "png"), ("JPEG", "jpeg"), ("GIF", "gif"), ("WEBP", "webp")]
)
async def test_every_kind_is_seen(api: Api, kind: str, type_: str):
    answer = await api.complete(**around(part(picture(kind, size=(64, 48)), f"image/{type_}")))
    assert answer["usage"]["prompt_tokens"] == 5 + TOKENS
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}


@pytest.mark.covers("TC-10")
async def test_of_an_animation_the_first_frame_is_seen(api: Api):
    moving = await api.complete(**around(part(animation((255, 0, 0), (0, 0, 255)), "image/gif")))
    others = [
        await api.complete(**around(part(picture("GIF", color, size=(1, 1)), "image/gif")))
        for color in ((255, 0, 0), (0, 0, 255))
    ]
    still = [await api.complete(**around(part(animation(color, color), "image/gif"))) for color in COLORS]
    assert firsts(moving) == firsts(still[0]) != firsts(still[1])
    assert firsts(others[0]) != firsts(others[1])


COLORS = ((255, 0, 0), (0, 0, 255))


@pytest.mark.covers("TC-10")
async def test_another_image_is_another_prompt_and_never_cached(api: Api):
    """Also where all that comes before and behind is the same, and longer than a chunk."""
    before, after = tokens(*range(30, 200), START), tokens(END, *range(30, 130))
    answers = [
        await api.complete(**chunks(before, part(image), after)) for image in (RED, BLUE, RED, BLUE, RED)
    ]
    first, second, *rest = (firsts(answer) for answer in answers)
    assert first != second
    assert rest == [first, second, first]
    for answer in answers:
        assert answer["usage"]["prompt_tokens"] == 170 + 1 + TOKENS + 1 + 100
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] <= 170


@pytest.mark.covers("TC-10")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_answer_has_no_prompt_token_ids(api: Api, stream: bool):
    response = await api.post("completions", around(part(RED)) | {"return_token_ids": True, "stream": stream})
    assert response.status_code == 200, response.text
    assert "token_ids" in response.text
    assert '"prompt_token_ids":[' not in response.text.replace(" ", "")


async def test_a_projector_whose_rows_see_each_other(api: Api):
    """Its marks are no control tokens of this vocabulary: texts, which are asked for just the same."""
    refusal = await api.post("completions", around(part(RED)) | {"model": "at-once"})
    assert_refused(refusal, "prompt_chunks[1]")
    assert "<start_of_image>" in refusal.json()["error"]["message"]
    before, after = await _ids(api, "<start_of_image>"), await _ids(api, "<end_of_image>")
    red, blue, again = [
        await api.complete(**chunks(tokens(*before), part(image), tokens(*after)), model="at-once")
        for image in (RED, BLUE, RED)
    ]
    assert red["usage"]["prompt_tokens"] == len(before) + 16 + len(after)
    assert firsts(red) == firsts(again) != firsts(blue)


@pytest.mark.fault("D25")
@pytest.mark.covers("TC-10")
async def test_ids_around_an_image_are_used_exactly(api: Api):
    """A word as five letters is not the word as one token; usage counts what was sent, once."""
    spellings = [await _ids(api, "hello"), [(await _ids(api, letter))[0] for letter in "hello"]]
    assert [len(spelling) for spelling in spellings] == [1, 5]
    answers = [
        await api.complete(**chunks(tokens(*ids, START), part(RED), tokens(END, *ids))) for ids in spellings
    ]
    assert [answer["usage"]["prompt_tokens"] for answer in answers] == [4 + TOKENS, 12 + TOKENS]
    assert firsts(answers[0]) != firsts(answers[1])
    again = await api.complete(
        **chunks(tokens(*spellings[1]), tokens(START), part(RED), tokens(END), tokens(*spellings[1]))
    )
    assert firsts(again) == firsts(answers[1])


async def _ids(api: Api, value: str) -> list[int]:
    response = await api.client.post(
        "/v1/tokenize", json={"model": "sees", "prompt": value, "add_special_tokens": False}
    )
    return response.json()["tokens"]


@pytest.mark.covers("TC-4", "TC-10")
async def test_images_count_towards_the_context(api: Api):
    def filled(count: int) -> dict:
        return chunks(tokens(*[30] * count, START), part(RED), tokens(END), max_tokens=2)

    response = await api.post("completions", filled(500))
    assert response.status_code == 400
    assert "514 tokens" in response.json()["error"]["message"]
    fits = await api.complete(**filled(496))
    assert fits["usage"]["prompt_tokens"] == 510
    assert fits["usage"]["completion_tokens"] <= 2


@pytest.mark.covers("O-2", "TH-1")
async def test_images_in_a_chat(api: Api):
    """The renderer puts the same tokens around the image as a caller of completions must."""
    red, blue, again = [
        await api.chat(**asked(text("See "), part(image), text(" now."), logprobs=True, top_logprobs=3))
        for image in (RED, BLUE, RED)
    ]
    entries = [
        answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"] for answer in (red, blue, again)
    ]
    assert entries[0] == entries[2] != entries[1]
    without = await api.chat(**asked(text("See "), text(" now.")))
    assert red["usage"]["prompt_tokens"] >= without["usage"]["prompt_tokens"] + 2 + TOKENS
    bare = asked({"type": "image_url", "image_url": data_url(RED)})
    assert (await api.chat(**bare))["usage"]["prompt_tokens"] > TOKENS


async def test_the_list_of_models_says_who_takes_images(client: httpx.AsyncClient, api: Api):
    models = {one["id"]: one for one in (await client.get("/v1/models")).json()["data"]}
    assert "images" in models["sees"]["capabilities"]
    assert "images" not in models["blind"]["capabilities"]
