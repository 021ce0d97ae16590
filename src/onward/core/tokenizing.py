"""Requests about tokens that generate nothing."""

import msgspec

from onward.core.request import ChatRequest


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A text, or a conversation to render, whose token IDs are asked for."""

    model: str = ""
    """Empty: the first model of the server."""
    prompt: str | None = None
    """None: `chat` is to be rendered."""
    add_special_tokens: bool = True
    """Whether the text gets the BOS token of models that have one."""
    chat: ChatRequest | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Token IDs whose text is asked for."""

    model: str = ""
    """Empty: the first model of the server."""
    tokens: list[int]
