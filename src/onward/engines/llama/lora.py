"""PEFT LoRA adapters to llama.cpp's GGUF form.

Written for the converters' layout of base models: GGUFs of the architecture ``llama`` hold the rows
of Q and K in another order than the original weights, so what is added to them is reordered
the same way. The scale is multiplied into B, which then needs no alpha, whatever its rank and its rule.
Everything is written as float32, which holds every 16-bit value.
"""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from onward.core.checkpoint import SavedCheckpoint, StoredTensor
from onward.core.failure import excerpt
from onward.engines.llama.peft import Pair, pairs_of, unusable

FORMAT = 1
"""Changes whenever the same adapter is written differently."""

_ALIGNMENT = 32
_STRING, _FLOAT32 = 8, 0
_REORDERED = {"llama": True, "qwen2": False, "qwen3": False}
"""By architecture: whether the converter of base models reorders the rows of Q and K."""
_LAYER = "model.layers."
_PLACES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

Weights = npt.NDArray[np.float32]


class Base(msgspec.Struct, frozen=True):
    """What the shapes and the order of an adapter's weights depend on."""

    architecture: str
    layers: int
    width: int
    heads: int
    heads_kv: int
    head_size: int
    feed_forward: int
    vocabulary: int | None

    def shape(self, place: str) -> tuple[int | None, int]:
        """Outputs and inputs of a weight."""
        query, key = self.heads * self.head_size, self.heads_kv * self.head_size
        return {
            "attn_q": (query, self.width),
            "attn_k": (key, self.width),
            "attn_v": (key, self.width),
            "attn_output": (self.width, query),
            "ffn_gate": (self.feed_forward, self.width),
            "ffn_up": (self.feed_forward, self.width),
            "ffn_down": (self.width, self.feed_forward),
            "output": (self.vocabulary, self.width),
        }[place]

    def reordered_heads(self, place: str) -> int | None:
        """Into how many heads the rows of a weight are cut and reordered; None: they stay."""
        if not _REORDERED[self.architecture]:
            return None
        return {"attn_q": self.heads, "attn_k": self.heads_kv}.get(place)


def base_of(metadata: Mapping[str, Any]) -> Base | str:
    """The base model of a GGUF's metadata, or why its adapters cannot be converted."""
    architecture = metadata.get("general.architecture")
    if architecture not in _REORDERED:
        known = ", ".join(_REORDERED)
        return f"adapters are served for models of the architectures {known}, not of {excerpt(architecture)}."
    prefix = f"{architecture}."
    names = ("block_count", "embedding_length", "attention.head_count", "feed_forward_length")
    layers, width, heads, feed_forward = (metadata.get(prefix + name, 0) for name in names)
    heads_kv = metadata.get(prefix + "attention.head_count_kv", heads)
    sizes = (layers, width, heads, heads_kv, feed_forward)
    if not all(isinstance(size, int) and size > 0 for size in sizes) or metadata.get(prefix + "expert_count"):
        return "adapters are served for dense models with layers of one size."
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else metadata.get(prefix + "vocab_size")
    head_size = metadata.get(prefix + "attention.key_length") or width // heads
    return Base(architecture, layers, width, heads, heads_kv, head_size, feed_forward, vocabulary)


def convert(checkpoint: SavedCheckpoint, base: Base, target: Path) -> None:
    """Write an adapter as a GGUF. Raises `Failure` where it does not fit, OSError, EOFError."""
    named = [(_place(checkpoint, base, pair), pair) for pair in pairs_of(checkpoint)]
    with Path(checkpoint.weights).open("rb") as source, target.open("wb") as file:
        file.write(_head(base, named))
        for (_, place), pair in named:
            a = _read(checkpoint, source, pair.a)
            with np.errstate(over="ignore"):
                b = _read(checkpoint, source, pair.b) * np.float32(pair.scale)
            heads = base.reordered_heads(place)
            if heads is not None:
                b = reorder(b, heads)
            for values, tensor in ((a, pair.a), (b, pair.b)):
                if not np.isfinite(values).all():
                    raise unusable(checkpoint, f"'{excerpt(tensor.name)}' holds values that are not finite.")
                _write(file, values)


