"""References to checkpoints of several models, to the adapters that their engines get."""

import asyncio
from pathlib import Path

import pytest

from onward.core.failure import Failure, FailureKind
from onward.engines.llama import lora
from onward.routing.catalog import Model
from onward.routing.checkpoints import is_made_from
from onward.wiring import checkpoints
from onward.wiring.checkpoints import CheckpointedModel, FolderCheckpoints
from tests.checkpoints import BASE, CONFIG, WEIGHTS, config, save, weights

SMOL = Model(id="smol", repo=BASE, aliases=("small",), context_length=10)
TWIN = Model(id="twin", repo=BASE, context_length=10)
OTHER = Model(id="other", repo="org/Other", context_length=10)
PATH = "tinker://run/sampler_weights/{}"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ONWARD_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "checkpoints"
    root.mkdir()
    return root


def place(root: Path, name: str = "a") -> Path:
    return root / "run" / "sampler_weights" / name


@pytest.fixture
def found(root, gguf):
    """Checkpoints of one folder, for some models."""

    def of(*models: Model) -> FolderCheckpoints:
        return FolderCheckpoints(CheckpointedModel(model, root, gguf) for model in models)

    return of


async def refusal(source: FolderCheckpoints, name: str = "a", base: Model | None = None) -> Failure:
    with pytest.raises(Failure) as caught:
        await source.find(PATH.format(name), base)
    assert caught.value.param == "model"
    return caught.value


@pytest.mark.covers("TC-1")
async def test_a_checkpoint_is_converted_once_for_each_content(root, found, monkeypatch):
    converted = []
    convert = lora.convert
    monkeypatch.setattr(
        lora, "convert", lambda saved, *more: converted.append(saved) or convert(saved, *more)
    )
    save(place(root), 1)
    save(place(root, "copy"), 1)
    save(place(root, "b"), 2)
    source = found(SMOL)
    one, copy, other = [await source.find(PATH.format(name), None) for name in ("a", "copy", "b")]
    assert one == copy
    assert one.model == "smol"
    assert one.adapter.name != other.adapter.name
    assert Path(one.adapter.path).read_bytes()[:4] == b"GGUF"
    assert [await source.find(PATH.format("a"), None) for _ in range(3)] == [one] * 3
    assert await found(SMOL).find(PATH.format("a"), None) == one, "another process finds it in the cache"
    assert len(converted) == 2


@pytest.mark.covers("TC-1")
async def test_many_at_once_convert_once(root, found, monkeypatch):
    converted = []
    convert = lora.convert
    monkeypatch.setattr(
        lora, "convert", lambda saved, *more: converted.append(saved) or convert(saved, *more)
    )
    save(place(root), 1)
    source = found(SMOL)
    answers = await asyncio.gather(*(source.find(PATH.format("a"), None) for _ in range(20)))
    assert len({answer.adapter for answer in answers}) == 1
    assert len(converted) == 1


@pytest.mark.covers("TC-1")
async def test_what_was_saved_over_is_served_anew(root, found):
    save(place(root), 1)
    source = found(SMOL)
    before = await source.find(PATH.format("a"), None)
    (place(root) / WEIGHTS).write_bytes(weights(2)[:-1])
    assert "not complete" in (await refusal(source)).message
    (place(root) / WEIGHTS).write_bytes(weights(2))
    after = await source.find(PATH.format("a"), None)
    assert after.adapter != before.adapter
    (place(root) / CONFIG).write_bytes(config(lora_alpha=8))
    assert (await source.find(PATH.format("a"), None)).adapter not in {before.adapter, after.adapter}


async def test_what_was_removed_from_the_cache_is_made_again(root, found):
    save(place(root), 1)
    source = found(SMOL)
    before = await source.find(PATH.format("a"), None)
    content = Path(before.adapter.path).read_bytes()
    Path(before.adapter.path).unlink()
    assert await source.find(PATH.format("a"), None) == before
    assert Path(before.adapter.path).read_bytes() == content


async def test_the_cache_is_bounded(root, found, monkeypatch):
    source = found(SMOL)
    paths = []
    for seed in range(3):
        save(place(root, str(seed)), seed)
        if seed == 2:
            await source.find(PATH.format("0"), None)  # used again: the other one goes first
            monkeypatch.setattr(checkpoints, "CACHED_BYTES", 2 * paths[0].stat().st_size)
        paths.append(Path((await source.find(PATH.format(str(seed)), None)).adapter.path))
    assert [path.exists() for path in paths] == [True, False, True]
    assert not list(paths[0].parent.glob("*.partial"))


@pytest.mark.covers("TC-1")
async def test_nothing_there_and_not_all_there(root, found):
    source = found(SMOL)
    failure = await refusal(source)
    assert failure.kind is FailureKind.UNKNOWN_MODEL
    place(root).mkdir(parents=True)
    (place(root) / CONFIG).write_bytes(config())
    failure = await refusal(source)
    assert failure.kind is FailureKind.UNKNOWN_MODEL
    assert f"not complete, {WEIGHTS} is missing" in failure.message
    (place(root) / WEIGHTS).write_bytes(weights(1))
    assert (await source.find(PATH.format("a"), None)).model == "smol"


@pytest.mark.covers("TC-1")
async def test_a_checkpoint_of_another_base_is_refused(root, found):
    save(place(root), 1, base_model_name_or_path="org/Another")
    failure = await refusal(found(SMOL))
    assert failure.kind is FailureKind.INVALID_REQUEST
    assert "made from 'org/Another'" in failure.message


@pytest.mark.covers("TC-1")
async def test_shapes_that_do_not_fit_are_refused_each_time(root, found, monkeypatch):
    save(place(root), 1)
    monkeypatch.setattr(
        "onward.wiring.checkpoints.read_metadata",
        lambda _: {
            "general.architecture": "llama",
            "llama.block_count": 30,
            "llama.embedding_length": 640,
            "llama.attention.head_count": 10,
            "llama.feed_forward_length": 1536,
        },
    )
    source = found(SMOL)
    first, second = await refusal(source), await refusal(source)
    assert first is not second
    assert first.kind is FailureKind.INVALID_REQUEST
    assert "made from another model?" in first.message
    assert second.message == first.message


@pytest.mark.covers("TC-1")
async def test_models_that_share_a_folder_have_their_own_checkpoints(root, found):
    save(place(root), 1)
    assert (await found(OTHER, SMOL, TWIN).find(PATH.format("a"), None)).model == "smol"
    assert (await found(OTHER, SMOL, TWIN).find(PATH.format("a"), TWIN)).model == "twin"
    assert (await found(OTHER, SMOL, TWIN).find(PATH.format("a"), OTHER)).model == "smol"


async def test_a_checkpoint_that_names_no_base_is_one_of_its_folders_model(root, found):
    save(place(root), 1, base_model_name_or_path=None)
    assert (await found(SMOL).find(PATH.format("a"), None)).model == "smol"


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    ("base", "same"),
    [
        (BASE, True),
        (BASE.lower(), True),
        ("smol", True),
        ("small", True),
        ("/data/models/SmolLM2-135M-Instruct", True),
        ("./SmolLM2-135M-Instruct/", True),
        ("C:\\models\\SmolLM2-135M-Instruct", True),
        ("/data/models/SmolLM2-135M", False),
        ("SmolLM2-135M-Instruct", True),
        ("SmolLM2-135M", False),
        ("", False),
        ("HuggingFaceTB/SmolLM2-135M", False),
        ("another/SmolLM2-135M-Instruct", False),
    ],
)
def test_names_of_a_base_model(base, same):
    assert is_made_from(SMOL, base) is same
