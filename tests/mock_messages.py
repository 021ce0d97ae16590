"""What the mock provider says to `/messages`: Anthropic's bodies, events and errors.

Blocks, in this order: thinking (``[[reasoning=2]]``, signed), redacted thinking (``[[redacted]]``), then text, or
two calls (``[[tools]]``). Tokens are counted as in the OpenAI shape; those that were cached, read or written,
are not in `input_tokens`.
"""

import json
from typing import Any

from tests.mock_answers import BRAND, PAGE, SECRET, Asked, piece

__all__ = ["PAGE", "REDACTED", "SIGNATURE", "events", "refusal", "whole"]
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h+/=="
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlx=="
ARGUMENTS = ('{"a"', ": 1}")
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def refusal(asked: Asked, status: int) -> bytes:
    """The body of a status of 400 or more."""
    message = f"The key {SECRET} may not do this to model {asked.body.get('model')}."
    kind = _ERRORS.get(status, "api_error")
    if asked.does.rejects:
        message = "Output blocked by content filtering policy"
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def whole(asked: Asked) -> bytes:
    """The body of an unstreamed answer."""
    if asked.does.broken_json:
        return b'{"type":"message","content":[{"type":"te'
    message = _message(asked) | {"content": _blocks(asked), **_stop(asked)}
    if asked.does.usage != "never":
        message["usage"] = _input(asked) | {"output_tokens": asked.usage["completion_tokens"]}
    return json.dumps(message).encode()


def events(asked: Asked) -> list[bytes]:
    """A stream, each event whole."""
    does = asked.does
    start = _message(asked) | {"content": [], "stop_reason": None, "stop_sequence": None}
    if does.usage != "never":
        start["usage"] = _input(asked) | {"output_tokens": 1}
    made: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(_blocks(asked)):
        deltas, opened = _pieces(asked, block)
        made.append({"type": "content_block_start", "index": index, "content_block": opened})
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": index})
    last: dict[str, Any] = {"type": "message_delta", "delta": _stop(asked)}
    if does.usage != "never":
        last["usage"] = {"output_tokens": asked.usage["completion_tokens"]}
    made.append(last)
    if does.pings:
        made = [one for event in made for one in (event, {"type": "ping"})]
    if not does.no_done:
        made.append({"type": "message_stop"})
    if does.branded:
        made = [{"provider": BRAND, **event, "x": [{"by": BRAND}, "]"]} for event in made]
    texts = [json.dumps(event) for event in made]
    names = [event["type"] for event in made]
    if does.broken_json:
        texts[-2] = texts[-2][:-9]
    if does.error_event is not None:
        texts = [*texts[: does.error_event], refusal(asked, 529).decode()]
        names = [*names[: does.error_event], "error"]
    return [_framed(asked, name, text) for name, text in zip(names, texts, strict=True)]


def _framed(asked: Asked, name: str, text: str) -> bytes:
    does = asked.does
    end = "\r\n" if does.crlf else "\n"
    lines = [f": {BRAND if does.branded else 'keep going'}", ""] if does.comments else []
    lines += [f"event: {name}", f"data:{text}" if does.no_space else f"data: {text}"]
    return (end.join(lines) + end + end).encode()


def _message(asked: Asked) -> dict[str, Any]:
    brand = {"provider": BRAND, "system_fingerprint": f"fp_{BRAND}"} if asked.does.branded else {}
    return {"id": "msg_mock", "type": "message", "role": "assistant", "model": asked.model, **brand}


def _stop(asked: Asked) -> dict[str, Any]:
    does = asked.does
    reason = "max_tokens" if asked.tokens == asked.body.get("max_tokens") else "end_turn"
    if does.tools:
        reason = "tool_use"
    return {"stop_reason": does.stop_reason or reason, "stop_sequence": does.stop_sequence}


def _input(asked: Asked) -> dict[str, int]:
    does = asked.does
    return {
        "input_tokens": asked.usage["prompt_tokens"] - does.cached - does.cache_creation,
        "cache_creation_input_tokens": does.cache_creation,
        "cache_read_input_tokens": does.cached,
    }


def _blocks(asked: Asked) -> list[dict[str, Any]]:
    does = asked.does
    blocks: list[dict[str, Any]] = []
    if does.reasoning:
        thought = "".join(piece(k) for k in range(does.reasoning))
        blocks.append({"type": "thinking", "thinking": thought, "signature": SIGNATURE})
    if does.redacted:
        blocks.append({"type": "redacted_thinking", "data": REDACTED})
    if does.tools:
        return blocks + [
            {"type": "tool_use", "id": f"toolu_{k}", "name": f"f{k}", "input": {"a": 1}} for k in range(2)
        ]
    text = "".join(piece(k) for k in range(does.reasoning, asked.tokens))
    return [*blocks, {"type": "text", "text": "x" * does.huge + text}]


def _pieces(asked: Asked, block: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The deltas of a block, and how it begins."""
    does = asked.does
    match block["type"]:
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece(k)} for k in range(does.reasoning)]
            deltas.append({"type": "signature_delta", "signature": SIGNATURE})
            return deltas, {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *ARGUMENTS)]
            return deltas, block | {"input": {}}
        case "text":
            texts = [piece(k) for k in range(does.reasoning, asked.tokens)]
            texts[0] = "x" * does.huge + texts[0]
            return [{"type": "text_delta", "text": text} for text in texts], {"type": "text", "text": ""}
        case _:
            return [], block
