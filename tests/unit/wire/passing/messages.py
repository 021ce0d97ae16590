"""Events of Anthropic's Messages as providers send them."""

import json
from typing import Any


def event(payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), json.dumps(payload).encode())


def start(usage: Any = None, model: str = "theirs") -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": model}
    return event(
        {
            "type": "message_start",
            "message": message
            | {"stop_reason": None, "usage": usage or {"input_tokens": 5, "output_tokens": 1}},
        }
    )


def opens(index: int = 0, **block: Any) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def says(index: int = 0, **delta: Any) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": delta})


def text(text: str, index: int = 0) -> bytes:
    return says(index, type="text_delta", text=text)


def closes(index: int = 0) -> bytes:
    return event({"type": "content_block_stop", "index": index})


def ends(reason: str | None = "end_turn", usage: Any = None, sequence: str | None = None) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": sequence}
    return event({"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 7}})


PING = event({"type": "ping"})
STOP = event({"type": "message_stop"})
TEXT = {"type": "text", "text": ""}
