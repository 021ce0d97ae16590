"""How many tokens a prompt could have, from its bytes: a provider's tokenizer is not ours to know.

A token covers at least one byte, so the bytes are a bound; what a provider's own format puts around
messages, declares tools with, or makes of images is bounded by constants.
"""

from itertools import chain
from typing import Any, Final, cast

import msgspec

_PROMPT: Final = 8
"""Tokens around a text prompt."""
_CHAT: Final = 64
"""Tokens around a conversation: a system prompt that the format brings along, the opened reply."""
_MESSAGE: Final = 16
"""Tokens around a message, its role included."""
_LONGEST_ROLE: Final = 9
_TOOLS: Final = 256
"""Tokens that tell a model that there are tools, and how to call them."""
_PROVIDERS_TOOL: Final = 1024
"""Tokens that declare a tool of the provider's own, of which the body says nothing but the name."""
_IMAGE: Final = 8192
_LIKELY_IMAGE: Final = 1024
IMAGES: Final = ("image_url", "input_image", "image")
"""Types of parts that are images."""
_VIDEO: Final = 65_536
_DOCUMENT: Final = 200_000
"""Tokens of a document, whose pages a provider may look at as text and as images both."""
_LIKELY_DOCUMENT: Final = 8192
_BYTES_PER_HEARD_TOKEN: Final = 32
"""Base64 of compressed speech; a lower bound."""
_LIKELY_BYTES_PER_TOKEN: Final = 3
UNSEEN: Final = frozenset(
    {
        "model",
        "stop",
        "stop_sequences",
        "stream_options",
        "logit_bias",
        "metadata",
        "modalities",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "service_tier",
    }
)
"""Fields of a body that no model sees."""
_INTEGERS: Final = frozenset({int})

_encode: Final = msgspec.json.Encoder().encode


class PromptSize(msgspec.Struct, frozen=True):
    """What makes up the prompts of a request."""

    text: int
    """Bytes of text in UTF-8."""
    exact: int
    """Token IDs, each of which is a token."""
    overhead: int
    """Tokens of formats, at the most."""
    likely_other: int = 0
    """Tokens of images and the like, at a guess; `overhead` has the most they could be."""

    @property
    def most(self) -> int:
        """Tokens of all prompts: an upper bound."""
        return self.text + self.exact + self.overhead

    @property
    def likely(self) -> int:
        """Tokens of all prompts where the provider does not say: a guess that is not too low (K-9)."""
        return -(-self.text // _LIKELY_BYTES_PER_TOKEN) + self.exact + self.likely_other


def completion_size(body: dict[str, Any]) -> tuple[int, PromptSize]:
    """How many prompts a body of completions has, and their size."""
    suffix = body.get("suffix")
    text = _bytes(suffix) if type(suffix) is str else 0
    prompt = body.get("prompt")
    if type(prompt) is str:
        return 1, PromptSize(text + _bytes(prompt), 0, _PROMPT)
    if type(prompt) is not list or not prompt:
        return 1, PromptSize(text + (0 if not prompt else len(_encode(prompt))), 0, _PROMPT)
    items = cast("list[Any]", prompt)
    if _INTEGERS.issuperset(map(type, items)):
        return 1, PromptSize(text, len(items), _PROMPT)
    count = len(items)
    overhead = _PROMPT * count
    kinds = set(map(type, items))
    if kinds == {str}:
        return count, PromptSize(text * count + sum(map(_bytes, items)), 0, overhead)
    if kinds == {list} and _INTEGERS.issuperset(map(type, chain.from_iterable(items))):
        return count, PromptSize(text * count, sum(map(len, items)), overhead)
    return count, PromptSize(text * count + len(_encode(items)), 0, overhead)


def chat_size(body: dict[str, Any]) -> PromptSize:
    """The size of a conversation, of its tools and of whatever else may become part of the prompt; of
    OpenAI's shape or Anthropic's.
    """
    text, overhead, likely = 0, _CHAT, _PROMPT
    messages = body.get("messages")
    if type(messages) is list:
        listed = cast("list[dict[str, Any]]", messages)  # most often: a caller can send anything
        overhead += _MESSAGE * len(listed)
        for fields in listed:
            if type(fields) is not dict:
                text += len(_encode(fields))
                continue
            content, role = fields.get("content"), fields.get("role")
            if type(content) is str and len(fields) == 2 and type(role) is str and len(role) <= _LONGEST_ROLE:
                text += len(content) if content.isascii() else len(content.encode())
                continue
            size, most, guess = _message_size(fields)
            text += size
            overhead += most
            likely += guess
    elif messages is not None:
        text += len(_encode(messages))
    for name, value in body.items():
        if name == "messages" or name in UNSEEN:
            continue
        kind = type(value)
        if kind is str:
            text += _bytes(value)
        elif kind is dict or kind is list:
            text += len(_encode(value))
            overhead += _TOOLS
            if name == "tools":
                overhead += _PROVIDERS_TOOL * sum(map(_is_providers, cast("list[Any]", value)))
    return PromptSize(text, 0, overhead, likely)


def image_count(body: dict[str, Any]) -> int:
    """How many images the messages of a chat hold."""
    messages = body.get("messages")
    contents = [
        cast("dict[str, Any]", message).get("content")
        for message in (cast("list[Any]", messages) if type(messages) is list else ())
        if type(message) is dict
    ]
    parts = [part for content in contents if type(content) is list for part in cast("list[Any]", content)]
    return sum(type(part) is dict and cast("dict[str, Any]", part).get("type") in IMAGES for part in parts)


def _message_size(fields: dict[str, Any]) -> tuple[int, int, int]:
    """Bytes of text, tokens of all else at the most, and at a guess."""
    content = fields.get("content")
    if type(content) is not list:
        return len(_encode(fields)), 0, 0
    text = len(_encode({name: value for name, value in fields.items() if name != "content"}))
    size, most, likely = _parts_size(cast("list[Any]", content))
    return text + size, most, likely


def _parts_size(parts: list[Any]) -> tuple[int, int, int]:
    text = most = likely = 0
    for part in parts:
        kind = cast("dict[str, Any]", part).get("type") if type(part) is dict else None
        said = part.get("text") if kind == "text" else None
        if type(said) is str:
            text += _bytes(said)
        elif kind in IMAGES:
            most += _IMAGE
            likely += _LIKELY_IMAGE
        elif kind in ("video_url", "video"):
            most += _VIDEO
            likely += _IMAGE
        elif kind in ("input_audio", "audio_url"):
            heard = _MESSAGE + len(_encode(part)) // _BYTES_PER_HEARD_TOKEN
            most += heard
            likely += heard
        elif kind == "document":
            most += _DOCUMENT
            likely += _LIKELY_DOCUMENT
        elif kind == "tool_result":
            inner = _message_size(cast("dict[str, Any]", part))
            text, most, likely = text + inner[0], most + inner[1], likely + inner[2]
        else:
            text += len(_encode(part))
    return text, most, likely


def _is_providers(tool: Any) -> bool:
    kind = cast("dict[str, Any]", tool).get("type") if type(tool) is dict else None
    return kind not in (None, "function", "custom")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
