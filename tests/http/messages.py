"""Messages through a gateway: what a caller sends, and what it reads of a stream."""

import json
from typing import Any

from onward.wiring import config as settings
from tests.http.gateway import data_of
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
        read = [line.partition(":") for line in block.split("\n") if line and not line.startswith(":")]
        lines = {name: value.strip() for name, _, value in read}
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


def chat_of(text: str) -> dict[str, Any]:
    """The message that the events of a chat make; its finish and usage with it."""
    said: dict[str, Any] = {"content": "", "reasoning_content": "", "thinking_blocks": [], "calls": {}}
    events = data_of(text)
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        said["usage"] = event.get("usage") or said.get("usage")
        for choice in event["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                said[name] += delta.get(name) or ""
            for block in delta.get("thinking_blocks") or []:
                assert block["index"] == len(said["thinking_blocks"])
                said["thinking_blocks"].append({name: block[name] for name in block if name != "index"})
            for call in delta.get("tool_calls") or []:
                known = said["calls"].setdefault(call["index"], {"arguments": ""})
                assert "id" not in call or "id" not in known
                known |= {"id": call["id"], "name": call["function"]["name"]} if "id" in call else {}
                known["arguments"] += call["function"]["arguments"]
            said["finish"] = choice["finish_reason"] or said.get("finish")
    return said


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """The same of an unstreamed chat."""
    [choice] = answer["choices"]
    message = choice["message"]
    calls = {
        n: {"id": call["id"], **call["function"]} for n, call in enumerate(message.get("tool_calls") or [])
    }
    return {
        "content": message["content"] or "",
        "reasoning_content": message["reasoning_content"] or "",
        "thinking_blocks": message.get("thinking_blocks") or [],
        "calls": calls,
        "usage": answer["usage"],
        "finish": choice["finish_reason"],
    }
