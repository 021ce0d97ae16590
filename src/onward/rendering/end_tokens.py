"""Which tokens end a generation.

A GGUF names one end token, at times two; models use more. The rest is known by spelling: the
same spellings that llama.cpp goes by (`src/llama-vocab.cpp`, the list of end-of-generation
tokens), with its two exceptions, and two of ours: ``</s>`` counts only where it was added to the
vocabulary (in Qwen's it is a piece of HTML like any other), and not among other tags of HTML
(Gemma 3 has struck-out text so), and the marks between the files of a
repository (``<reponame>``, ``<|file_sep|>``) end nothing: a model of code writes them as it goes on.
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

_PADDING: Final = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
"""The first spelling that exists counts."""


def end_tokens(
    ids: Mapping[str, int],
    named: Collection[int],
    padding: int | None,
    *,
    added: Container[int],
) -> frozenset[int]:
    """The IDs of all tokens that end a generation.

    `ids` maps every token's spelling to its ID; `named` are those the file itself names (end of
    sequence, turn, message); `padding` the token that pads a middle that is filled in, or None; `added`
    holds the tokens that are no ordinary ones.
    """
    html = ids.get("</strong>", -1) in added
    ends = {
        ids[text] for text in _ENDS if text in ids and (text != "</s>" or (ids[text] in added and not html))
    }
    ends |= set(named)
    if padding is None:
        padding = next((ids[text] for text in _PADDING if text in ids), None)
    if padding is not None:
        ends.add(padding)
    calls = {"<|call|>", "<|calls|>"} & ids.keys()
    if calls and ("<|return|>" in ids or "<|flush|>" in ids):
        # Here <|end|> closes a message of many (gpt-oss, Solar Open), not the reply.
        ends.discard(ids.get("<|end|>", -1))
    if "<|tool_response>" in ids:
        # Gemma 4 has an HTML tag of that spelling.
        ends.discard(ids.get("</s>", -1))
    return frozenset(ends)
