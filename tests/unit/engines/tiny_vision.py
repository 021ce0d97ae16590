"""A tiny random vision model: the form of Qwen2-VL's language model, and of its projector, as GGUFs.

Its vocabulary has the control tokens of Qwen's newer chat formats, so that every part of the way of an
image is the real one: renderer, marks, positions of several dimensions. The projector takes images
of any size: a token for each 2 x 2 patches of `PATCH` x `PATCH` pixels.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.rendering.tiny import byte_level_metadata

CONTROL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
]
START, END = CONTROL.index("<|vision_start|>"), CONTROL.index("<|vision_end|>")
CONTEXT = 512

PATCH = 8
_LAYERS, _WIDTH, _HEADS, _HEADS_KV, _HEAD, _FEED_FORWARD = 2, 64, 4, 2, 16, 96
_EYE_WIDTH, _EYE_HEADS, _EYE_FEED_FORWARD = 32, 2, 48

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
Fact = tuple[str, int, Any]
Tensors = dict[str, np.ndarray]


def vocabulary() -> dict[str, Any]:
    """The tokenizer's metadata: control tokens, every byte, a few merges."""
    found = byte_level_metadata()
    rest = [
        token
        for token, kind in zip(
            found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"], strict=True
        )
        if kind == 1
    ]
    return {
        **found,
        "tokenizer.ggml.tokens": [*CONTROL, *rest],
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * len(rest),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": CONTROL.index("<|im_end|>"),
    }


def write_model(path: Path) -> None:
    """The language model."""
    generator = np.random.default_rng(5)
    words = vocabulary()
    size = len(words["tokenizer.ggml.tokens"])

    def draw(outputs: int, inputs: int, scale: float = 1.5) -> np.ndarray:
        return generator.normal(0, scale * inputs**-0.5, (outputs, inputs))

    tensors: Tensors = {
        "token_embd.weight": generator.normal(0, 1, (size, _WIDTH)),
        "output_norm.weight": 1 + generator.normal(0, 0.1, _WIDTH),
        "output.weight": draw(size, _WIDTH),
    }
    for n in range(_LAYERS):
        shapes = {
            "attn_q": (_HEADS * _HEAD, _WIDTH),
            "attn_k": (_HEADS_KV * _HEAD, _WIDTH),
            "attn_v": (_HEADS_KV * _HEAD, _WIDTH),
            "attn_output": (_WIDTH, _HEADS * _HEAD),
            "ffn_gate": (_FEED_FORWARD, _WIDTH),
            "ffn_up": (_FEED_FORWARD, _WIDTH),
            "ffn_down": (_WIDTH, _FEED_FORWARD),
        }
        for name, (outputs, inputs) in shapes.items():
            tensors[f"blk.{n}.{name}.weight"] = draw(outputs, inputs)
        for name in ("attn_q", "attn_k", "attn_v"):
            tensors[f"blk.{n}.{name}.bias"] = generator.normal(0, 0.3, shapes[name][0])
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{n}.{name}.weight"] = 1 + generator.normal(0, 0.1, _WIDTH)
    facts: list[Fact] = [("general.architecture", _STRING, "qwen2vl")]
    numbers = {
        "context_length": CONTEXT,
        "embedding_length": _WIDTH,
        "block_count": _LAYERS,
        "feed_forward_length": _FEED_FORWARD,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _HEADS_KV,
        "rope.dimension_count": _HEAD,
    }
    facts += [(f"qwen2vl.{name}", _UINT32, value) for name, value in numbers.items()]
    facts += [
        ("qwen2vl.rope.dimension_sections", _ARRAY, (_INT32, [2, 3, 3, 0])),
        ("qwen2vl.rope.freq_base", _FLOAT32, 10000.0),
        ("qwen2vl.attention.layer_norm_rms_epsilon", _FLOAT32, 1e-6),
    ]
    kinds = {str: _STRING, int: _UINT32, bool: _BOOL}
    for name, value in words.items():
        if isinstance(value, list):
            facts.append((name, _ARRAY, (_INT32 if name.endswith("token_type") else _STRING, value)))
        else:
            facts.append((name, kinds[type(value)], value))
    path.write_bytes(_gguf(facts, tensors))


