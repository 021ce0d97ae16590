"""Converted adapters: llama.cpp with one computes what the original model with merged weights would."""

import math
from pathlib import Path

import numpy as np
import pytest

from onward.core.checkpoint import SavedCheckpoint
from onward.core.failure import Failure, FailureKind
from onward.engines.llama.binding import Context, Library, Model
from onward.engines.llama.lora import Base, base_of, convert, reorder
from onward.rendering.gguf import read_metadata
from onward.sources.safetensors import read_tensors
from tests.checkpoints import safetensors

from .tiny_model import HEAD_SIZE, HEADS, VOCABULARY, TinyModel, shapes

PROMPT = [3, 71, 15, 0, 79, 8, 22, 22, 41, 5]
ARCHITECTURES = list(HEAD_SIZE)


@pytest.fixture(scope="session")
def library():
    return Library()


@pytest.fixture(scope="module", params=ARCHITECTURES)
def tiny(request, library, tmp_path_factory):
    """A tiny model twice: with numpy, and in llama.cpp."""
    reference = TinyModel.random(request.param)
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    reference.write_gguf(path)
    model = Model(library, str(path))
    yield reference, model, base_of(read_metadata(path.read_bytes()))
    model.close()


@pytest.fixture
def save(tmp_path):
    """Write a checkpoint and look at it as a source of checkpoints would."""

    def write(tensors, **config) -> SavedCheckpoint:
        weights = tmp_path / "adapter_model.safetensors"
        weights.write_bytes(safetensors(tensors))
        return SavedCheckpoint(
            path="tinker://run/sampler_weights/name",
            config={"peft_type": "LORA", "r": 4, "lora_alpha": 16, **config},
            weights=str(weights),
            tensors=read_tensors(weights),
            version=(),
        )

    return write


def factors(architecture: str, modules: list[str] | None = None, rank: int = 4) -> dict[str, tuple]:
    """Random A and B of some modules; all of them by default."""
    generator = np.random.default_rng(11)
    return {
        module: (
            generator.normal(0, 0.3, (rank, inputs)).astype(np.float32),
            generator.normal(0, 0.3, (outputs, rank)).astype(np.float32),
        )
        for module, (outputs, inputs) in shapes(architecture).items()
        if modules is None or module in modules
    }


def stored(pairs: dict[str, tuple], encode=lambda values: ("F32", values.tobytes())) -> dict[str, tuple]:
    """As PEFT names and stores them."""
    return {
        f"base_model.model.{module}.lora_{half}.weight": (encoded[0], values.shape, encoded[1])
        for module, both in pairs.items()
        for half, values in zip("AB", both, strict=True)
        for encoded in [encode(values)]
    }


def in_llama(model: Model, adapter: Path | None = None) -> np.ndarray:
    """The logits of every position of the prompt."""
    context = Context(model, sequences=1, length=64, threads=1, batch=64)
    handle = None if adapter is None else model.load_adapter(str(adapter))
    context.use_adapter(handle)
    context.decode_chunk(0, PROMPT, 0, outputs="all")
    rows = np.stack([context.logits(row).copy() for row in range(len(PROMPT))])
    context.close()
    if handle is not None:
        model.free_adapter(handle)
    return rows


def assert_same(ours: np.ndarray, reference: np.ndarray) -> None:
    # llama.cpp keeps keys and values as float16.
    assert np.abs(ours - reference).max() < 0.01 * np.abs(reference).max()


