"""The seams between a conversation and tokens: how it becomes a prompt, how a reply is read.

Every model family renders through a `Renderer` and reads through a `ReplyParser`. What exists
today is the model's own template (`template.TemplateRenderer`) and a reply that is text alone
(`token_path.TokenPath`); families with native formats bring a pair of their own.
"""

from typing import Protocol

import msgspec

from onward.core.delta import ChoiceDelta
from onward.core.generate import EngineFinish, ScoredToken
from onward.core.request import ChatRequest


class RenderedPrompt(msgspec.Struct, frozen=True):
    """A conversation as a model reads it."""

    ids: list[int]
    stop_token_ids: list[int]
    """The tokens with which the model ends its reply."""


class Renderer(Protocol):
    """Messages to token IDs."""

    def render(self, request: ChatRequest) -> RenderedPrompt:
        """The prompt of a conversation. No text of the caller ever becomes a control token.

        Raises `Failure` (INVALID_REQUEST, `param` names the field) for what the model cannot take.
        """
        ...


class ReplyParser(Protocol):
    """Sampled tokens to what a caller sees. `push` is the only way in."""

    @property
    def stopped(self) -> bool:
        """Whether nothing more is accepted, so that the engine may be stopped."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether `take` would give nothing."""
        ...

    @property
    def count(self) -> int:
        """Tokens accepted."""
        ...

    def push(self, token: ScoredToken) -> None:
        """Accept the next sampled token."""
        ...

    def take(self) -> ChoiceDelta:
        """All that is certain by now and was not given yet."""
        ...

    def finish(self, why: EngineFinish | None) -> ChoiceDelta:
        """All the rest, with the finish reason. `why` is the engine's; None if we stopped it."""
        ...