def reorder(rows: Weights, heads: int) -> Weights:
    """Rows as the original model has them, to the order of a GGUF: rotary pairs side by side."""
    count, rank = rows.shape
    return np.ascontiguousarray(
        rows.reshape(heads, 2, count // heads // 2, rank).swapaxes(1, 2).reshape(count, rank)
    )


def _place(checkpoint: SavedCheckpoint, base: Base, pair: Pair) -> tuple[str, str]:
    """The name of a weight in the base's GGUF, and which of its layer's weights it is."""
    number, _, rest = pair.module.removeprefix(_LAYER).partition(".")
    if pair.module == "lm_head":
        name = place = "output"
    elif (
        pair.module.startswith(_LAYER)
        and number.isascii()
        and number.isdigit()
        and len(number) < 6
        and int(number) < base.layers
        and rest in _PLACES
    ):
        place = _PLACES[rest]
        name = f"blk.{int(number)}.{place}"
    else:
        raise unusable(
            checkpoint,
            f"it changes '{excerpt(pair.module)}', which the base model does not have or which cannot be "
            f"changed; it may change lm_head and, in each of {base.layers} layers, {', '.join(_PLACES)}.",
        )
    outputs, inputs = base.shape(place)
    if pair.a.shape[1] != inputs or (outputs is not None and pair.b.shape[0] != outputs):
        theirs = f"take {pair.a.shape[1]} values to {pair.b.shape[0]}"
        raise unusable(
            checkpoint,
            f"its weights for '{excerpt(pair.module)}' {theirs}, those of the base model {inputs} to "
            f"{outputs}. Was it made from another model?",
        )
    return name + ".weight", place


def _read(checkpoint: SavedCheckpoint, source: BinaryIO, tensor: StoredTensor) -> Weights:
    decode = _DTYPES.get(tensor.dtype)
    if decode is None:
        raise unusable(
            checkpoint,
            f"'{excerpt(tensor.name)}' is {excerpt(tensor.dtype)}; {', '.join(_DTYPES)} are supported.",
        )
    source.seek(tensor.offset)
    data = source.read(tensor.size)
    if len(data) != tensor.size:
        raise EOFError(tensor.name)
    return decode(data).reshape(tensor.shape)


def _bfloat16(data: bytes) -> Weights:
    """The upper half of a float32."""
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


_DTYPES: dict[str, Callable[[bytes], Weights]] = {
    "F32": lambda data: np.frombuffer(data, "<f4"),
    "F16": lambda data: np.frombuffer(data, "<f2").astype(np.float32),
    "BF16": _bfloat16,
}


def _head(base: Base, named: list[tuple[tuple[str, str], Pair]]) -> bytes:
    facts = [
        ("general.architecture", base.architecture),
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(named), len(facts))
    for key, value in facts:
        head += _string(key) + struct.pack("<I", _STRING) + _string(value)
    parts: list[bytes] = [head]
    offset = 0
    for (name, _), pair in named:
        for suffix, tensor in (("lora_a", pair.a), ("lora_b", pair.b)):
            rows, columns = tensor.shape
            parts.append(
                _string(f"{name}.{suffix}") + struct.pack("<IQQIQ", 2, columns, rows, _FLOAT32, offset)
            )
            offset += -(-rows * columns * 4 // _ALIGNMENT) * _ALIGNMENT
    whole = b"".join(parts)
    return whole + bytes(-len(whole) % _ALIGNMENT)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _write(file: BinaryIO, values: Weights) -> None:
    data = np.ascontiguousarray(values, "<f4").tobytes()
    file.write(data)
    file.write(bytes(-len(data) % _ALIGNMENT))
