"""The text side of a model without a server: for commands that render and parse."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from onward.core.clock import SystemClock
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.template import TemplateRenderer
from onward.rendering.tokenizer import Tokenizer, from_gguf
from onward.rendering.tokenizer_json import from_json
from onward.rendering.vocabulary import TokenizerError
from onward.sources import SourceError, fetch
from onward.wiring import config as settings
from onward.wiring.listen import ServeError
from onward.wiring.model_file import read_metadata
from onward.wiring.text_side import read_text_side

Chat = NativeRenderer | TemplateRenderer
CLOCK = SystemClock()
_NAMED = ("bos_token", "eos_token", "pad_token")


def family_renderer(name: str, tokenizer: Path) -> NativeRenderer:
    """The renderer of a family over the tokenizer in a file.

    The vocabulary may lack the family's control tokens: these are text then. Raises `ServeError`.
    """
    try:
        return NativeRenderer(registry.named(name), read_tokenizer(tokenizer), reason="named")
    except registry.UnknownFamilyError as error:
        raise ServeError(str(error)) from None


def model_renderer(model: settings.Model) -> Chat:
    """The renderer of a model of a config, as its server has it. Raises `ServeError`."""
    source = model.deployments[0].source
    try:
        path = fetch(source, progress=True)
    except SourceError as error:
        raise ServeError(str(error)) from None
    renderer = read_text_side(model, path).renderer
    if not isinstance(renderer, Chat):
        raise ServeError(f"{model.id} has no chat format")
    return renderer


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json` (or of the folder it is in) or a GGUF. Raises `ServeError`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if path.is_dir():
        path /= "tokenizer.json"
    try:
        if path.suffix == ".gguf":
            return from_gguf(read_metadata(path))
        return from_json(path.read_text(encoding="utf-8"), named=_named(path))
    except TokenizerError as error:
        raise ServeError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise ServeError(f"{path} cannot be read: {error}") from None


def _named(path: Path) -> dict[str, str]:
    """The tokens that the `tokenizer_config.json` beside it names, if there is one."""
    try:
        found: Any = json.loads(path.with_name("tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, Mapping):
        return {}
    values = cast("Mapping[str, Any]", found)
    named: dict[str, str] = {}
    for name in _NAMED:
        value = values.get(name)
        content = cast("Mapping[str, Any]", value).get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            named[name] = content
    return named
