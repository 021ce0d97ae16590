"""What a PEFT LoRA adapter says of itself: which weights it changes, and by how much.

Everything that our conversion could not carry over exactly is refused, in words for whoever saved it.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from onward.core.checkpoint import SavedCheckpoint, StoredTensor
from onward.core.failure import Failure, excerpt, invalid

_WEIGHT = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[\w.]+?)\.lora_(?P<half>[AB])(?:\.[\w-]+)?\.weight", re.ASCII
)
_PLAIN = re.compile(r"\^?[\w.]+", re.ASCII)
_OTHER_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initializations that change the base model's own weights."""
_DEFAULT_ALPHA = 8
"""PEFT's."""
_LARGEST_ALPHA = 1e9
_MUST_BE_UNSET = (
    "use_dora",
    "lora_bias",
    "use_qalora",
    "fan_in_fan_out",
    "layer_replication",
)
_MUST_BE_EMPTY = (
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
)


class Pair(msgspec.Struct, frozen=True):
    """The two factors of what is added to one weight: `scale * B @ A`."""

    module: str
    """The weight's module in the base model: ``model.layers.0.self_attn.q_proj``."""
    a: StoredTensor
    """Shape (rank, inputs)."""
    b: StoredTensor
    """Shape (outputs, rank)."""
    scale: float


def unusable(checkpoint: SavedCheckpoint, why: str) -> Failure:
    """The failure of a checkpoint that is complete, but cannot be served."""
    return invalid("model", f"The checkpoint '{excerpt(checkpoint.path)}' cannot be served: {why}")


def pairs_of(checkpoint: SavedCheckpoint) -> list[Pair]:
    """What a checkpoint changes. Raises `Failure` for what is no plain LoRA adapter."""
    config = checkpoint.config
    _check_config(checkpoint)
    halves: dict[str, dict[str, StoredTensor]] = {}
    for tensor in checkpoint.tensors:
        match = _WEIGHT.fullmatch(tensor.name)
        if match is None:
            raise unusable(
                checkpoint, f"it holds '{excerpt(tensor.name)}', which is no LoRA weight of a linear layer."
            )
        if halves.setdefault(match["module"], {}).setdefault(match["half"], tensor) is not tensor:
            raise unusable(checkpoint, f"it holds '{excerpt(tensor.name)}' twice.")
    if not halves:
        raise unusable(checkpoint, "it holds no LoRA weights.")
    return [_pair(checkpoint, config, module, both) for module, both in halves.items()]


def _check_config(checkpoint: SavedCheckpoint) -> None:
    config = checkpoint.config
    kind = config.get("peft_type")
    if kind != "LORA":
        raise unusable(checkpoint, f"its 'peft_type' is {excerpt(kind)}; only LORA adapters are.")
    for name in _MUST_BE_UNSET:
        if config.get(name):
            raise unusable(checkpoint, f"it was made with '{name}', which is not supported.")
    for name in _MUST_BE_EMPTY:
        if config.get(name):
            raise unusable(checkpoint, f"its '{name}' is not empty; only LoRA weights of layers are applied.")
    if config.get("bias", "none") != "none":
        raise unusable(checkpoint, f"its 'bias' is {excerpt(config['bias'])}; only none is supported.")
    started = config.get("init_lora_weights")
    if isinstance(started, str) and started.lower().startswith(_OTHER_BASE):
        raise unusable(
            checkpoint,
            f"it was initialized by '{excerpt(started)}', which changes the base model itself. Save it "
            "converted to a plain LoRA adapter.",
        )


def _pair(
    checkpoint: SavedCheckpoint, config: Mapping[str, Any], module: str, both: Mapping[str, StoredTensor]
) -> Pair:
    shown = excerpt(module)
    if len(both) != 2:
        raise unusable(checkpoint, f"'{shown}' has only one of its two weights, lora_A and lora_B.")
    a, b = both["A"], both["B"]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or 0 in a.shape + b.shape:
        raise unusable(checkpoint, f"the two weights of '{shown}' have shapes {a.shape} and {b.shape}.")
    rank = a.shape[0]
    alpha = _of_pattern(checkpoint, "alpha_pattern", module)
    if alpha is None:
        alpha = config.get("lora_alpha", _DEFAULT_ALPHA)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) < _LARGEST_ALPHA:
        raise unusable(checkpoint, f"its 'lora_alpha' is {excerpt(alpha)}, which is no usable number.")
    return Pair(module, a, b, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _of_pattern(checkpoint: SavedCheckpoint, field: str, module: str) -> Any:
    """The value of the first pattern that a module's name, or the end of it, matches."""
    patterns = checkpoint.config.get(field) or {}
    if not isinstance(patterns, dict):
        raise unusable(checkpoint, f"its '{field}' is no object.")
    for pattern, value in patterns.items():
        # Patterns may be any regular expression; one from outside could run for ever.
        if not _PLAIN.fullmatch(pattern):
            raise unusable(checkpoint, f"'{excerpt(pattern)}' in its '{field}' is no plain module name.")
        name = pattern.removeprefix("^")
        if module == name or (pattern == name and module.endswith("." + name)):
            return value
    return None
