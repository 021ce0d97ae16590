"""A fine-tuned checkpoint: what is saved, and what an engine gets of it."""

from typing import Any

import msgspec


class StoredTensor(msgspec.Struct, frozen=True):
    """Where a tensor of a weights file lies."""

    name: str
    dtype: str
    """As safetensors spells it: F32, BF16, …"""
    shape: tuple[int, ...]
    offset: int
    """Of its first byte in the file."""
    size: int
    """In bytes."""


class SavedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter as PEFT writes it, complete on disk when it was looked at."""

    path: str
    """What callers call it: ``tinker://RUN/sampler_weights/NAME``."""
    config: dict[str, Any]
    """``adapter_config.json``."""
    weights: str
    """The path of ``adapter_model.safetensors``."""
    tensors: tuple[StoredTensor, ...]
    version: tuple[int, ...]
    """Sizes, times and places of both files: another one when either was written again."""

    @property
    def base(self) -> str | None:
        """The base model that it says it is of; None if it says nothing."""
        base = self.config.get("base_model_name_or_path")
        return base if isinstance(base, str) and base else None


class Adapter(msgspec.Struct, frozen=True):
    """A checkpoint in the form that its engine reads."""

    name: str
    """A hash of its content: the same name is the same adapter, in every process and after a restart."""
    path: str
