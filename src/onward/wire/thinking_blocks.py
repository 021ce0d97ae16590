"""`thinking_blocks`: signed and sealed reasoning in a chat's messages and deltas.

OpenAI's API has no place for a signature, or for reasoning that only its maker can read. Who sends an
assistant's `thinking_blocks` back as they came gives both to the model again, byte for byte. The blocks are
Anthropic's: ``{"type": "thinking", "thinking", "signature"}`` and ``{"type": "redacted_thinking", "data"}``.
"""

from collections.abc import Iterable
from typing import Any, cast

from onward.core.request import Thought


def thinking_blocks(thoughts: Iterable[Thought]) -> list[dict[str, str]]:
    """Thoughts as blocks."""
    return [
        {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
        if thought.sealed is None
        else {"type": "redacted_thinking", "data": thought.sealed}
        for thought in thoughts
    ]


def read_thinking_blocks(value: Any) -> list[Thought]:
    """The thoughts that blocks of a provider are; what is none is left out."""
    found: list[Thought] = []
    for item in cast("list[Any]", value) if type(value) is list else []:
        block = cast("dict[str, Any]", item) if type(item) is dict else {}
        text, signature, data = (block.get(name) for name in ("thinking", "signature", "data"))
        if block.get("type") == "redacted_thinking" and type(data) is str:
            found.append(Thought(sealed=data))
        elif block.get("type") == "thinking" and type(text) is str:
            found.append(Thought(text, signature if type(signature) is str else ""))
    return found
