"""Small tokenizers for tests: every byte, a few merges, control tokens, markup, broken characters."""

from typing import Any

from onward.rendering.byte_level import BYTE_LETTERS
from onward.rendering.tokenizer import Tokenizer, from_gguf

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"]
MARKUP = ["<think>", "</think>", "<tool_call>", "[INST]"]
MERGED = [
    "he",
    "ll",
    "hell",
    "hello",
    " w",
    "or",
    " wor",
    "th",
    "in",
    "thin",
    "think",
    "\n\n",
    "  ",
    "ab",
    "abc",
]
PIECES = [
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xe2\x82",
    b"a\xf0\x9f\x98",
    b"\x80b",
    b"\xff\xfe",
    b"\xed\xa0",
    "é".encode(),
]

BOS, START, END, EOT = range(4)


def letters(data: bytes) -> str:
    return "".join(BYTE_LETTERS[byte] for byte in data)


def byte_level_metadata(**more: Any) -> dict[str, Any]:
    """A byte-level vocabulary of about 300 tokens, as a GGUF would hold it."""
    tokens = CONTROL + MARKUP
    kinds = [3] * len(CONTROL) + [4] * len(MARKUP)
    single = [letters(bytes([byte])) for byte in range(256)]
    merged = [letters(text.encode()) for text in MERGED] + [letters(piece) for piece in PIECES]
    merges = []
    known = set(single)
    for word in merged:
        pairs = [(word[:cut], word[cut:]) for cut in range(1, len(word))]
        merges += [f"{left} {right}" for left, right in pairs if left in known and right in known][:1]
        known.add(word)
    tokens = [*tokens, *single, *(word for word in merged if word not in single)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds + [1] * (len(tokens) - len(kinds)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.add_bos_token": False,
        **more,
    }


def byte_level(**more: Any) -> Tokenizer:
    return from_gguf(byte_level_metadata(**more))


def sentencepiece_metadata(**more: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: `<unk>`, BOS, EOS, lone bytes, letters and a few words."""
    words = [
        "▁",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "▁h",
        "el",
        "lo",
        "▁hel",
        "▁hello",
        "▁w",
        "or",
        "▁wor",
        "ld",
        "▁world",
    ]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(place) for place in range(len(words))],
        **more,
    }
