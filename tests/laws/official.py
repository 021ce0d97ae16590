"""Every family over an official tokenizer; where a vocabulary lacks its control tokens they are added."""

import json
from functools import lru_cache
from pathlib import Path

from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.tokenizer import Tokenizer
from onward.rendering.tokenizer_json import from_json
from tests.unit.rendering.families.oracle import tokenizer_of

FOLDERS = {
    "qwen3.": "qwen3.5",
    "qwen3": "qwen3",
    "smollm": "smollm3",
    "gpt-oss": "gpt-oss",
    "llama3": "llama3.1",
    "minimax": "glm4.5",
    "mi": "mistral-tekken",
    "gemma-3": "gemma3",
    "gemma-4": "gemma4",
    "deepseek-v3": "deepseek-v3.1",
    "deepseek-v4": "deepseek-v4",
    "kimi-k2": "kimi-k2.5",
    "glm-4": "glm4.5",
    "glm-5": "glm5",
    "inkling": "inkling",
}
"""By the beginning of a family's name, the first that fits, whose tokenizer it is read with."""


@lru_cache(maxsize=4)
def official_renderer(name: str, tokenizers: Path) -> NativeRenderer:
    """A family's renderer over a tokenizer of the folder `tokenizers`."""
    family = registry.BY_NAME[name]
    own = next(found for beginning, found in FOLDERS.items() if name.startswith(beginning))
    folder = tokenizers / own
    tokenizer, _ = tokenizer_of(folder)
    missing = tuple(dict.fromkeys(registry.lacks(family, tokenizer)))
    return NativeRenderer(family, _with_added(folder, missing) if missing else tokenizer)


@lru_cache(maxsize=1)
def _with_added(folder: Path, marks: tuple[str, ...]) -> Tokenizer:
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = source["added_tokens"]
    first = max(token["id"] for token in added) + 1
    added += [added[0] | {"id": first + place, "content": mark} for place, mark in enumerate(marks)]
    return from_json(json.dumps(source), named={})
