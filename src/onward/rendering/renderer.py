"""The seams between a conversation and tokens: how it becomes a prompt, how a reply is read.

Every model family renders and reads through a `Renderer`: natively (`families.native`), or by
the model's own template (`template.TemplateRenderer`).
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import msgspec

from onward.core.delta import ChoiceDelta
from onward.core.generate import EngineFinish, ScoredToken
from onward.core.request import ChatRequest, ImagePart


class RenderedPrompt(msgspec.Struct, frozen=True):
    """A conversation as a model reads it."""

    ids: list[int]
    stop_token_ids: list[int]
    """The tokens with which the model ends its reply."""
    prefill: list[int] = []
    """The last of `ids`: what the prompt has begun of the reply itself."""
    images: list[tuple[int, ImagePart]] = []
    """Each image, and the number of the ID that it stands in front of."""


class ImageMarks(msgspec.Struct, frozen=True):
    """What a format writes around an image."""

    before: str
    after: str


class ReplyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants of one reply."""

    prefill: Sequence[int] = ()
    """Tokens of the reply that stand in the prompt already."""
    tools: Sequence[dict[str, Any]] = ()
    index: int = 0
    """The choice's number in the answer."""
    stops: Sequence[str] = ()
    end_token_ids: Collection[int] | None = None
    """All that end the generation; None: those with which the model ends a reply."""
    want_entries: bool = False
    want_ids: bool = False
    separate_reasoning: bool = True
    """Whether reasoning is told apart from content."""
    ordered: bool = False
    """Whether the order of a delta's text, reasoning and calls is told."""


def reply_options(
    request: ChatRequest, prompt: RenderedPrompt, *, index: int, end_token_ids: Collection[int]
) -> ReplyOptions:
    """What a request wants of a reply to `prompt`."""
    return ReplyOptions(
        prefill=prompt.prefill,
        tools=request.tools,
        index=index,
        stops=request.stop,
        end_token_ids=end_token_ids,
        want_entries=request.logprobs is not None,
        want_ids=request.return_token_ids,
        separate_reasoning=request.separate_reasoning,
        ordered=request.ordered,
    )


class Renderer(Protocol):
    """Messages to token IDs."""

    def render(self, request: ChatRequest) -> RenderedPrompt:
        """The prompt of a conversation. No text of the caller ever becomes a control token.

        Raises `Failure` (INVALID_REQUEST, `param` names the field) for what the model cannot take.
        """
        ...

    def parser(
        self, request: ChatRequest, prompt: RenderedPrompt, *, index: int, end_token_ids: Collection[int]
    ) -> "ReplyParser":
        """The parser of one reply to `prompt`. `end_token_ids`: all that end the generation."""
        ...

    def takes_effort(self, effort: str | float | bool) -> bool:
        """Whether it takes a value of `reasoning_effort`."""
        ...

    @property
    def name(self) -> str:
        """The family, or ``template``."""
        ...

    @property
    def reason(self) -> str:
        """Why this one was chosen, in words."""
        ...

    @property
    def tools(self) -> bool:
        """Whether the format has tool calls."""
        ...

    @property
    def images(self) -> ImageMarks | None:
        """What the format writes around an image; None: its conversations hold none."""
        ...


class ReplyParser(Protocol):
    """Sampled tokens to what a caller sees. `push` is the only way in."""

    @property
    def stopped(self) -> bool:
        """Whether nothing more is accepted, so that the engine may be stopped."""
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