def test_the_reference_is_the_model(tiny):
    reference, model, _ = tiny
    assert model.vocabulary == VOCABULARY
    assert_same(in_llama(model), reference.logits(PROMPT))


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    "modules",
    [
        None,
        ["model.layers.1.self_attn.q_proj"],
        ["model.layers.0.self_attn.k_proj"],
        [
            "model.layers.0.mlp.down_proj",
            "model.layers.1.self_attn.v_proj",
            "model.layers.1.self_attn.o_proj",
        ],
        ["lm_head"],
    ],
    ids=["all", "q", "k", "some", "output"],
)
def test_an_adapter_is_what_merging_it_would_be(tiny, save, tmp_path, modules):
    reference, model, base = tiny
    pairs = factors(reference.architecture, modules)
    target = tmp_path / "adapter.gguf"
    convert(save(stored(pairs)), base, target)
    merged = reference.merged({module: 16 / 4 * b @ a for module, (a, b) in pairs.items()}).logits(PROMPT)
    assert np.abs(merged - reference.logits(PROMPT)).max() > 0.1 * np.abs(merged).max()
    assert_same(in_llama(model, target), merged)


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"lora_alpha": 3}, 3 / 4),
        ({"lora_alpha": 0}, 0),
        ({"lora_alpha": 6, "use_rslora": True}, 6 / math.sqrt(4)),
        ({"alpha_pattern": {"self_attn.q_proj": 5}, "rank_pattern": {"q_proj": 4}}, 5 / 4),
        ({"alpha_pattern": {"q_proj": 5, "self_attn.q_proj": 9}}, 5 / 4),
        ({"alpha_pattern": {"^model.layers.1.self_attn.q_proj": 2}}, 2 / 4),
        ({"alpha_pattern": {"^self_attn.q_proj": 5, "roj": 5, "k_proj": 5}}, 16 / 4),
    ],
)
def test_the_scale_is_pefts(tiny, save, tmp_path, config, scale):
    reference, model, base = tiny
    pairs = factors(reference.architecture, ["model.layers.1.self_attn.q_proj"])
    target = tmp_path / "adapter.gguf"
    convert(save(stored(pairs), **config), base, target)
    merged = reference.merged({module: scale * b @ a for module, (a, b) in pairs.items()})
    assert_same(in_llama(model, target), merged.logits(PROMPT))


def _bfloat16(values: np.ndarray) -> np.ndarray:
    return values.astype("<f4").view("<u4") & 0xFFFF0000


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_16_bit_weights_are_read_exactly(tiny, save, tmp_path, dtype):
    reference, _, base = tiny
    pairs = factors(reference.architecture)
    if dtype == "F16":
        rounded = {name: tuple(x.astype("<f2").astype("<f4") for x in both) for name, both in pairs.items()}
        narrow = stored(pairs, lambda values: (dtype, values.astype("<f2").tobytes()))
    else:
        rounded = {name: tuple(_bfloat16(x).view("<f4") for x in both) for name, both in pairs.items()}
        narrow = stored(pairs, lambda values: (dtype, (_bfloat16(values) >> 16).astype("<u2").tobytes()))
    convert(save(narrow), base, tmp_path / "narrow.gguf")
    convert(save(stored(rounded)), base, tmp_path / "wide.gguf")
    assert (tmp_path / "narrow.gguf").read_bytes() == (tmp_path / "wide.gguf").read_bytes()


def test_rows_are_reordered_as_rotary_pairs():
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert reorder(rows, 1)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert reorder(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


BASE = Base("llama", 2, 64, HEADS, 2, 16, 96, VOCABULARY)
Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"peft_type": "LOHA"}, "'peft_type' is LOHA"),
        ({"peft_type": None}, "'peft_type' is None"),
        ({"use_dora": True}, "'use_dora'"),
        ({"bias": "lora_only"}, "'bias' is lora_only"),
        ({"lora_bias": True}, "'lora_bias'"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save' is not empty"),
        ({"trainable_token_indices": [1]}, "'trainable_token_indices'"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the base model itself"),
        ({"lora_alpha": "16"}, "'lora_alpha' is 16"),
        ({"lora_alpha": None}, "no usable number"),
        ({"lora_alpha": True}, "no usable number"),
        ({"lora_alpha": math.nan}, "no usable number"),
        ({"lora_alpha": 10**400}, "no usable number"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "no plain module name"),
        ({"alpha_pattern": [1]}, "'alpha_pattern' is no object"),
        ({"alpha_pattern": {"q_proj": "x"}}, "no usable number"),
    ],
)
def test_what_we_would_not_apply_exactly_is_refused(save, tmp_path, config, said):
    checkpoint = save(stored(factors("llama", [Q])), **config)
    with pytest.raises(Failure) as caught:
        convert(checkpoint, BASE, tmp_path / "adapter.gguf")
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "model")
    assert said in caught.value.message
    assert "tinker://run/sampler_weights/name" in caught.value.message


