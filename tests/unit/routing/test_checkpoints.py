"""What references to checkpoints lead to (TC-1)."""

import pytest

from onward.core.checkpoint import Adapter
from onward.core.failure import Failure, FailureKind
from onward.dialects.reference import parse
from onward.dialects.tinker import TINKER
from onward.routing.catalog import Catalog, Model
from onward.routing.checkpoints import Checkpoint, NoCheckpoints, Resolved, resolve, unknown_checkpoint

FIRST = Model(id="first", repo="org/First", context_length=10)
SECOND = Model(id="second", context_length=10)
CATALOG = Catalog([FIRST, SECOND])
ADAPTER = Adapter("adapter-1", "/adapters/1.gguf")
PATH = "tinker://run-1/sampler_weights/step-9"


class One:
    """There is one checkpoint, of the first model."""

    async def find(self, path: str, base: Model | None) -> Checkpoint:
        if path != PATH:
            raise unknown_checkpoint(path)
        return Checkpoint("first", ADAPTER)


async def resolved(text: str) -> Resolved:
    return await resolve(CATALOG, One(), parse(TINKER, text))


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    "text", [PATH, f"first;{PATH}", f"org/First;{PATH}", f"org/First:peft:262144;{PATH}"]
)
async def test_a_checkpoint_is_found_with_its_base_model(text: str) -> None:
    assert await resolved(text) == Resolved(FIRST, ADAPTER)


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("text", ["second", "org/First", "org/First:peft:8"])
async def test_a_model_alone_has_no_checkpoint(text: str) -> None:
    assert (await resolved(text)).adapter is None


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"second;{PATH}", FailureKind.INVALID_REQUEST, "was made from 'first', not from 'second'"),
        (f"nope;{PATH}", FailureKind.UNKNOWN_MODEL, "does not exist here"),
        (f"first;{PATH}x", FailureKind.UNKNOWN_MODEL, "There is no checkpoint"),
        (f"{PATH}x", FailureKind.UNKNOWN_MODEL, "There is no checkpoint"),
        ("tinker://" + "x" * 500, FailureKind.UNKNOWN_MODEL, "There is no checkpoint"),
        ("first;", FailureKind.UNKNOWN_MODEL, "does not exist here"),
        (f";{PATH}", FailureKind.UNKNOWN_MODEL, "does not exist here"),
    ],
)
async def test_what_is_not_there_is_said(text: str, kind: FailureKind, said: str) -> None:
    with pytest.raises(Failure) as caught:
        await resolved(text)
    assert (caught.value.kind, caught.value.param) == (kind, "model")
    assert said in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.covers("TC-1")
async def test_without_folders_there_is_no_checkpoint() -> None:
    with pytest.raises(Failure) as caught:
        await resolve(CATALOG, NoCheckpoints(), parse(TINKER, PATH))
    assert caught.value.kind is FailureKind.UNKNOWN_MODEL
