"""Images of prompts on their way into the context.

Encoding an image takes long and needs nothing of the context, so a thread of its own does that; the
scheduler goes on with others meanwhile. Its embeddings then go into the context a chunk at a time.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from onward.core.failure import Failure, FailureKind
from onward.core.generate import GenerateRequest
from onward.core.image import Image, ImageSpan
from onward.engines.llama.binding import Context
from onward.engines.llama.projector import ImageRefusedError, Measure, Projector, Slice

CHUNK = 64
"""Embeddings in a call, as of tokens (`slots.CHUNK`)."""

ROWS_WITH_IMAGES = 1024
"""Rows of a call where all embeddings of an image must be in one."""


@dataclass(eq=False, slots=True)
class Picture:
    """An image of a prompt."""

    position: int
    """In the prompt's IDs, as of `core.image.PlacedImage`."""
    image: Image | None
    """None once it is being encoded."""
    measure: Measure
    start: int
    """Position of its first embedding in the context."""
    encoded: "Future[list[Slice]] | None" = None
    slices: "deque[Slice] | None" = None
    done: int = 0
    """Rows of the first of `slices` that are in the context."""
    at: int = field(default=0)
    """Position of the first row of that slice."""

    def cancel(self) -> None:
        """Do not encode it, if that has not begun yet."""
        if self.encoded is not None:
            self.encoded.cancel()


class Pictures:
    """Measures, encodes and decodes the images of an engine; without a projector it refuses all."""

    def __init__(self, context: Context, projector: Projector | None) -> None:
        self._context = context
        self._projector = projector
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="encoder")

    def measure(self, sizes: list[tuple[int, int]]) -> list[ImageSpan]:
        """What images of these sizes take. Raises `Failure`."""
        return [self._measure(width, height).span for width, height in sizes]

    def of(self, request: GenerateRequest) -> deque[Picture]:
        """The images of a request. Raises `Failure` where they cannot be computed."""
        pictures: deque[Picture] = deque()
        last, shift = 0, 0
        for placed in request.images:
            image, position = placed.image, placed.position
            if not last <= position <= len(request.prompt):
                raise _invalid(f"an image is at {position}, out of order or behind the prompt")
            if image.width < 1 or image.height < 1 or len(image.rgb) != 3 * image.width * image.height:
                raise _invalid(f"an image of {image.width} x {image.height} has {len(image.rgb)} bytes")
            measure = self._measure(image.width, image.height)
            pictures.append(Picture(position, image, measure, position + shift))
            last, shift = position, shift + measure.advance
        if pictures and request.prompt_alternatives is not None:
            raise _invalid("the log probabilities of a prompt with images are not computed")
        return pictures

    def ready(self, picture: Picture) -> bool:
        """Whether an image is encoded. Its encoding begins with the first call."""
        if picture.slices is not None:
            return True
        if picture.encoded is None:
            assert self._projector is not None  # noqa: S101 - `of` made the picture
            assert picture.image is not None  # noqa: S101
            picture.encoded = self._encoder.submit(self._projector.encode, picture.image, picture.start)
            picture.image = None
        return picture.encoded.done()

    def advance(self, sequence: int, picture: Picture, *, output: bool) -> bool:
        """Put the next rows of an encoded image into the context. Whether it was the last of them.

        `output`: its last row gets logits. Raises `Failure` for an image that cannot be encoded,
        `DecodeError`.
        """
        if picture.slices is None:
            assert picture.encoded is not None  # noqa: S101 - it is ready
            try:
                picture.slices = deque(picture.encoded.result())
            except ImageRefusedError as error:
                raise _invalid(str(error)) from error
            picture.encoded, picture.at = None, picture.start
        piece = picture.slices[0]
        end = piece.count if piece.whole else min(piece.count, picture.done + CHUNK)
        final = end == piece.count and len(picture.slices) == 1
        self._decode(sequence, piece, picture, end, outputs="last" if output and final else "none")
        picture.done = end
        if end == piece.count:
            picture.slices.popleft()
            picture.at += piece.advance
            picture.done = 0
        return final

    def _decode(self, sequence: int, piece: Slice, picture: Picture, end: int, *, outputs: str) -> None:
        start = picture.done
        if piece.embeddings is None:
            self._context.decode_chunk(sequence, piece.ids[start:end], picture.at + start, outputs=outputs)
            return
        places = piece.places[start:end] or [(picture.at + row,) for row in range(start, end)]
        self._context.decode_embeddings(
            sequence, piece.embeddings[start:end], places, outputs=outputs, causal=not piece.whole
        )

    def _measure(self, width: int, height: int) -> Measure:
        if self._projector is None:
            raise _invalid("this engine takes no images: it has no projector")
        try:
            measure = self._projector.measure(width, height)
        except ImageRefusedError as error:
            raise _invalid(str(error)) from error
        if measure.largest > ROWS_WITH_IMAGES:
            raise _invalid(
                f"an image of {width} x {height} pixels has {measure.largest} rows that need each other; "
                f"this engine computes {ROWS_WITH_IMAGES} at once"
            )
        return measure


def _invalid(message: str) -> Failure:
    return Failure(FailureKind.INVALID_REQUEST, message, param="images")
