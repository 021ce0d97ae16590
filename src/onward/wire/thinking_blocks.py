"""`thinking_blocks`: signed and sealed reasoning in a chat's messages and deltas.

OpenAI's API has no place for a signature, or for reasoning that only its maker can read. Who sends an
assistant's `thinking_blocks` back as they came gives both to the model again, byte for byte. The blocks are
Anthropic's: ``{"type": "thinking", "thinking", "signature"}`` and ``{"type": "redacted_thinking", "data"}``.

Chats say nothing of the order of reasoning, text and calls. So a block with some of them in front says how
much: ``"after": {"content": <code points>, "tool_calls": <calls>}``.
"""

from collections.abc import Iterable
from typing import Any, cast

from onward.core.request import Thought


def thinking_blocks(thoughts: Iterable[Thought]) -> list[dict[str, Any]]:
    """Thoughts as blocks of Anthropic's API."""
    return [
        {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
        if thought.sealed is None
        else {"type": "redacted_thinking", "data": thought.sealed}
        for thought in thoughts
    ]


def placed_blocks(thoughts: list[Thought]) -> list[dict[str, Any]]:
    """Thoughts as blocks of a chat, which say where they stand."""
    blocks = thinking_blocks(thoughts)
    for block, thought in zip(blocks, thoughts, strict=True):
        if thought.text_before or thought.calls_before:
            block["after"] = {"content": thought.text_before, "tool_calls": thought.calls_before}
    return blocks


def indexed_blocks(thoughts: list[Thought], first: int) -> list[dict[str, Any]]:
    """The same of a delta, numbered from `first`: OpenAI's SDK joins such lists by `index` alone."""
    return [{"index": first + place, **block} for place, block in enumerate(placed_blocks(thoughts))]


def read_thinking_blocks(value: Any) -> list[Thought]:
    """The thoughts that blocks of a provider are; what is none is left out."""
    found: list[Thought] = []
    for item in cast("list[Any]", value) if type(value) is list else []:
        block = cast("dict[str, Any]", item) if type(item) is dict else {}
        text, signature, data = (block.get(name) for name in ("thinking", "signature", "data"))
        after = block.get("after")
        place = cast("dict[str, Any]", after) if type(after) is dict else {}
        before, calls = _count(place.get("content")), _count(place.get("tool_calls"))
        if block.get("type") == "redacted_thinking" and type(data) is str:
            found.append(Thought(sealed=data, text_before=before, calls_before=calls))
        elif block.get("type") == "thinking" and type(text) is str:
            signed = signature if type(signature) is str else ""
            found.append(Thought(text, signed, text_before=before, calls_before=calls))
    return found


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
