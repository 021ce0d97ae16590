"""Messages through a gateway: what a caller sends, and what it reads of a stream."""

import json
from typing import Any

from onward.wiring import config as settings
from tests.mock_provider import MockProvider

PATH = "/v1/messages"
CHAT = "/v1/chat/completions"
PAYS = {"balance": "10.00"}
USER = [{"role": "user", "content": "two words"}]
BODY = {"messages": USER, "max_tokens": 5}


def anthropic(mock: MockProvider, name: str = "claude", **more: Any) -> settings.Provider:
    """A provider of the config that speaks Anthropic's API."""
    return settings.Provider(name=name, protocol="anthropic", base_url=mock.base_url, **more)


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream of messages. Each is named as its data is."""
    events: list[dict[str, Any]] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and line)
        if lines:
            events.append(json.loads(lines["data"]))
            assert events[-1]["type"] == lines["event"]
    return events


def message_of(text: str) -> dict[str, Any]:
    """The message that a stream makes, put together as a client does, `stop_*` and usage included."""
    message: dict[str, Any] = {}
    pieces: dict[int, str] = {}
    opened: int | None = None
    for event in events_of(text):
        match event["type"]:
            case "message_start":
                assert not message
                message = event["message"]
            case "content_block_start":
                assert opened is None
                opened = event["index"]
                assert opened == len(message["content"])
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                assert event["index"] == opened
                block, delta = message["content"][opened], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] += delta["signature"]
                    case _:
                        pieces[opened] = pieces.get(opened, "") + delta["partial_json"]
            case "content_block_stop":
                assert event["index"] == opened
                if opened in pieces:
                    message["content"][opened]["input"] = json.loads(pieces[opened] or "{}")
                opened = None
            case "message_delta":
                assert opened is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case "message_stop":
                message["stopped"] = True
            case "error":
                message["error"] = event["error"]
            case other:
                assert other == "ping"
        assert not message.get("stopped") or event["type"] == "message_stop"
    return message
