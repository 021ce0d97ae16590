"""Images to embeddings: llama.cpp's multimodal library, one image at a time.

It is asked for a marker and an image alone. What it puts around the image, the model's own marks, is
cut off, as they are among the IDs that the caller gives; what it puts between the slices of an image
stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onward.core.image import Image, ImageSpan
from onward.engines.llama import multimodal
from onward.engines.llama.binding import Embeddings, EngineUnusableError, Model


class ImageRefusedError(Exception):
    """The library makes nothing of an image."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of an image as the model reads it: embeddings, or token IDs between two of them."""

    count: int
    """Tokens: places in the context."""
    advance: int
    """By how much positions go on behind it."""
    ids: list[int]
    """Empty for embeddings."""
    embeddings: Embeddings | None
    """None for token IDs, and where an image was only measured."""
    places: list[tuple[int, ...]]
    """Positions of the embeddings where these have several dimensions; else empty."""
    whole: bool
    """Each of its rows sees all others, so that they are computed in one call."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What an image takes."""

    span: ImageSpan
    advance: int
    largest: int
    """Rows that must be computed in one call."""


class Projector:
    """A projector file, on the CPU alone. `encode` may run in a thread beside everything else."""

    def __init__(self, model: Model, path: str, *, threads: int) -> None:
        self._c, self._ffi = model.library.c, model.library.ffi
        self._library = model.library
        self._width = int(self._c.llama_model_n_embd_inp(model.handle))
        if not Path(path).is_file():
            raise EngineUnusableError(f"there is no projector file {path}")
        params = self._c.mtmd_context_params_default()
        params.use_gpu = False
        params.print_timings = False
        params.n_threads = threads
        self._library.reason  # noqa: B018 - forget older errors
        self._handle = self._c.mtmd_init_from_file(path.encode(), model.handle, params)
        if self._handle == self._ffi.NULL:
            raise EngineUnusableError(f"llama.cpp cannot load the projector {path}: {self._library.reason}")
        if not self._c.mtmd_support_vision(self._handle):
            raise EngineUnusableError(f"the projector {path} is not for images")
        self.dimensions = 4 if self._c.mtmd_decode_use_mrope(self._handle) else 1
        """Numbers in the position of an embedding."""
        self.sees_ahead = bool(self._c.mtmd_decode_use_non_causal(self._handle, self._ffi.NULL))
        self._measured: dict[tuple[int, int], Measure] = {}

    def measure(self, width: int, height: int) -> Measure:
        """What an image of this size takes. Raises `ImageRefusedError`."""
        known = self._measured.get((width, height))
        if known is None:
            known = self._measure(width, height)
            if len(self._measured) >= 1024:
                self._measured.clear()
            self._measured[width, height] = known
        return known

    def encode(self, image: Image, start: int) -> list[Slice]:
        """What the model reads of an image at position `start`. Raises `ImageRefusedError`."""
        slices: list[Slice] = []
        with self._chunks(image.width, image.height, image.rgb) as chunks:
            for chunk in _between_marks(chunks, self._is_text):
                slices.append(self._slice(chunk, start))
                start += slices[-1].advance
        return slices

    def close(self) -> None:
        self._c.mtmd_free(self._handle)

    def _measure(self, width: int, height: int) -> Measure:
        with self._chunks(width, height, None) as chunks:
            slices = [self._slice(chunk, None) for chunk in _between_marks(chunks, self._is_text)]
            before = self._ids(chunks[0]) if self._is_text(chunks[0]) else []
            after = self._ids(chunks[-1]) if self._is_text(chunks[-1]) else []
        span = ImageSpan(sum(one.count for one in slices), before, after)
        largest = max(one.count if one.whole else 1 for one in slices)
        return Measure(span, sum(one.advance for one in slices), largest)

    @contextmanager
    def _chunks(self, width: int, height: int, rgb: bytes | None) -> Iterator[list[Any]]:
        """What the library makes of an image: texts and images, at least one of these."""
        c, ffi = self._c, self._ffi
        data: Any = ffi.NULL if rgb is None else ffi.from_buffer("unsigned char[]", rgb)
        bitmap = c.mtmd_bitmap_init(width, height, data)
        chunks = c.mtmd_input_chunks_init()
        try:
            marker = c.mtmd_default_marker()
            text: Any = ffi.new("struct mtmd_input_text *")
            text.text, text.text_len, text.parse_special = marker, len(ffi.string(marker)), True
            bitmaps = ffi.new("const mtmd_bitmap *[]", [bitmap])
            if c.mtmd_tokenize(self._handle, chunks, text, bitmaps, 1) != 0:
                raise ImageRefusedError(
                    f"the model takes no image of {width} x {height} pixels: {self._library.reason}"
                )
            made = [c.mtmd_input_chunks_get(chunks, n) for n in range(c.mtmd_input_chunks_size(chunks))]
            if all(self._is_text(chunk) for chunk in made):
                raise ImageRefusedError(f"the model makes nothing of an image of {width} x {height} pixels")
            yield made
        finally:
            c.mtmd_input_chunks_free(chunks)
            c.mtmd_bitmap_free(bitmap)

    def _slice(self, chunk: Any, start: int | None) -> Slice:
        """A slice at a position; without one it is only measured."""
        c = self._c
        count, advance = int(c.mtmd_input_chunk_get_n_tokens(chunk)), int(c.mtmd_input_chunk_get_n_pos(chunk))
        if self._is_text(chunk):
            return Slice(count, advance, self._ids(chunk), None, [], whole=False)
        whole = bool(c.mtmd_decode_use_non_causal(self._handle, chunk))
        if start is None:
            return Slice(count, advance, [], None, [], whole=whole)
        if c.mtmd_encode_chunk(self._handle, chunk) != 0:
            raise ImageRefusedError(f"the model's projector fails at an image: {self._library.reason}")
        output = c.mtmd_get_output_embd(self._handle)
        buffer: Any = self._ffi.buffer(output, 4 * count * self._width)
        embeddings = np.frombuffer(buffer, dtype=np.float32).reshape(count, self._width).copy()
        return Slice(count, advance, [], embeddings, self._places(chunk, count, start), whole=whole)

    def _places(self, chunk: Any, count: int, start: int) -> list[tuple[int, ...]]:
        if self.dimensions == 1:
            return []
        tokens = self._c.mtmd_input_chunk_get_tokens_image(chunk)
        found = (self._c.mtmd_image_tokens_get_decoder_pos(tokens, start, n) for n in range(count))
        return [(one.t, one.y, one.x, one.z) for one in found]

    def _ids(self, chunk: Any) -> list[int]:
        count: Any = self._ffi.new("size_t *")
        tokens = self._c.mtmd_input_chunk_get_tokens_text(chunk, count)
        ids: Any = self._ffi.unpack(tokens, count[0])
        return list(ids)

    def _is_text(self, chunk: Any) -> bool:
        return self._c.mtmd_input_chunk_get_type(chunk) == multimodal.TEXT


def _between_marks(chunks: list[Any], is_text: Any) -> list[Any]:
    start, end = int(is_text(chunks[0])), len(chunks) - int(is_text(chunks[-1]))
    return chunks[start:end]
