"""Events as providers send them."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def frame(choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 17,
        "model": "theirs",
        "choices": choices,
        **more,
    }


def event(payload: Any, separators: tuple[str, str] = (",", ":")) -> bytes:
    return b"data: " + json.dumps(payload, separators=separators).encode() + b"\n\n"


def piece(text: str, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """A piece of a chat."""
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return event(frame([choice], **more))


def words(text: str, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """A piece of a completion."""
    return event(frame([{"index": index, "text": text, "finish_reason": finish}], **more))


def usage(counts: Any = USAGE, **more: Any) -> bytes:
    return event(frame([], usage=counts, **more))


def payloads(stream: bytes) -> list[Any]:
    """The JSON of a stream's events, `[DONE]` as a string."""
    found: list[Any] = []
    for part in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in part.split(b"\n") if line.startswith(b"data:")]
        if lines:
            data = b"\n".join(lines)
            found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found
