"""Which tokens end a generation.

A GGUF names one end token, at times two; models use more. The rest is known by spelling: the
same spellings that llama.cpp goes by (`src/llama-vocab.cpp`, the list of end-of-generation
tokens), with its two exceptions, and one of ours: ``</s>`` counts only where it was added to the
vocabulary. In Qwen's it is a piece of HTML like any other.
"""

from collections.abc import Collection, Container, Mapping
from typing import Final

_ENDS: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|ifm|im_end|>",
)

_FILL_ENDS: Final = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>", "<|plamo:file_separator|>"),
)
"""Padding, repository and file marks of code models; the first spelling that exists counts."""


def end_tokens(
    ids: Mapping[str, int],
    named: Collection[int],
    fill: tuple[int | None, int | None, int | None],
    *,
    added: Container[int],
) -> frozenset[int]:
    """The IDs of all tokens that end a generation.

    `ids` maps every token's spelling to its ID; `named` are those the file itself names (end of
    sequence, turn, message); `fill` the padding, repository and file marks it names, or None;
    `added` holds the tokens that are no ordinary ones.
    """
    ends = {ids[text] for text in _ENDS if text in ids and (text != "</s>" or ids[text] in added)}
    ends |= set(named)
    for known, spellings in zip(fill, _FILL_ENDS, strict=True):
        spelled = next((ids[text] for text in spellings if text in ids), None)
        found = known if known is not None else spelled
        if found is not None:
            ends.add(found)
    calls = {"<|call|>", "<|calls|>"} & ids.keys()
    if calls and ("<|return|>" in ids or "<|flush|>" in ids):
        # Here <|end|> closes a message of many (gpt-oss, Solar Open), not the reply.
        ends.discard(ids.get("<|end|>", -1))
    if "<|tool_response>" in ids:
        # Gemma 4 has an HTML tag of that spelling.
        ends.discard(ids.get("</s>", -1))
    return frozenset(ends)
