"""G26: images by address, at a real server that may fetch them: from this machine's 127.0.0.1 alone.

That network is allowed by its config, as a store of images inside is; 127.0.0.2 is not, and stands for
everything else inside.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.api import Api
from tests.conftest import RunningServer, start_server
from tests.image_host import ImageHost, answer, redirect
from tests.pictures import part, picture
from tests.unit.engines.tiny_vision import END, START, write_model, write_projector

CONFIG = """
[dialects]
openai = "/v1"
tinker = "/tinker/api/v1"

[images]
fetch = true
fetch_timeout_s = 60
max_redirects = 1
ports = [80, {port}]
private_networks = ["127.0.0.1/32"]

[[models]]
id = "sees"
repo = "Qwen/Qwen3.5-4B"
context_length = 512

[[models.deployments]]
name = "sees"
engine = "llama"
source = "{folder}/model.gguf"
mmproj = "{folder}/mmproj.gguf"
slots = 1
"""
pytestmark = pytest.mark.complaint("G26")
RED = picture(color=(250, 0, 0), size=(64, 48))


@pytest.fixture(scope="module")
async def host() -> AsyncIterator[ImageHost]:
    """Where images may be fetched from."""
    answers = {
        "/red.png": answer(RED),
        "/page": answer(b"<html></html>", "200 OK", "Content-Type: image/png"),
    }
    async with ImageHost(answers).listening() as host:
        yield host


@pytest.fixture(scope="module")
async def inside(host: ImageHost) -> AsyncIterator[ImageHost]:
    """What must never be asked."""
    async with ImageHost({"/red.png": answer(RED)}).listening("127.0.0.2", host.port) as inside:
        yield inside
        assert inside.connections == 0


@pytest.fixture(scope="module")
async def fetching(
    tmp_path_factory: pytest.TempPathFactory, host: ImageHost, inside: ImageHost
) -> AsyncIterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("fetching")
    write_model(folder / "model.gguf")
    write_projector(folder / "mmproj.gguf")
    running = start_server(folder, config=CONFIG.format(folder=folder, port=host.port))
    try:
        await asyncio.to_thread(running.wait_ready)
        yield running
        assert await asyncio.to_thread(running.stop) == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture
async def api(fetching: RunningServer) -> AsyncIterator[Api]:
    async with httpx.AsyncClient(base_url=f"{fetching.base_url}/v1/", timeout=60) as client:
        yield Api(client, "sees")


def image(url: str) -> dict:
    return {"type": "image_url", "image_url": {"url": url}}


def asked(*parts: dict) -> dict:
    content = [{"type": "text", "text": "See "}, *parts]
    options = {"max_tokens": 2, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    return {"messages": [{"role": "user", "content": content}], **options}


def around(image: dict) -> dict:
    parts = [{"type": "tokens", "tokens": [20, START]}, image, {"type": "tokens", "tokens": [END, 22]}]
    return {"prompt_chunks": parts, "max_tokens": 2, "temperature": 0, "logprobs": 3}


def refusal(response: httpx.Response, param: str) -> str:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    return error["message"]


async def test_an_image_by_address_is_the_image(api: Api, host: ImageHost):
    sent, fetched = [await api.chat(**asked(one)) for one in (part(RED), image(host.url("/red.png")))]
    assert sent["choices"] == fetched["choices"]
    assert sent["usage"]["prompt_tokens"] == fetched["usage"]["prompt_tokens"]
    bare = {"type": "image_url", "image_url": host.url("/red.png")}
    assert (await api.chat(**asked(bare)))["choices"] == sent["choices"]
    pieces = [await api.complete(**around(one)) for one in (part(RED), image(host.url("/red.png")))]
    assert pieces[0]["choices"] == pieces[1]["choices"]


@pytest.mark.fault("D21")
@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://2852039166/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://[::ffff:169.254.169.254]/",
        "http://10.0.0.1/",
        "http://2130706434:{port}/red.png",
        "http://127.0.0.2:{port}/red.png",
        "http://[::ffff:127.0.0.2]:{port}/red.png",
        "http://127.0.0.1:{port}/leads-inside",
        "http://127.0.0.1:{port}/leads-to-metadata",
        "http://127.0.0.1:{port}/leads-on",
        "http://127.0.0.1:22/",
        "http://user@127.0.0.1:{port}/red.png",
        "http://127.0.0.1:{port}/missing",
        "http://127.0.0.1:{port}/page",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_g26_what_must_not_be_fetched_is_not(
    api: Api, host: ImageHost, inside: ImageHost, address: str, stream: bool
):
    host.answers |= {
        "/leads-inside": redirect(inside.url("/red.png", "127.0.0.2")),
        "/leads-to-metadata": redirect("http://169.254.169.254/latest/meta-data"),
        "/leads-on": redirect("/leads-on-and-on"),
        "/leads-on-and-on": redirect("/red.png"),
    }
    host.heads.clear()
    bad = image(address.format(port=host.port))
    chat = await api.post("chat/completions", asked(part(RED), bad) | {"stream": stream})
    refusal(chat, "messages[0].content[2].image_url.url")
    plain = await api.post("completions", around(bad) | {"stream": stream})
    refusal(plain, "prompt_chunks[1].image_url.url")
    assert "/red.png" not in host.paths
    assert inside.connections == 0


async def test_g26_nobody_learns_what_lies_inside(api: Api, inside: ImageHost):
    """Something listens on the first address, nothing on the others, the last of which may be fetched from."""
    addresses = [
        inside.url("/red.png", "127.0.0.2"),
        inside.url("/red.png", "127.0.0.3"),
        "http://127.0.0.1:80/",
    ]
    param = "messages[0].content[1].image_url.url"
    answers = [await api.post("chat/completions", asked(image(address))) for address in addresses]
    assert len({refusal(answer, param) for answer in answers}) == 1


async def test_where_an_api_knows_no_addresses_none_is_fetched(fetching: RunningServer, host: ImageHost):
    host.heads.clear()
    async with httpx.AsyncClient(base_url=f"{fetching.base_url}/tinker/api/v1/", timeout=60) as client:
        tinker = Api(client, "sees")
        response = await tinker.post("completions", around(image(host.url("/red.png"))))
        refusal(response, "prompt_chunks[1].image_url.url")
        chat = await tinker.post("chat/completions", asked(image(host.url("/red.png"))))
        refusal(chat, "messages[0].content[1].image_url.url")
    assert host.heads == []


async def test_a_caller_who_leaves_ends_the_fetch(api: Api, host: ImageHost):
    """Long before it would have been given up, for its host goes on all the time."""
    left = asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.01)
        finally:
            left.set()

    host.answers["/endless"] = endless
    host.heads.clear()
    calling = asyncio.create_task(api.post("chat/completions", asked(image(host.url("/endless")))))
    await host.until(lambda: host.paths == ["/endless"])
    calling.cancel()
    async with asyncio.timeout(20):
        await left.wait()
    with pytest.raises(asyncio.CancelledError):
        await calling