def _named(name: str, shape: tuple[int, int] = (4, 64)) -> dict[str, tuple]:
    return {name: ("F32", shape, bytes(shape[0] * shape[1] * 4))}


PREFIX = "base_model.model." + Q


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "no LoRA weights"),
        (_named(PREFIX + ".lora_A.weight"), "only one of its two weights"),
        (_named(PREFIX + ".lora_magnitude_vector"), "no LoRA weight of a linear layer"),
        (_named("base_model.model.model.embed_tokens.lora_embedding_A"), "no LoRA weight of a linear layer"),
        (_named("base_model.model.lm_head.weight"), "no LoRA weight of a linear layer"),
        (
            {**_named(PREFIX + ".lora_A.weight"), **_named(PREFIX + ".lora_B.weight", (64, 5))},
            "have shapes (4, 64) and (64, 5)",
        ),
        (
            {**_named(PREFIX + ".lora_A.weight"), **_named(PREFIX + ".lora_A.other.weight")},
            "twice",
        ),
        (
            {**_named(PREFIX + ".lora_A.weight", (4, 65)), **_named(PREFIX + ".lora_B.weight", (64, 4))},
            "made from another model?",
        ),
        (
            {**_named(PREFIX + ".lora_A.weight"), **_named(PREFIX + ".lora_B.weight", (96, 4))},
            "take 64 values to 96, those of the base model 64 to 64",
        ),
        (
            {PREFIX + ".lora_A.weight": ("F8_E4M3", (4, 64), bytes(256)), **_named(PREFIX + ".lora_B.weight", (64, 4))},
            "is F8_E4M3; F32, F16, BF16 are supported",
        ),
        (stored(factors("llama", [Q])) | stored({"model.layers.2.mlp.up_proj": factors("llama")[Q]}), "does not have"),
        (stored({"model.layers.x.mlp.up_proj": factors("llama")[Q]}), "does not have"),
        (stored({"model.layers.0.mlp.experts.0.up_proj": factors("llama")[Q]}), "does not have"),
        (stored({"model.embed_tokens": factors("llama")[Q]}), "does not have"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(save, tmp_path, tensors, said):
    with pytest.raises(Failure) as caught:
        convert(save(tensors), BASE, tmp_path / "adapter.gguf")
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    assert said in caught.value.message


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(save, tmp_path, value):
    pairs = factors("llama", [Q])
    pairs[Q][1][3, 2] = value
    with pytest.raises(Failure, match="not finite"):
        convert(save(stored(pairs)), BASE, tmp_path / "adapter.gguf")


def test_a_file_that_shrinks_meanwhile_is_not_taken_for_whole(save, tmp_path):
    checkpoint = save(stored(factors("llama", [Q])))
    data = Path(checkpoint.weights).read_bytes()
    Path(checkpoint.weights).write_bytes(data[:-1])
    with pytest.raises(EOFError):
        convert(checkpoint, BASE, tmp_path / "adapter.gguf")


def test_bases_that_adapters_cannot_be_converted_for_say_why():
    assert "not of gemma3" in base_of({"general.architecture": "gemma3"})
    sizes = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "feed_forward_length": 96}
    metadata = {"general.architecture": "llama", **{f"llama.{name}": size for name, size in sizes.items()}}
    assert base_of(metadata) == Base("llama", 2, 64, 4, 4, 16, 96, None)
    assert "dense" in base_of({**metadata, "llama.expert_count": 8})
    assert "one size" in base_of({**metadata, "llama.feed_forward_length": [1, 2]})
