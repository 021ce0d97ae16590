"""The text side of a model: its tokenizer and its chat format, out of its file."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from onward.rendering import gguf
from onward.rendering.renderer import Renderer
from onward.rendering.template import TemplateRenderer
from onward.rendering.tokenizer import Tokenizer, from_gguf
from onward.wiring.listen import ServeError


class TextSide(msgspec.Struct, frozen=True):
    """Everything about a model that is not its weights."""

    tokenizer: Tokenizer
    renderer: Renderer | None
    chat_template: str | None
    trained_context: int | None
    """Tokens that it was trained to hold."""


def read_text_side(path: Path) -> TextSide:
    """The text side of a GGUF. Raises `ServeError`."""
    try:
        metadata = _metadata(path)
        tokenizer = from_gguf(metadata)
    except (OSError, ValueError) as error:
        raise ServeError(f"{path} cannot be served: {error}") from None
    template = metadata.get("tokenizer.chat_template") or None
    renderer = TemplateRenderer(template, tokenizer) if template else None
    return TextSide(tokenizer, renderer, template, trained_context(metadata))


def trained_context(metadata: Mapping[str, Any]) -> int | None:
    """How many tokens the model of this metadata was trained to hold."""
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return length if isinstance(length, int) else None


def _metadata(path: Path) -> Mapping[str, Any]:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        memoryview(content) as view,
    ):
        return gguf.read_metadata(view)
