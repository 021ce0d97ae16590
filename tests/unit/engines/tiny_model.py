"""A tiny random language model: as a GGUF for llama.cpp, and computed with numpy from its original weights.

The numpy side knows nothing of llama.cpp's layouts: it has the weights, and the rotary embedding, as the
original implementations of these models do.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LAYERS, WIDTH, HEADS, HEADS_KV, FEED_FORWARD, VOCABULARY = 2, 64, 4, 2, 96, 80
THETA, EPSILON = 10000.0, 1e-5
HEAD_SIZE = {"llama": 16, "qwen2": 16, "qwen3": 24}

_UINT32, _FLOAT32, _STRING = 4, 6, 8


def shapes(architecture: str) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of every linear module, by its original name."""
    query, key = HEADS * HEAD_SIZE[architecture], HEADS_KV * HEAD_SIZE[architecture]
    layer = {
        "self_attn.q_proj": (query, WIDTH),
        "self_attn.k_proj": (key, WIDTH),
        "self_attn.v_proj": (key, WIDTH),
        "self_attn.o_proj": (WIDTH, query),
        "mlp.gate_proj": (FEED_FORWARD, WIDTH),
        "mlp.up_proj": (FEED_FORWARD, WIDTH),
        "mlp.down_proj": (WIDTH, FEED_FORWARD),
    }
    found = {f"model.layers.{n}.{name}": shape for n in range(LAYERS) for name, shape in layer.items()}
    return {**found, "lm_head": (VOCABULARY, WIDTH)}


