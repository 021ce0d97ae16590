"""Images of a request: fetched if they must and may be, decoded off the event loop, measured by the
engine, checked in their place.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from onward.core.failure import Failure, FailureKind, invalid, media_too_large, media_unsupported
from onward.core.image import Image, ImageSpan, PlacedImage
from onward.core.remote_image import RemoteImageError
from onward.core.request import ImagePart
from onward.rendering.image_header import ImageError, ImageTooLargeError
from onward.rendering.images import decode, decode_url
from onward.serve.model import ServedModel

MOST_BYTES: Final = 96 * 1024 * 1024
"""Of all decoded images of one request: two of the largest."""
MOST_HELD: Final = 512 * 1024 * 1024
"""Of the decoded images of all requests in this process. What comes on top is told to come again."""

_decoders: Final = ThreadPoolExecutor(2, thread_name_prefix="image")


@dataclass(slots=True)
class _Held:
    count: int = 0

    def take(self, image: Image) -> None:
        """Count an image in until nothing holds it any more."""
        size = len(image.rgb)
        if self.count + size > MOST_HELD:
            message = "Too many images are being worked on; try again later."
            raise Failure(FailureKind.ENGINE_FULL, message, retry_after=1)
        self.count += size
        weakref.finalize(image, self._release, size)

    def _release(self, size: int) -> None:
        self.count -= size


_held: Final = _Held()


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image as it stands in a request."""

    position: int
    """In the prompt's token IDs, as of `PlacedImage`."""
    part: ImagePart
    param: str
    """Path of the part."""

    @property
    def remote(self) -> bool:
        """Whether it is an address. Where none may be sent, the dialect has refused it."""
        return self.part.url[:5].lower() != "data:"

    @property
    def where(self) -> str:
        """Path of what is wrong when the image is."""
        return f"{self.param}.image_url{'.url' if self.remote else ''}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, ready for the engine."""

    ids: list[int]
    images: list[PlacedImage] = field(default_factory=list)
    image_tokens: int = 0

    @property
    def length(self) -> int:
        """Tokens, those of images included."""
        return len(self.ids) + self.image_tokens


async def place_images(
    served: ServedModel, ids: list[int], sent: Sequence[SentImage], *, check_marks: bool
) -> Prompt:
    """A prompt with its images. `check_marks`: the IDs around them are the caller's (TC-10).

    Raises `Failure` that names the part.
    """
    for one in sent:
        require_images(served, one.param)
    images: list[Image] = []
    async with _fetched(served, sent) as fetched:
        for one in sent:
            images.append(await _decoded(one, fetched, sum(len(image.rgb) for image in images)))
    spans = await served.engine.measure_images([(image.width, image.height) for image in images])
    if check_marks:
        places = [0, *(one.position for one in sent), len(ids)]
        for number, (one, span) in enumerate(zip(sent, spans, strict=True)):
            before, after = ids[places[number] : one.position], ids[one.position : places[number + 2]]
            _check_marks(served, before, after, one, span)
    placed = [PlacedImage(one.position, image) for one, image in zip(sent, images, strict=True)]
    return Prompt(ids, placed, sum(span.tokens for span in spans))


def require_images(served: ServedModel, param: str) -> None:
    """Refuse an image of a model that takes none."""
    if "images" not in served.model.capabilities:
        raise media_unsupported(
            param, f"'{param}' is an image, and '{served.model.id}' takes none: leave it out."
        )


@asynccontextmanager
async def _fetched(served: ServedModel, sent: Sequence[SentImage]) -> AsyncGenerator[Mapping[str, bytes]]:
    """What lies at the addresses among the images; nothing, where all of them came along."""
    remote = [one for one in sent if one.remote]
    if not remote:
        yield {}
        return
    if served.remote_images is None:
        param = remote[0].where
        raise Failure(
            FailureKind.MEDIA_FETCH_FAILED,
            f"'{param}' is an address, and none is fetched here: send the image as a base64 data URL.",
            param=param,
        )
    try:
        async with served.remote_images.fetched([one.part.url for one in remote]) as fetched:
            yield fetched
    except RemoteImageError as error:
        param = next((one.where for one in remote if one.part.url == error.address), remote[0].where)
        kind = FailureKind.MEDIA_TOO_LARGE if error.too_large else FailureKind.MEDIA_FETCH_FAILED
        raise Failure(kind, f"'{param}' {error}.", param=param) from None


async def _decoded(one: SentImage, fetched: Mapping[str, bytes], before: int) -> Image:
    param, loop = one.where, asyncio.get_running_loop()
    try:
        if one.remote:
            image = await loop.run_in_executor(_decoders, decode, fetched[one.part.url])
        else:
            image = await loop.run_in_executor(_decoders, decode_url, one.part.url)
    except ImageTooLargeError as error:
        raise media_too_large(param, f"'{param}' {error}.") from None
    except ImageError as error:
        raise media_unsupported(param, f"'{param}' {error}.") from None
    if before + len(image.rgb) > MOST_BYTES:
        raise media_too_large(
            param,
            f"The images up to '{param}' have more than {MOST_BYTES // 3} pixels together: scale them down.",
        )
    _held.take(image)
    return image


def _check_marks(
    served: ServedModel, ids_before: list[int], ids_after: list[int], one: SentImage, span: ImageSpan
) -> None:
    """The tokens that the model's renderer puts around an image must be there, in the caller's IDs."""
    marks = served.renderer.images if served.renderer is not None else None
    before, after = span.before, span.after
    if marks is not None:
        before = served.tokenizer.encode(marks.before, control=True)
        after = served.tokenizer.encode(marks.after, control=True)
    if ids_before[max(0, len(ids_before) - len(before)) :] != before:
        raise invalid(one.param, _lacks(served, one.param, "in front of", before))
    if ids_after[: len(after)] != after:
        raise invalid(one.param, _lacks(served, one.param, "behind", after))


def _lacks(served: ServedModel, param: str, where: str, ids: list[int]) -> str:
    text = served.tokenizer.decode(ids)
    return (
        f"'{param}' is an image without the tokens that '{served.model.id}' has {where} images: put "
        f"{text!r}, token IDs {ids}, directly {where} it."
    )
