"""What an engine is asked for, and what it gives: token IDs both ways."""

from enum import StrEnum

import msgspec

from onward.core.image import PlacedImage


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. Every default is neutral: the raw distribution.

    Penalties count generated tokens only, as OpenAI documents them, save
    `repetition_penalty`, which counts prompt tokens too, as every engine has it.
    """

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    """Token ID to an addend of its logit, -100 to 100."""
    seed: int | None = None
    """Any int64. None: different each time."""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to continue, once. Several choices are several of these."""

    request_id: str
    prompt: list[int]
    """Token IDs, used as they are. Never empty, unless there are images."""
    images: list[PlacedImage] = []
    """In the order of their positions. Nothing at or behind the first is ever reused."""
    max_tokens: int
    """Always explicit. 0 only together with `prompt_alternatives`: scoring alone."""
    sampling: Sampling = Sampling()
    stop_token_ids: list[int] = []
    """Generation ends with the first of these; it is the last token that is emitted."""
    min_tokens: int = 0
    """Stop tokens cannot be sampled before this many tokens were."""
    alternatives: int | None = None
    """None: no log probabilities. k: those of the sampled token and of the k likeliest."""
    prompt_alternatives: int | None = None
    """The same for the prompt's own tokens (echo). Nothing cached is reused then."""
    adapter: str | None = None
    """Name of an adapter; cached prefixes belong to it."""
    adapter_path: str | None = None
    """Where an engine that has not loaded it finds it. None: `load_adapter` was called before."""
    cache_scope: str | None = None
    """Prefixes are shared only within a scope (a tenant). None: the common one."""

    def unscored(self) -> "GenerateRequest":
        """The same request without the log probabilities of its prompt."""
        return msgspec.structs.replace(self, prompt_alternatives=None)


Alternative = tuple[int, float]
"""A token ID and its log probability."""


class ScoredToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token with its raw log probability: before temperature, bias, penalties, truncation."""

    id: int
    logprob: float | None = None
    """None: not asked for, or the first token of a prompt, which nothing predicts."""
    top: tuple[Alternative, ...] | None = None
    """The likeliest, best first. The token itself may be missing: see `logprob`."""


class EngineFinish(StrEnum):
    """Why an engine stopped by itself."""

    STOP_TOKEN = "stop_token"
    LENGTH = "length"


class Chunk(msgspec.Struct, frozen=True):
    """A step of an engine for one request; a step may hold several tokens, or none."""

    tokens: list[ScoredToken] = []
    finish: EngineFinish | None = None
    """Set exactly once, on the last chunk."""
    cached_tokens: int | None = None
    """On the first chunk: prompt tokens whose keys were reused, as they really were."""
    prompt_tokens: list[ScoredToken] | None = None
    """On the first chunk, if `prompt_alternatives` was set: one for each prompt token."""
