"""Answers about tokens that generate nothing (O-4, 1.12)."""

import msgspec


def tokenize_body(tokens: list[int], max_model_len: int) -> bytes:
    """The token IDs of a text, how many there are and how many would fit."""
    return msgspec.json.encode({"tokens": tokens, "count": len(tokens), "max_model_len": max_model_len})


def detokenize_body(prompt: str) -> bytes:
    """The text of token IDs."""
    return msgspec.json.encode({"prompt": prompt})


def render_body(prompt_token_ids: list[int], prompt: str, stop_token_ids: list[int]) -> bytes:
    """A rendered conversation: its token IDs, their text, and what ends the reply."""
    return msgspec.json.encode(
        {"prompt_token_ids": prompt_token_ids, "prompt": prompt, "stop_token_ids": stop_token_ids}
    )


def tokenizer_info_body(
    *,
    bos_token: str | None,
    eos_token: str | None,
    pad_token: str | None,
    chat_template: str | None,
    vocab_size: int,
) -> bytes:
    """What a harness asks about a tokenizer it does not have."""
    return msgspec.json.encode(
        {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "pad_token": pad_token,
            "chat_template": chat_template,
            "vocab_size": vocab_size,
        }
    )
