"""Which surface is translated into which API."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from onward.core.request import ChatRequest
from onward.wire.translating.anthropic_body import messages_fields
from onward.wire.translating.anthropic_deltas import AnthropicDeltas
from onward.wire.translating.openai_body import chat_fields
from onward.wire.translating.openai_deltas import OpenAiDeltas
from onward.wire.translating.reading import DeltaReader

_encode: Final = msgspec.json.Encoder().encode


class Fields(Protocol):
    """The fields of a body."""

    def __call__(
        self, request: ChatRequest, /, *, reasons: bool, most: int, adaptive: bool
    ) -> dict[str, Any]:
        """`reasons`: whether the model has a choice of how much it reasons; `most`: the limit that will be
        sent; `adaptive`: see `ProxiedModel.adaptive`. Raises `Failure` for what cannot be said.
        """
        ...


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A route of a provider, for requests of another surface."""

    surface: str
    """What the provider has to have."""
    path: str
    fields: "Fields"
    reader: Callable[[Callable[[], str]], DeltaReader]
    """Reads one answer; calls without an ID get a new one."""
    asks_usage: bool
    """Whether a stream reports its usage only if it is asked to."""
    own_limit_field: bool
    """Whether providers call the limit by different names."""


def body(
    fields: dict[str, Any],
    *,
    model: str,
    limit_field: str,
    max_tokens: int,
    stream: bool,
    ask_usage: bool,
) -> bytes:
    """The bytes of a translated request."""
    made: dict[str, Any] = {"model": model, limit_field: max_tokens, **fields}
    if stream:
        made["stream"] = True
        if ask_usage:
            made["stream_options"] = {"include_usage": True}
    return _encode(made)


def _chat(request: ChatRequest, *, reasons: bool, most: int, adaptive: bool) -> dict[str, Any]:  # noqa: ARG001
    return chat_fields(request, reasons=reasons)


def _messages(request: ChatRequest, *, reasons: bool, most: int, adaptive: bool) -> dict[str, Any]:  # noqa: ARG001
    return messages_fields(request, most=most, adaptive=adaptive)


WAYS: Final = {
    "messages": Way(
        surface="chat",
        path="/chat/completions",
        fields=_chat,
        reader=OpenAiDeltas,
        asks_usage=True,
        own_limit_field=True,
    ),
    "chat": Way(
        surface="messages",
        path="/messages",
        fields=_messages,
        reader=lambda _: AnthropicDeltas(),
        asks_usage=False,
        own_limit_field=False,
    ),
}
"""By the surface that the caller uses."""
