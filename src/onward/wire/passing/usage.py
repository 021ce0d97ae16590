"""What a provider says a request used, and what is assumed where it says nothing (K-9)."""

from typing import Any, Final, TypeGuard, cast

from onward.core.usage import Usage

_MOST: Final = 2**31 - 1
"""Tokens of one request. Who reports more is wrong, and would empty an account."""
_ASCII_TWELFTHS: Final = 3
"""Of a token, that a byte in ASCII is: four of them make one."""
_OTHER_TWELFTHS: Final = 4
"""Likewise of any other byte."""
_MORE_OUTSIDE_ASCII: Final = _OTHER_TWELFTHS - _ASCII_TWELFTHS
_ASCII: Final = bytes(range(128))


def read_usage(value: Any) -> Usage | None:
    """The `usage` object of an OpenAI-shaped answer.

    None where the counts are missing or cannot be: negative, fractions, strings, absurdly large.
    Cached tokens that are more than the prompt has are taken as not reported, so as none.
    """
    if type(value) is not dict:
        return None
    fields = cast("dict[str, Any]", value)
    prompt, completion = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int:
        return None
    if not 0 <= prompt <= _MOST or not 0 <= completion <= _MOST:
        return None
    details = fields.get("prompt_tokens_details")
    cached = cast("dict[str, Any]", details).get("cached_tokens") if type(details) is dict else None
    if cached is None:
        cached = fields.get("prompt_cache_hit_tokens")  # DeepSeek's own name for it
    return Usage(prompt, completion, cached if cached and is_count(cached) and cached <= prompt else 0)


def likely_tokens(size: int, other: int) -> int:
    """Tokens of a text of `size` bytes, `other` of them outside ASCII: a guess, rounded up."""
    return -(-(size * _ASCII_TWELFTHS + other * _MORE_OUTSIDE_ASCII) // 12)


def outside_ascii(data: bytes) -> int:
    """How many bytes are outside ASCII."""
    return 0 if data.isascii() else len(data.translate(None, _ASCII))


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value can be a number of tokens."""
    return type(value) is int and 0 <= value <= _MOST
