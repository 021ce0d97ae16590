"""Log probabilities in the two shapes that OpenAI has: arrays for completions, objects for chat.

The generated token is always among its alternatives, with the very same float (1.5).
"""

from typing import Any, Final

from onward.core.delta import TokenEntry, TokenSpelling

LOWEST: Final = -9999.0
"""Stands for minus infinity, which JSON does not have."""


def completion_logprobs(entries: list[TokenEntry]) -> dict[str, Any]:
    """Four arrays of equal length, possibly empty."""
    return {
        "tokens": [entry.token.text for entry in entries],
        "token_logprobs": [_bounded(entry.token.logprob) for entry in entries],
        "top_logprobs": [_by_text(entry) for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }


def chat_logprobs(entries: list[TokenEntry], alternatives: int, keys: tuple[str, ...]) -> dict[str, Any]:
    """One object for each token; `alternatives` is the number that was asked for.

    `keys` are the dialect's: `content` and any that are null.
    """
    return {**dict.fromkeys(keys), "content": [_item(entry, alternatives) for entry in entries]}


def _by_text(entry: TokenEntry) -> dict[str, float | None] | None:
    """Alternatives by their spelling. Of several with one spelling the likeliest stays, but the
    token itself always does.
    """
    if entry.top is None:
        return None
    found: dict[str, float | None] = {}
    for other in entry.top:
        if other.text not in found:
            found[other.text] = _bounded(other.logprob)
    found[entry.token.text] = _bounded(entry.token.logprob)
    return found


def _item(entry: TokenEntry, alternatives: int) -> dict[str, Any]:
    top = entry.top or []
    others = top[:alternatives]
    if alternatives and all(other.id != entry.token.id for other in others):
        others = [*others, entry.token]
    item = _spelled(entry.token)
    item["top_logprobs"] = [
        _spelled(entry.token if other.id == entry.token.id else other) for other in others
    ]
    return item


def _spelled(token: TokenSpelling) -> dict[str, Any]:
    own = token.bytes
    return {
        "token": token.text,
        "logprob": _bounded(token.logprob),
        "bytes": None if own is None else list(own),
    }


def _bounded(logprob: float | None) -> float | None:
    if logprob is None or LOWEST <= logprob <= 0.0:
        return logprob
    return 0.0 if logprob > 0.0 else LOWEST
