"""What an engine process is started with."""

import os
from typing import Annotated

import msgspec

MAX_SLOTS = 256
"""llama.cpp's own limit of sequences in one context."""

ADAPTERS = 8
"""Adapters kept in memory, where nothing else is said."""

EXIT_UNUSABLE = 3
"""The exit status by which an engine process says that starting again would not help."""


class LlamaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One embedded deployment."""

    model_path: str
    """A GGUF file."""
    mmproj_path: str | None = None
    """A projector for images, a GGUF file too."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=MAX_SLOTS)] = 4
    """Sequences that run at once; each has a KV cache of `context_length` tokens of its own."""
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    """0: the cores this process may use, less one, and at least one."""
    queue: Annotated[int, msgspec.Meta(ge=0)] = 64
    """Requests that may wait for a slot. One more is refused."""
    context_length: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens that one sequence can hold, prompt and output together. 0: what the model was trained with."""
    adapters: Annotated[int, msgspec.Meta(ge=1)] = ADAPTERS
    """LoRA adapters kept in memory. One more replaces the least recently used that no request uses."""


def default_threads() -> int:
    """All cores but one: a spinning thread beside one busy process costs most of the speed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)
