"""Makes checkpoints for tests, as PEFT saves them: random LoRA adapters of the default model."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_LAYERS, _RANK = 30, 4
_SHAPES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}
"""Outputs and inputs of the modules of every layer."""

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
"""By name the dtype, shape and bytes."""


def safetensors(tensors: Tensors) -> bytes:
    """A weights file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        span = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": span}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def config(**fields: Any) -> bytes:
    """``adapter_config.json``; `fields` replace those of a plain adapter."""
    plain = {
        "peft_type": "LORA",
        "base_model_name_or_path": BASE,
        "r": _RANK,
        "lora_alpha": 16,
        "target_modules": sorted(name.rpartition(".")[2] for name in _SHAPES),
        "bias": "none",
        "modules_to_save": None,
    }
    return json.dumps({**plain, **fields}).encode()


def weights(seed: int) -> bytes:
    """Random weights, strong enough to change what the model says."""
    generator = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(_LAYERS):
        for module, (outputs, inputs) in _SHAPES.items():
            for half, shape in (("A", (_RANK, inputs)), ("B", (outputs, _RANK))):
                values = generator.normal(0, 0.04, shape).astype("<f4")
                upper = (values.view("<u4") >> 16).astype("<u2")
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"
                tensors[name] = ("BF16", shape, upper.tobytes())
    return safetensors(tensors)


def save(folder: Path, seed: int, **fields: Any) -> Path:
    """A whole checkpoint at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_bytes(config(**fields))
    (folder / WEIGHTS).write_bytes(weights(seed))
    return folder
