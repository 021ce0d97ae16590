"""What the tests of encoders share: deltas to encode, events to read."""

import json
from typing import Any

from onward.core.delta import ChoiceDelta, TokenEntry, TokenSpelling
from onward.core.request import ChatRequest, CompletionRequest, Message
from onward.core.usage import Usage

USAGE = Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=4)
USAGE_FIELDS = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def completion(**options: Any) -> CompletionRequest:
    return CompletionRequest(model="org/m", prompts=["p"], **options)


def chat(**options: Any) -> ChatRequest:
    return ChatRequest(model="org/m", messages=[Message(role="user", content="hi")], **options)


def spelling(text: str, logprob: float | None, token: int = 1, own: bytes | None = b"") -> TokenSpelling:
    return TokenSpelling(token, text, text.encode() if own == b"" else own, logprob)


def entry(text: str, logprob: float | None, top: list[TokenSpelling] | None, offset: int = 0) -> TokenEntry:
    return TokenEntry(spelling(text, logprob), top, offset)


def events(raw: bytes) -> list[Any]:
    """The data of every event; the frame must be exact."""
    found = []
    for event in raw.decode().split("\n\n")[:-1]:
        assert event.startswith("data: ")
        assert "\n" not in event
        data = event.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    assert raw == b"" or raw.endswith(b"\n\n")
    return found


def choices(raw: bytes) -> list[Any]:
    return [event["choices"][0] for event in events(raw)]


def delta(index: int = 0, **values: Any) -> ChoiceDelta:
    return ChoiceDelta(index=index, **values)
