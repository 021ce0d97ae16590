"""Every family over an official tokenizer; where a vocabulary lacks its control tokens they are added."""

import json
from functools import cache
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
_END, _BOS = "eos_token", "bos_token"
NAMED: dict[str, tuple[tuple[str, str], ...]] = {
    "qwen3": ((_END, "<|im_end|>"),),
    "qwen3.5": ((_END, "<|im_end|>"),),
    "smollm3": ((_END, "<|im_end|>"),),
    "gpt-oss": ((_END, "<|return|>"),),
    "llama3.1": ((_END, "<|eot_id|>"),),
    "mistral-tekken": ((_END, "</s>"), (_BOS, "<s>")),
    "gemma3": ((_END, "<end_of_turn>"), (_BOS, "<bos>")),
    "gemma4": ((_END, "<turn|>"), (_BOS, "<bos>")),
    "deepseek-v3.1": ((_BOS, "<｜begin▁of▁sentence｜>"), (_END, "<｜end▁of▁sentence｜>")),
    "deepseek-v4": ((_BOS, "<｜begin▁of▁sentence｜>"), (_END, "<｜end▁of▁sentence｜>")),
    "kimi-k2.5": ((_END, "<|im_end|>"),),
    "glm4.5": ((_END, "<|endoftext|>"),),
    "glm5": ((_END, "<|endoftext|>"),),
}
"""As the tests of the families say it, in their order, so that no tokenizer is read twice."""


@cache
def official_renderer(name: str, tokenizers: Path) -> NativeRenderer:
    """A family's renderer over a tokenizer of the folder `tokenizers`."""
    family = registry.BY_NAME[name]
    own = next(found for beginning, found in FOLDERS.items() if name.startswith(beginning))
    folder = tokenizers / own
    tokenizer, _ = tokenizer_of(folder, *NAMED.get(own, ()))
    missing = tuple(dict.fromkeys(registry.lacks(family, tokenizer)))
    return NativeRenderer(family, _with_added(folder, missing) if missing else tokenizer)


@cache
def _with_added(folder: Path, marks: tuple[str, ...]) -> Tokenizer:
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = source["added_tokens"]
    first = max(token["id"] for token in added) + 1
    added += [added[0] | {"id": first + place, "content": mark} for place, mark in enumerate(marks)]
    return from_json(json.dumps(source), named={})