def write_projector(path: Path, width: int = _WIDTH, *, form: str = "qwen") -> None:
    """A projector for language models of this width.

    The form "gemma" takes squares of 128 pixels, 16 tokens, of which each sees all others.
    """
    generator = np.random.default_rng(11)
    tensors: Tensors = {}

    def linear(name: str, outputs: int, inputs: int, scale: float = 1) -> None:
        tensors[f"{name}.weight"] = generator.normal(0, scale * inputs**-0.5, (outputs, inputs))
        tensors[f"{name}.bias"] = generator.normal(0, 0.1, outputs)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + generator.normal(0, 0.1, _EYE_WIDTH)
        tensors[f"{name}.bias"] = generator.normal(0, 0.1, _EYE_WIDTH)

    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        tensors[name] = generator.normal(0, 0.1, (_EYE_WIDTH, 3, PATCH, PATCH))
    norm("v.blk.0.ln1")
    norm("v.blk.0.ln2")
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        linear(f"v.blk.0.{part}", _EYE_WIDTH, _EYE_WIDTH)
    linear("v.blk.0.ffn_up", _EYE_FEED_FORWARD, _EYE_WIDTH)
    linear("v.blk.0.ffn_down", _EYE_WIDTH, _EYE_FEED_FORWARD)
    norm("v.post_ln")
    if form == "gemma":
        del tensors["v.patch_embd.weight.1"]
        tensors["v.position_embd.weight"] = generator.normal(0, 0.1, ((128 // PATCH) ** 2, _EYE_WIDTH))
        tensors["mm.input_projection.weight"] = generator.normal(0, 0.5, (_EYE_WIDTH, width))
        tensors["mm.soft_emb_norm.weight"] = 1 + generator.normal(0, 0.1, _EYE_WIDTH)
    linear("mm.0", 4 * _EYE_WIDTH, 4 * _EYE_WIDTH)
    linear("mm.2", width, 4 * _EYE_WIDTH, scale=2)
    half = (_FLOAT32, [0.5, 0.5, 0.5])
    facts: list[Fact] = [
        ("general.architecture", _STRING, "clip"),
        ("clip.has_vision_encoder", _BOOL, True),
        ("clip.projector_type", _STRING, "gemma3" if form == "gemma" else "qwen2vl_merger"),
        ("clip.use_gelu", _BOOL, False),
        ("clip.vision.image_size", _UINT32, 128 if form == "gemma" else 64),
        ("clip.vision.patch_size", _UINT32, PATCH),
        ("clip.vision.embedding_length", _UINT32, _EYE_WIDTH),
        ("clip.vision.feed_forward_length", _UINT32, _EYE_FEED_FORWARD),
        ("clip.vision.block_count", _UINT32, 1),
        ("clip.vision.attention.head_count", _UINT32, _EYE_HEADS),
        ("clip.vision.projection_dim", _UINT32, width),
        ("clip.vision.attention.layer_norm_epsilon", _FLOAT32, 1e-6),
        ("clip.vision.image_mean", _ARRAY, half),
        ("clip.vision.image_std", _ARRAY, half),
        ("clip.vision.image_min_pixels", _UINT32, 32 * 32),
        ("clip.vision.image_max_pixels", _UINT32, 256 * 256),
    ]
    path.write_bytes(_gguf(facts, tensors))


def _gguf(facts: list[Fact], tensors: Tensors) -> bytes:
    def string(text: str) -> bytes:
        return struct.pack("<Q", len(text.encode())) + text.encode()

    def packed(kind: int, value: Any) -> bytes:
        if kind == _STRING:
            return string(value)
        if kind == _ARRAY:
            inner, items = value
            return struct.pack("<IQ", inner, len(items)) + b"".join(packed(inner, item) for item in items)
        return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    for key, kind, value in facts:
        head += string(key) + struct.pack("<I", kind) + packed(kind, value)
    body = b""
    for name, value in tensors.items():
        head += string(name) + struct.pack(f"<I{value.ndim}QIQ", value.ndim, *value.shape[::-1], 0, len(body))
        body += value.astype("<f4").tobytes()
        body += bytes(-len(body) % 32)
    return head + bytes(-len(head) % 32) + body
