"""Requests as the pipeline knows them: no dialect, no wire shape, every default set."""

from typing import Any

import msgspec

from onward.core.generate import Sampling


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants out of the model, whichever surface it came by."""

    model: str
    """The model reference as the caller wrote it."""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """None: `unset_max_tokens`, or to the end of the model's context."""
    unset_max_tokens: int | None = None
    """The most tokens where the caller named no limit; never refused, only cut to the context."""
    model_max_tokens: bool = False
    """Whether the model's own default is the limit where the caller named none."""
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int = 1
    best_of: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    logprobs: int | None = None
    """None: none. k: the sampled token's and those of the k likeliest."""
    return_token_ids: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    clip_to_context: bool = False
    """`prompt + max_tokens` over the context: run to its end instead of 400."""
    user: str | None = None


class TextPart(msgspec.Struct, frozen=True):
    """Text of a message."""

    text: str


class ImagePart(msgspec.Struct, frozen=True):
    """An image of a message or of a prompt: a data URL or an address.

    A data URL is known to hold well-formed base64 of an allowed size; what image it is, and
    whether it is one, is found out when it is decoded.
    """

    url: str
    detail: str | None = None
    path: str | None = None
    """What messages call it; None: its place in `messages`."""


class TokensPart(msgspec.Struct, frozen=True):
    """Token IDs of a prompt in parts, used as they are."""

    tokens: list[int]


PromptPart = TokensPart | ImagePart


class CompletionRequest(OutputOptions, frozen=True, kw_only=True):
    """Prompts to continue as they are."""

    prompts: list[str | list[int]]
    """Texts or token IDs, at least one, unless `prompt_chunks` is the prompt; none of them empty."""
    prompt_chunks: list[PromptPart] | None = None
    """The one prompt in parts, in order (TC-10); `prompts` is empty then."""
    batch: bool = False
    """Whether the caller sent a list of prompts (messages then say ``prompt[3]``)."""
    suffix: str | None = None
    echo: bool = False

    def prompt_path(self, position: int) -> str:
        """What a message calls the prompt at this position."""
        if self.prompt_chunks is not None:
            return "prompt_chunks"
        return f"prompt[{position}]" if self.batch else "prompt"


ContentPart = TextPart | ImagePart


class ToolCall(msgspec.Struct, frozen=True):
    """A call in an earlier assistant message."""

    id: str
    name: str
    arguments: str
    """JSON as the caller sent it, which may be malformed."""


class Thought(msgspec.Struct, frozen=True):
    """A block of reasoning that whoever made it signed, or sealed: to be sent back to it as it is."""

    text: str = ""
    signature: str = ""
    """Opaque; "" where it is not signed."""
    sealed: str | None = None
    """Reasoning that nobody but its maker can read, opaque too; `text` and `signature` are empty then."""
    text_before: int = 0
    """Code points of its message's text that stand in front of it."""
    calls_before: int = 0
    """Calls of its message that stand in front of it."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: str
    """system, developer, user, assistant or tool."""
    content: str | list[ContentPart] | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    name: str | None = None
    thoughts: list[Thought] = []
    """An assistant's reasoning block by block, where it came so; `reasoning` is all its readable text."""
    is_error: bool = False
    """Of a tool's message: whether the call failed."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """A wish for more reasoning or less, which a model follows as far as it can."""

    on: bool | None = None
    """None: as the model has it."""
    budget: int | None = None
    """The most tokens of reasoning."""
    effort: str | None = None
    """low, medium, high, xhigh or max."""
    shown: bool = True
    """Whether the text of the reasoning is answered too."""


class ChatRequest(OutputOptions, frozen=True, kw_only=True):
    """A conversation to continue with the model's reply."""

    messages: list[Message]
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: str | float | bool | None = None
    thinking: Thinking | None = None
    """Instead of `reasoning_effort`, which a model that does not take it refuses."""
    separate_reasoning: bool = True
    ordered: bool = False
    """Whether a delta tells the order of what it brings (`parts`)."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: dict[str, Any] = {}
