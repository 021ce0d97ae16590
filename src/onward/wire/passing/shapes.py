"""Where text stands in the events of an API, and in its whole answers; what ends a choice that is blocked."""

import json
from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

import msgspec

from onward.core.json_text import JSON_FIELDS, JsonText
from onward.core.usage import Usage

Path = tuple[str | int, ...]
_NO_TEXT: Final = frozenset(
    {
        "index",
        "id",
        "type",
        "role",
        "finish_reason",
        "native_finish_reason",
        "stop_reason",
        "logprobs",
        "token_ids",
        "prompt_token_ids",
        "signature",
        "data",
        "encrypted_content",
    }
)
"""Members that hold no text, or that of the other members again."""
_encode: Final = msgspec.json.Encoder().encode


class Part(msgspec.Struct, frozen=True):
    """What an event brings to one choice."""

    index: int
    texts: list[tuple[Path, str]]
    finished: bool


class Shape(Protocol):
    """The events of one API."""

    def parts(self, event: dict[str, Any]) -> list[Part]:
        """The choices that an event goes on with; none: it may pass at any time."""
        ...

    def without(self, event: dict[str, Any], indexes: set[int]) -> dict[str, Any]:
        """The event without some of its choices, of which others are left."""
        ...

    def closing(self, event: dict[str, Any], index: int, shown: dict[str, Any] | None) -> bytes:
        """The events that end a choice that is blocked. `event`: one of it; `shown`: the last that passed."""
        ...

    def end(self, usage: Usage, *, ended: bool) -> bytes:
        """What ends a stream of which every choice has ended and one is blocked, ahead of the provider's own
        end. `ended`: whether that has come.
        """
        ...

    def whole(self, answer: dict[str, Any]) -> Iterator[str]:
        """All texts of an unstreamed answer."""
        ...


class OpenAiShape:
    """Completions and chat."""

    def parts(self, event: dict[str, Any]) -> list[Part]:
        listed = event.get("choices")
        choices = cast("list[Any]", listed) if type(listed) is list else []
        return [self._part(cast("dict[str, Any]", one)) for one in choices if type(one) is dict]

    def without(self, event: dict[str, Any], indexes: set[int]) -> dict[str, Any]:
        kept = [one for one in event["choices"] if type(one) is dict and _index(one) not in indexes]
        return {**event, "choices": kept}

    def closing(self, event: dict[str, Any], index: int, shown: dict[str, Any] | None) -> bytes:  # noqa: ARG002
        chat = any("delta" in one for one in event.get("choices", ()))
        choice = {
            "index": index,
            **({"delta": {}} if chat else {"text": ""}),
            "logprobs": None,
            "finish_reason": "content_filter",
        }
        head = {name: event[name] for name in ("id", "object", "created", "model") if name in event}
        return b"data: %b\n\n" % _encode({**head, "choices": [choice]})

    def end(self, usage: Usage, *, ended: bool) -> bytes:  # noqa: ARG002
        return b""

    def whole(self, answer: dict[str, Any]) -> Iterator[str]:
        for path, text in _texts(answer.get("choices"), ()):
            yield JsonText().push(text) if path[-1] in JSON_FIELDS else text

    @staticmethod
    def _part(choice: dict[str, Any]) -> Part:
        return Part(_index(choice), list(_texts(choice, ())), finished=bool(choice.get("finish_reason")))


class MessagesShape:
    """Anthropic's Messages: one choice, to which every event belongs."""

    def parts(self, event: dict[str, Any]) -> list[Part]:
        kind = event.get("type")
        texts: list[tuple[Path, str]] = []
        if kind in ("content_block_start", "content_block_delta"):
            at = event.get("index")
            part = event.get("content_block" if kind == "content_block_start" else "delta")
            texts = list(_texts(part, (at if type(at) is int else 0,)))
        return [Part(0, texts, finished=kind == "message_delta")]

    def without(self, event: dict[str, Any], indexes: set[int]) -> dict[str, Any]:  # noqa: ARG002
        return event

    def closing(self, event: dict[str, Any], index: int, shown: dict[str, Any] | None) -> bytes:  # noqa: ARG002
        if shown is None or shown.get("type") not in ("content_block_start", "content_block_delta"):
            return b""
        return _named("content_block_stop", {"index": shown.get("index", 0)})

    def end(self, usage: Usage, *, ended: bool) -> bytes:
        delta = {"stop_reason": "refusal", "stop_sequence": None}
        out = _named("message_delta", {"delta": delta, "usage": {"output_tokens": usage.completion_tokens}})
        return out if ended else out + _named("message_stop", {})

    def whole(self, answer: dict[str, Any]) -> Iterator[str]:
        content = answer.get("content")
        for _, text in _texts(content, ()):
            yield text
        for block in cast("list[Any]", content) if type(content) is list else []:
            given = cast("dict[str, Any]", block).get("input") if type(block) is dict else None
            if given:
                yield JsonText().push(json.dumps(given, ensure_ascii=False))


def _named(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, **fields}))


def _index(choice: dict[str, Any]) -> int:
    index = choice.get("index")
    return index if type(index) is int else 0


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Each text below a value, by where it goes on in the next event."""
    if type(value) is str:
        if value:
            yield path, value
    elif type(value) is dict:
        for name, inner in cast("dict[str, Any]", value).items():
            if name not in _NO_TEXT:
                yield from _texts(inner, (*path, name))
    elif type(value) is list:
        for number, inner in enumerate(cast("list[Any]", value)):
            at = cast("dict[str, Any]", inner).get("index") if type(inner) is dict else None
            yield from _texts(inner, (*path, at if type(at) is int else number))
