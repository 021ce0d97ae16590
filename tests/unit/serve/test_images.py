"""Images of a request: refused by name, counted, checked in their place, given to the engine as they are."""

import gc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.image import ImageSpan
from onward.core.remote_image import RemoteImageError
from onward.core.request import ChatRequest, CompletionRequest, ImagePart, Message, TextPart, TokensPart
from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.images import decode
from onward.routing.catalog import Model
from onward.serve import images
from onward.serve.job import prepare_chat, prepare_completion
from onward.serve.model import ServedModel
from tests.pictures import data_url, picture, png
from tests.unit.rendering.families import oracle

SPAN = ImageSpan(tokens=9, before=[11, 12], after=[13])
RED, BLUE = picture(color=(250, 0, 0)), picture(color=(0, 0, 250))


def url(data: bytes = RED, type_: str = "image/png") -> ImagePart:
    return ImagePart(data_url(data, type_))


def served(
    tokenizer, *, takes: bool = True, span: ImageSpan = SPAN, renderer=None, context: int = 200, web=None
) -> ServedModel:
    capabilities = frozenset({"completions", "chat", *(["images"] if takes else [])})
    model = Model(id="m", context_length=context, capabilities=capabilities)
    engine = ScriptedEngine([5], image=span if takes else None)
    return ServedModel(model, tokenizer, renderer, engine, remote_images=web)


class Web:
    """Has these images."""

    def __init__(self, **images: bytes) -> None:
        self.images = images
        self.asked: list[str] = []
        self.held = False

    @asynccontextmanager
    async def fetched(self, addresses: Sequence[str]) -> AsyncIterator[Mapping[str, bytes]]:
        self.asked += addresses
        self.held = True
        names = {address: address.removeprefix("http://") for address in addresses}
        for address, name in names.items():
            if name not in self.images:
                raise RemoteImageError("is not there", address)
        yield {address: self.images[name] for address, name in names.items()}
        self.held = False


def chunks(*parts: ImagePart | list[int], **more) -> CompletionRequest:
    sent = [TokensPart(part) if isinstance(part, list) else part for part in parts]
    return CompletionRequest(model="m", prompts=[], prompt_chunks=sent, **more)


async def refused(served: ServedModel, request: CompletionRequest | ChatRequest) -> Failure:
    prepare = prepare_chat if isinstance(request, ChatRequest) else prepare_completion
    with pytest.raises(Failure) as caught:
        await prepare(served, request, "r")
    assert served.engine.requests == []
    return caught.value


@pytest.mark.covers("TC-10")
@pytest.mark.fault("D25")
async def test_ids_around_images_are_given_on_as_they_are(tokenizer):
    request = chunks([7, 11], [12], url(RED), [13, 11, 12], url(BLUE), [13, 8], max_tokens=3)
    job = await prepare_completion(served(tokenizer), request, "r")
    (generation,) = job.prompts
    assert generation.prompt == [7, 11, 12, 13, 11, 12, 13, 8]
    assert [placed.position for placed in generation.images] == [3, 6]
    assert [placed.image for placed in generation.images] == [decode(RED), decode(BLUE)]
    assert job.usage.prompt_tokens == 8 + 2 * 9


@pytest.mark.covers("TC-10")
@pytest.mark.parametrize(
    ("parts", "param", "where"),
    [
        ([[7], url(), [13]], "prompt_chunks[1]", "in front of"),
        ([url(), [13]], "prompt_chunks[0]", "in front of"),
        ([[12], url(), [13]], "prompt_chunks[1]", "in front of"),
        ([[11, 12], url()], "prompt_chunks[1]", "behind"),
        ([[11, 12], url(), [8, 13]], "prompt_chunks[1]", "behind"),
        ([[11, 12], url(), url(), [13]], "prompt_chunks[1]", "behind"),
        ([[11, 12], url(), [13, 11], url(), [13]], "prompt_chunks[3]", "in front of"),
    ],
)
async def test_an_image_without_the_renderers_tokens(tokenizer, parts, param: str, where: str):
    """The message says which tokens, and where."""
    failure = await refused(served(tokenizer), chunks(*parts, max_tokens=3))
    assert (failure.kind, failure.param) == (FailureKind.INVALID_REQUEST, param)
    assert where in failure.message
    assert ("[11, 12]" if where == "in front of" else "[13]") in failure.message


