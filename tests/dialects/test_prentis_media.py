"""Images under `prentis` (P-10): counted in `usage`, whoever runs the model."""

from collections.abc import Iterator
from typing import Any

import pytest

from onward.core.image import ImageSpan
from onward.engines.scripted import ScriptedEngine
from tests.dialects import prentis_page as page
from tests.http.gateway import MODEL, Gateway, gateway
from tests.http.messages import anthropic
from tests.mock_provider import MockProvider
from tests.pictures import data_url, picture

PATH = "/prentis/v1/chat/completions"
MOUNTS = {"openai": "/v1", "prentis": "/prentis/v1"}
PAYS = {"balance": "10.00"}
IMAGE = {"type": "image_url", "image_url": {"url": data_url(picture(), "image/png")}}
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "what is"}, IMAGE, IMAGE]},
    {"role": "assistant", "content": "red"},
    {"role": "user", "content": [IMAGE]},
]
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


async def usage_of(running: Gateway, *, stream: bool, path: str = PATH, **body: Any) -> dict[str, Any]:
    answer = await running.post(path, {"messages": MESSAGES, "max_tokens": 5, "stream": stream, **body})
    assert answer.status_code == 200, answer.text
    if not stream:
        return answer.json()["usage"]
    return page.events(answer, MODEL, chat=True)[-1]["usage"]


@pytest.mark.covers("P-10")
@streamed
@pytest.mark.parametrize("who", ["engine", "provider", "anthropic"])
async def test_images_are_counted(tmp_path, mock, seeing, who: str, stream: bool):
    engine = ScriptedEngine([5] * 20, image=ImageSpan(tokens=9))
    source = {"engine": engine, "provider": mock, "anthropic": anthropic(mock)}[who]
    declared = {"capabilities": ["completions", "chat", "images"]}
    async with gateway(
        tmp_path, source, text_side=seeing, model=declared, tenant=PAYS, mounts=MOUNTS
    ) as running:
        usage = await usage_of(running, stream=stream)
        page.USAGE.validate(usage)
        assert usage["media"] == {"input_images": 3}
        without = await usage_of(running, stream=stream, messages=[{"role": "user", "content": "hi"}])
        assert "media" not in without
        # other APIs tell of no media
        assert "media" not in await usage_of(running, stream=False, path="/v1/chat/completions")
        entries = await running.ended(3)
        assert [entry.usage.input_images for entry in entries] == [0, 0, 0]
        assert entries[0].usage.prompt_tokens == usage["prompt_tokens"]


@pytest.mark.covers("P-9")
@streamed
@pytest.mark.parametrize("who", ["engine", "provider", "anthropic"])
async def test_an_image_of_too_many_bytes_is_refused(tmp_path, mock, seeing, who: str, stream: bool):
    engine = ScriptedEngine([5], image=ImageSpan(tokens=9))
    source = {"engine": engine, "provider": mock, "anthropic": anthropic(mock)}[who]
    large = {"type": "image_url", "image_url": {"url": data_url(bytes(21 << 20), "image/png")}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "what is"}, large]}]
    async with gateway(
        tmp_path,
        source,
        text_side=seeing,
        model={"capabilities": ["completions", "chat", "images"]},
        tenant=PAYS,
        mounts=MOUNTS,
        server={"max_body_bytes": 64 << 20},
    ) as running:
        answer = await running.post(PATH, {"messages": messages, "stream": stream})
        error = page.error(answer)
        assert (answer.status_code, error["code"]) == (413, "MEDIA_TOO_LARGE")
        assert error["param"] == "messages[0].content[1].image_url.url"
        assert mock.requests == []
        assert await running.entries() == []