@dataclass
class TinyModel:
    architecture: str
    weights: dict[str, np.ndarray]

    @classmethod
    def random(cls, architecture: str) -> "TinyModel":
        generator = np.random.default_rng(7)

        def draw(*shape: int, scale: float) -> np.ndarray:
            return generator.normal(0, scale, shape).astype(np.float32)

        weights = {f"{name}.weight": draw(*shape, scale=0.25) for name, shape in shapes(architecture).items()}
        weights["model.embed_tokens.weight"] = draw(VOCABULARY, WIDTH, scale=1)
        weights["model.norm.weight"] = 1 + draw(WIDTH, scale=0.1)
        for n in range(LAYERS):
            layer = f"model.layers.{n}."
            weights[layer + "input_layernorm.weight"] = 1 + draw(WIDTH, scale=0.1)
            weights[layer + "post_attention_layernorm.weight"] = 1 + draw(WIDTH, scale=0.1)
            for letter in "qkv" if architecture == "qwen2" else "":
                outputs = shapes(architecture)[f"{layer}self_attn.{letter}_proj"][0]
                weights[f"{layer}self_attn.{letter}_proj.bias"] = draw(outputs, scale=0.3)
            for letter in "qk" if architecture == "qwen3" else "":
                weights[f"{layer}self_attn.{letter}_norm.weight"] = 1 + draw(HEAD_SIZE["qwen3"], scale=0.1)
        return cls(architecture, weights)

    def merged(self, deltas: dict[str, np.ndarray]) -> "TinyModel":
        """The model with something added to its weights, by module."""
        weights = dict(self.weights)
        for module, delta in deltas.items():
            weights[f"{module}.weight"] = (weights[f"{module}.weight"] + delta).astype(np.float32)
        return TinyModel(self.architecture, weights)

    # The model itself

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Of every position, in float64."""
        get = {name: value.astype(np.float64) for name, value in self.weights.items()}
        x = get["model.embed_tokens.weight"][tokens]
        for n in range(LAYERS):
            layer = f"model.layers.{n}."
            x = x + self._attention(get, layer, _norm(x, get[layer + "input_layernorm.weight"]))
            h = _norm(x, get[layer + "post_attention_layernorm.weight"])
            gate, up = h @ get[layer + "mlp.gate_proj.weight"].T, h @ get[layer + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ get[layer + "mlp.down_proj.weight"].T
        return _norm(x, get["model.norm.weight"]) @ get["lm_head.weight"].T

    def _attention(self, get: dict[str, np.ndarray], layer: str, x: np.ndarray) -> np.ndarray:
        size = HEAD_SIZE[self.architecture]

        def project(letter: str, heads: int) -> np.ndarray:
            name = f"{layer}self_attn.{letter}_proj"
            y = x @ get[name + ".weight"].T + get.get(name + ".bias", 0)
            return y.reshape(len(x), heads, size)

        q, k, v = project("q", HEADS), project("k", HEADS_KV), project("v", HEADS_KV)
        if self.architecture == "qwen3":
            q = _norm(q, get[layer + "self_attn.q_norm.weight"])
            k = _norm(k, get[layer + "self_attn.k_norm.weight"])
        q, k = _rotate(q), _rotate(k)
        k, v = (np.repeat(one, HEADS // HEADS_KV, axis=1) for one in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores = np.where(np.tril(np.ones((len(x), len(x)), dtype=bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
        return mixed.reshape(len(x), HEADS * size) @ get[layer + "self_attn.o_proj.weight"].T

    # As a GGUF

    def write_gguf(self, path: Path) -> None:
        """As llama.cpp's own converter would: rows of Q and K interleaved for the architecture llama."""
        facts: list[tuple[str, int, str | int | float]] = [
            ("general.architecture", _STRING, self.architecture),
            ("tokenizer.ggml.model", _STRING, "no_vocab"),
        ]
        facts += [(f"{self.architecture}.{name}", kind, value) for name, kind, value in self._sizes()]
        tensors: dict[str, np.ndarray] = {}
        for name, value in self.weights.items():
            place, _, ending = name.rpartition(".")
            heads = {"q_proj": HEADS, "k_proj": HEADS_KV}.get(place.rpartition(".")[2])
            moved = heads is not None and self.architecture == "llama"
            tensors[f"{_gguf_name(place)}.{ending}"] = _interleaved(value, heads) if moved else value
        path.write_bytes(_gguf(facts, tensors))

    def _sizes(self) -> list[tuple[str, int, str | int | float]]:
        size = HEAD_SIZE[self.architecture]
        return [
            ("vocab_size", _UINT32, VOCABULARY),
            ("context_length", _UINT32, 256),
            ("embedding_length", _UINT32, WIDTH),
            ("block_count", _UINT32, LAYERS),
            ("feed_forward_length", _UINT32, FEED_FORWARD),
            ("attention.head_count", _UINT32, HEADS),
            ("attention.head_count_kv", _UINT32, HEADS_KV),
            ("attention.key_length", _UINT32, size),
            ("attention.value_length", _UINT32, size),
            ("rope.dimension_count", _UINT32, size),
            ("rope.freq_base", _FLOAT32, THETA),
            ("attention.layer_norm_rms_epsilon", _FLOAT32, EPSILON),
        ]


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def _rotate(x: np.ndarray) -> np.ndarray:
    """Rotary embedding as the originals have it: the first half of a head beside the second."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] / THETA ** (np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def _interleaved(value: np.ndarray, heads: int) -> np.ndarray:
    """Row `2 i` of a head is its old row `i`, row `2 i + 1` its old row `half + i`."""
    size = len(value) // heads
    order = [head * size + i % 2 * (size // 2) + i // 2 for head in range(heads) for i in range(size)]
    return value[order]


def _gguf_name(place: str) -> str:
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    if place in names:
        return names[place]
    number, _, rest = place.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{names[rest]}"


def _gguf(facts: list[tuple[str, int, str | int | float]], tensors: dict[str, np.ndarray]) -> bytes:
    def string(text: str) -> bytes:
        return struct.pack("<Q", len(text)) + text.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    for key, kind, value in facts:
        packed = {_UINT32: "<I", _FLOAT32: "<f"}
        head += string(key) + struct.pack("<I", kind)
        head += string(value) if kind == _STRING else struct.pack(packed[kind], value)
    body = b""
    for name, value in tensors.items():
        head += string(name) + struct.pack(f"<I{value.ndim}QIQ", value.ndim, *value.shape[::-1], 0, len(body))
        body += value.astype("<f4").tobytes()
        body += bytes(-len(body) % 32)
    return head + bytes(-len(head) % 32) + body
