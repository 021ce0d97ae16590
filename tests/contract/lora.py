"""Writes a LoRA adapter in GGUF form, as small as one can be."""

import struct
from pathlib import Path

import numpy as np

_STRING, _FLOAT32 = 8, 6
_ALIGNMENT = 32


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", _STRING) + _string(value)


def write_adapter(
    path: Path, *, layers: int, width: int, scale: float, rank: int = 4, half: bool = False
) -> None:
    """A random adapter of every layer's query and output projection, of `width` x `width`, in 16 bits if `half`."""
    random = np.random.default_rng(1)
    tensors = {
        f"blk.{layer}.{name}.weight.{part}": random.normal(0, scale, shape).astype(np.float32)
        for layer in range(layers)
        for name in ("attn_q", "attn_output")
        for part, shape in (("lora_a", (rank, width)), ("lora_b", (width, rank)))
    }
    facts = [
        _text("general.architecture", "llama"),
        _text("general.type", "adapter"),
        _text("adapter.type", "lora"),
        _string("adapter.lora.alpha") + struct.pack("<If", _FLOAT32, 16.0),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join(facts)
    body = b""
    for name, values in tensors.items():
        rows, columns = values.shape
        head += _string(name) + struct.pack("<IQQIQ", 2, columns, rows, int(half), len(body))
        body += values.astype(np.float16 if half else np.float32).tobytes()
        body += bytes(-len(body) % _ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + body)
