"""The text side of a model: its tokenizer and its chat format, out of its file."""

import logging
import os
from pathlib import Path

import msgspec

from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.renderer import Renderer
from onward.rendering.template import ChatTemplateError, TemplateRenderer
from onward.rendering.tokenizer import Tokenizer, from_gguf
from onward.rendering.vocabulary import TokenizerError
from onward.wiring import config as settings
from onward.wiring.listen import ServeError
from onward.wiring.model_file import context_length, read_metadata

logger = logging.getLogger("onward")


class TextSide(msgspec.Struct, frozen=True):
    """Everything about a model that is not its weights."""

    tokenizer: Tokenizer
    renderer: Renderer | None
    chat_template: str | None
    context_length: int


def read_text_side(model: settings.Model, path: Path) -> TextSide:
    """The text side of a model of the config, out of its GGUF. Raises `ServeError`."""
    # One text at a time is encoded, in a thread of ours: a pool of the library's own only takes memory.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    metadata = read_metadata(path)
    try:
        tokenizer = from_gguf(metadata)
    except TokenizerError as error:
        raise ServeError(f"{path} cannot be served: {error}") from None
    length = context_length(model, metadata)
    template: str | None = metadata.get("tokenizer.chat_template") or None
    return TextSide(tokenizer, _renderer(model, tokenizer, template, length), template, length)


def _renderer(
    model: settings.Model, tokenizer: Tokenizer, template: str | None, length: int
) -> Renderer | None:
    """The family that the config, the repo ID or the chat template say; else the template itself."""
    try:
        choice = registry.choose(tokenizer, name=model.renderer, repo=model.repo or None, template=template)
    except registry.UnknownFamilyError as error:
        raise ServeError(f"{model.id}: renderer: {error}") from None
    if choice.family is not None:
        return NativeRenderer(choice.family, tokenizer, reason=choice.reason, longest_prompt=length)
    if template is None:
        return None
    try:
        return TemplateRenderer(template, tokenizer, longest_prompt=length, reason=choice.reason)
    except ChatTemplateError as error:
        logger.warning("%s is served without chat: %s", model.id, error)
        return None
