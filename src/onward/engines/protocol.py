"""The contract of an engine.

An engine owns sampling and nothing else: it gets token IDs and gives token IDs with raw log
probabilities. Rendering, detokenizing, stop strings, echo and parsing are ours, so that a
client sees the same over every engine. The contract suite in ``tests/contract`` holds for all.
"""

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Protocol

import msgspec

from onward.core.generate import Chunk, GenerateRequest
from onward.core.image import ImageSpan


class EngineState(StrEnum):
    """Where an engine is in its life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """It does not start; `EngineStatus.detail` says why."""


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A look at an engine, for readiness, metrics and routing."""

    state: EngineState
    detail: str = ""
    slots: int = 0
    running: int = 0
    waiting: int = 0
    cached_prefixes: int = 0
    context_length: int = 0
    """Tokens that one sequence can hold, prompt and output together."""
    restarts: int = 0


class Engine(Protocol):
    """Token IDs in, token IDs out."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Chunk, None]:
        """Sample tokens, step by step.

        Closing the generator (`aclose`) cancels the request within one step. Raises `Failure`:
        ENGINE_FULL when the queue has no room, ENGINE_STARTING when the engine is not up,
        ENGINE_FAILED when it dies meanwhile. With `max_tokens` 0 and `prompt_alternatives` it
        only scores the prompt.

        Images are put between the given IDs, which stay as they are; the tokens around an image
        are the caller's. `prompt_alternatives` and images exclude each other.
        """
        ...

    async def measure_images(self, sizes: list[tuple[int, int]]) -> list[ImageSpan]:
        """What images of these sizes (width, height) take. Raises `Failure` if it takes none."""
        ...

    def status(self) -> EngineStatus:
        """The last known state, without waiting for the engine."""
        ...

    async def load_adapter(self, name: str, path: str) -> None:
        """Make a LoRA adapter available to requests that name it."""
        ...

    async def close(self) -> None:
        """Let go of the engine; running requests end with ENGINE_FAILED."""
        ...