@pytest.mark.covers("TC-10")
async def test_a_model_that_takes_none(tokenizer):
    failure = await refused(served(tokenizer, takes=False), chunks([5], url(png(20_000, 20_000, b"")), [6]))
    assert (failure.kind, failure.param) == (FailureKind.MEDIA_UNSUPPORTED, "prompt_chunks[1]")
    assert "takes none" in failure.message


@pytest.mark.fault("D21")
@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (url(b"hello"), FailureKind.MEDIA_UNSUPPORTED),
        (url(b"<svg/>"), FailureKind.MEDIA_UNSUPPORTED),
        (url(RED[: len(RED) // 2]), FailureKind.MEDIA_UNSUPPORTED),
        (url(png(0, 0)), FailureKind.MEDIA_UNSUPPORTED),
        (url(picture("JPEG")), FailureKind.MEDIA_UNSUPPORTED),
        (url(png(20_000, 20_000, b"")), FailureKind.MEDIA_TOO_LARGE),
    ],
    ids=["text", "svg", "half", "0 x 0", "wrong type", "bomb"],
)
async def test_bad_images_are_refused_by_name(tokenizer, part: ImagePart, kind: FailureKind):
    failure = await refused(served(tokenizer), chunks([11, 12], part, [13]))
    assert (failure.kind, failure.param) == (kind, "prompt_chunks[1].image_url")
    assert "prompt_chunks[1].image_url" in failure.message


@pytest.mark.fault("D21")
@pytest.mark.parametrize("address", ["http://169.254.169.254/latest/meta-data", "https://example.com/a.png"])
async def test_where_nothing_fetches_an_address_is_refused(tokenizer, address: str):
    failure = await refused(served(tokenizer), chunks([11, 12], ImagePart(address), [13]))
    assert failure.kind is FailureKind.MEDIA_FETCH_FAILED
    assert failure.param == "prompt_chunks[1].image_url.url"
    assert "none is fetched here" in failure.message


async def test_images_at_addresses_stand_where_they_were_sent(tokenizer):
    web = Web(red=RED, blue=BLUE)
    red, blue = ImagePart("http://red"), ImagePart("http://blue")
    parts = [[11, 12], red, [13, 11, 12], url(BLUE), [13, 11, 12], blue, [13, 11, 12], red, [13]]
    job = await prepare_completion(served(tokenizer, web=web), chunks(*parts, max_tokens=3), "r")
    assert web.asked == ["http://red", "http://blue", "http://red"]
    assert not web.held
    seen = [placed.image for placed in job.prompts[0].images]
    assert seen == [decode(data) for data in (RED, BLUE, BLUE, RED)]


async def test_nothing_is_fetched_where_nothing_is_an_address(tokenizer):
    web = Web()
    await prepare_completion(served(tokenizer, web=web), chunks([11, 12], url(), [13], max_tokens=3), "r")
    failure = await refused(served(tokenizer, web=web, takes=False), chunks([5], ImagePart("http://red")))
    assert failure.param == "prompt_chunks[1]"
    assert (web.asked, web.held) == ([], False)


@pytest.mark.parametrize(
    ("address", "says", "kind"),
    [
        ("http://nowhere", "' is not there.", FailureKind.MEDIA_FETCH_FAILED),
        ("http://text", "' is no PNG, JPEG, GIF or WebP image.", FailureKind.MEDIA_UNSUPPORTED),
        ("http://half", "' is no valid PNG image, or it is cut short.", FailureKind.MEDIA_UNSUPPORTED),
        ("http://bomb", "' is an image of 20000 x 20000 pixels", FailureKind.MEDIA_TOO_LARGE),
        ("http://svg", "' is no PNG", FailureKind.MEDIA_UNSUPPORTED),
    ],
)
async def test_images_at_addresses_are_refused_by_name(tokenizer, address: str, says: str, kind: FailureKind):
    web = Web(red=RED, text=b"hello", half=RED[: len(RED) // 2], bomb=png(20_000, 20_000, b""), svg=b"<svg/>")
    parts = [[11, 12], ImagePart("http://red"), [13, 11, 12], ImagePart(address), [13]]
    failure = await refused(served(tokenizer, web=web), chunks(*parts))
    assert (failure.kind, failure.param) == (kind, "prompt_chunks[3].image_url.url")
    assert f"'prompt_chunks[3].image_url.url{says}" in failure.message


@pytest.mark.covers("TC-4", "TC-10")
async def test_images_count_towards_the_context(tokenizer):
    long = await refused(served(tokenizer, context=12), chunks([11, 12], url(), [13]))
    assert long.kind is FailureKind.CONTEXT_LENGTH_EXCEEDED
    assert "12 tokens" in long.message
    much = await refused(served(tokenizer, context=20), chunks([11, 12], url(), [13], max_tokens=9))
    assert (much.kind, much.param) == (FailureKind.CONTEXT_LENGTH_EXCEEDED, "max_tokens")
    job = await prepare_completion(served(tokenizer, context=20), chunks([11, 12], url(), [13]), "r")
    assert job.prompts[0].max_tokens == 8


async def test_the_images_of_a_request_and_of_all_are_bounded(tokenizer, monkeypatch):
    one = len(decode(RED).rgb)
    monkeypatch.setattr(images, "MOST_BYTES", one + 1)
    two = chunks([11, 12], url(), [13, 11, 12], url(), [13], max_tokens=3)
    failure = await refused(served(tokenizer), two)
    assert (failure.kind, failure.param) == (FailureKind.MEDIA_TOO_LARGE, "prompt_chunks[3].image_url")
    gc.collect()
    monkeypatch.setattr(images, "MOST_HELD", images._held.count + one)
    lone = chunks([11, 12], url(), [13], max_tokens=3)
    job = await prepare_completion(served(tokenizer), lone, "r")
    full = await refused(served(tokenizer), lone)
    assert (full.kind, full.retry_after) == (FailureKind.ENGINE_FULL, 1)
    del job
    gc.collect()
    await prepare_completion(served(tokenizer), lone, "r")


# Chat


@pytest.fixture
def qwen(official):
    return oracle.tokenizer_of(official / "qwen3.5")[0]


def asked(*parts) -> ChatRequest:
    return ChatRequest(model="m", messages=[Message(role="user", content=list(parts))], max_tokens=3)


@pytest.mark.covers("O-2")
async def test_images_of_a_chat_stand_where_the_renderer_puts_them(qwen):
    renderer = NativeRenderer(registry.BY_NAME["qwen3.5"], qwen)
    model = served(qwen, renderer=renderer, span=ImageSpan(tokens=9))
    job = await prepare_chat(model, asked(TextPart(" See "), url(BLUE), TextPart(" and tell. ")), "r")
    (generation,) = job.prompts
    at = generation.images[0].position
    assert qwen.decode(generation.prompt[:at]) == "<|im_start|>user\nSee <|vision_start|>"
    assert qwen.decode(generation.prompt[at:]).startswith("<|vision_end|> and tell.<|im_end|>\n")
    assert generation.images[0].image == decode(BLUE)
    assert job.usage.prompt_tokens == len(generation.prompt) + 9


@pytest.mark.covers("TC-10")
async def test_the_renderers_marks_are_what_is_checked(qwen):
    """Where the model has a renderer, its marks count, not what the engine knows."""
    renderer = NativeRenderer(registry.BY_NAME["qwen3.5"], qwen)
    model = served(qwen, renderer=renderer, span=ImageSpan(tokens=9))
    start, end = qwen.control_id("<|vision_start|>"), qwen.control_id("<|vision_end|>")
    job = await prepare_completion(model, chunks([5, start], url(), [end], max_tokens=3), "r")
    assert job.prompts[0].prompt == [5, start, end]
    failure = await refused(model, chunks([5], url(), [end], max_tokens=3))
    assert "<|vision_start|>" in failure.message


@pytest.mark.fault("D21")
async def test_bad_images_of_a_chat(qwen, tokenizer, renderer):
    native = NativeRenderer(registry.BY_NAME["qwen3.5"], qwen)
    failure = await refused(served(qwen, renderer=native), asked(TextPart("a"), url(RED[:40])))
    assert failure.param == "messages[0].content[1].image_url"
    takes_none = await refused(served(qwen, renderer=native, takes=False), asked(TextPart("a"), url()))
    assert takes_none.param == "messages[0].content[1]"
    assert "takes none" in takes_none.message
    no_format = await refused(served(tokenizer, renderer=renderer), asked(TextPart("a"), url()))
    assert no_format.param == "messages[0].content[1]"
    far = asked(TextPart("a"), url(), ImagePart("http://nowhere"))
    gone = await refused(served(qwen, renderer=native, web=Web()), far)
    assert gone.param == "messages[0].content[2].image_url.url"
    system = ChatRequest(model="m", messages=[Message(role="system", content=[url()])])
    assert (await refused(served(qwen, renderer=native), system)).param == "messages[0].content[0]"
