"""Tokenizers of model families, beside the ones that their makers publish."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from onward.rendering.tokenizer import Tokenizer, from_gguf
from onward.rendering.tokenizer_json import from_json
from onward.rendering.vocabulary import TokenizerError
from tests.unit.rendering.families.oracle import official_tokenizer, tokenizer_of
from tests.unit.rendering.texts import texts

FAMILIES = {
    "deepseek-v3.1": "deepseek-v3",
    "glm4.5": "glm4",
    "gpt-oss": "gpt-4o",
    "kimi-k2.5": "kimi-k2",
    "llama3.1": "llama-bpe",
    "mistral-tekken": "tekken",
    "qwen3": "qwen2",
    "qwen3.5": "qwen35",
}
"""Family to the name that GGUF files give its pre-tokenizer."""


def source_of(official: Path, family: str) -> str:
    return (official / family / "tokenizer.json").read_text(encoding="utf-8")


def as_metadata(source: str, pre: str) -> dict[str, Any]:
    """What a GGUF of this tokenizer holds."""
    whole = json.loads(source)
    ids = dict(whole["model"]["vocab"]) | {token["content"]: token["id"] for token in whole["added_tokens"]}
    added = {token["id"]: 3 if token["special"] else 4 for token in whole["added_tokens"]}
    names = {token: name for name, token in ids.items()}
    count = max(names) + 1
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in whole["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [names.get(token, "") for token in range(count)],
        "tokenizer.ggml.token_type": [added.get(token, 1 if token in names else 5) for token in range(count)],
        "tokenizer.ggml.merges": merges,
    }


def differing(ours: Tokenizer, theirs: tokenizers.Tokenizer) -> list[str]:
    marks = list(ours.marks.ids)
    return [
        text
        for text in texts(800, seed=3, marks=[*marks[:20], *marks[-20:]])
        if ours.encode(text, control=True) != theirs.encode(text, add_special_tokens=False).ids
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_name_of_a_pre_tokenizer_means_what_the_model_does(official: Path, family: str):
    ours = from_gguf(as_metadata(source_of(official, family), FAMILIES[family]))
    assert not differing(ours, official_tokenizer(official / family))


@pytest.mark.parametrize(
    "family", [*FAMILIES, "deepseek-v4", "gemma3", "gemma4", "glm5", "inkling", "smollm3"]
)
def test_a_tokenizer_json_is_read_as_its_makers_read_it(official: Path, family: str):
    ours, theirs = tokenizer_of(official / family)
    assert not differing(ours, theirs)
    if "qwen" not in family:  # these compose characters, so that a text may come back changed
        for text in texts(200, seed=4):
            assert ours.decode(ours.encode(text, control=False)) == text


def test_markup_that_is_not_special_is_no_text_either(official: Path):
    ours, _ = tokenizer_of(official / "qwen3")
    think = ours.control_id("<think>")
    assert think is not None
    assert ours.encode("<think>", control=True) == [think]
    assert think not in ours.encode("<think>", control=False)
    assert ours.eos_id in ours.end_token_ids


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("[]", "no tokenizer.json"),
        ("{", "no tokenizer.json"),
        ('{"model": {"type": "Unigram", "vocab": {}}}', "Unigram"),
        (
            '{"model": {"type": "BPE", "vocab": {}, "merges": []}, "decoder": {"type": "WordPiece"}}',
            "decoder",
        ),
    ],
)
def test_what_is_no_supported_tokenizer_json_says_why(source: str, says: str):
    with pytest.raises(TokenizerError, match=says):
        from_json(source)
