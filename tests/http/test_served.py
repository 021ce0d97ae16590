"""Which model a caller reaches, and what it learns of those that its key does not cover."""

import msgspec
import pytest

from onward.admission.keys import Key
from onward.core.checkpoint import Adapter
from onward.core.failure import Failure, FailureKind
from onward.dialects.openai import OPENAI
from onward.dialects.schema import ErrorRow
from onward.engines.scripted import ScriptedEngine
from onward.http.served import Models
from onward.routing.catalog import Catalog, Model
from onward.routing.checkpoints import Checkpoint, unknown_checkpoint
from onward.serve.model import ServedModel

OPEN = Model(id="open", context_length=16, repo="Org/Base")
HIDDEN = Model(id="hidden", context_length=16, aliases=("secret-name",), repo="Org/Hidden")
KEY = Key(id="k", name="k", sha256=b"", models=frozenset({"open"}))
TELLING = msgspec.structs.replace(
    OPENAI,
    errors={
        **OPENAI.errors,
        FailureKind.MODEL_NOT_ALLOWED: ErrorRow(403, "permission_error", "MODEL_NOT_ALLOWED"),
    },
)


class OfHidden:
    """There is one checkpoint, of the hidden model."""

    async def find(self, path: str, base: object) -> Checkpoint:
        if path != "tinker://run/sampler_weights/a":
            raise unknown_checkpoint(path)
        return Checkpoint("hidden", Adapter("adapter", "/adapter.gguf"))


@pytest.fixture
def models(text_side) -> Models:
    served = {
        model.id: [ServedModel(model, text_side.tokenizer, None, ScriptedEngine([]))]
        for model in (HIDDEN, OPEN)
    }
    return Models(Catalog([HIDDEN, OPEN]), served, OfHidden())


async def refused(models: Models, dialect, reference: str) -> Failure:
    with pytest.raises(Failure) as caught:
        await models.served(dialect, reference, KEY)
    return caught.value


@pytest.mark.parametrize(
    ("hidden", "unknown"),
    [
        ("hidden", "nobody"),
        ("secret-name", "nobody"),
        ("Org/Hidden", "Org/Nobody"),
        ("hidden:peft:8", "nobody:peft:8"),
        ("tinker://run/sampler_weights/a", "tinker://run/sampler_weights/b"),
        ("hidden;tinker://run/sampler_weights/a", "nobody;tinker://run/sampler_weights/a"),
        ("hidden;tinker://run/sampler_weights/a", "hidden;tinker://run/sampler_weights/b"),
    ],
)
@pytest.mark.covers("O-5")
async def test_a_hidden_model_looks_like_one_that_is_not_there(models, hidden: str, unknown: str):
    said, expected = await refused(models, OPENAI, hidden), await refused(models, OPENAI, unknown)
    assert said.message.replace(hidden, "X") == expected.message.replace(unknown, "X")
    assert said.param == expected.param == "model"
    assert OPENAI.errors[said.kind] == OPENAI.errors[expected.kind]
    assert "hidden" not in said.message.replace(hidden, "X")
    assert "hidden" not in expected.message.replace(unknown, "X")


async def test_a_dialect_may_tell(models):
    for reference in ("hidden", "secret-name", "tinker://run/sampler_weights/a"):
        assert (await refused(models, TELLING, reference)).kind is FailureKind.MODEL_NOT_ALLOWED
    assert (await refused(models, TELLING, "nobody")).kind is FailureKind.UNKNOWN_MODEL


async def test_what_a_key_covers_is_found(models):
    assert (await models.served(OPENAI, "open", KEY)).model is OPEN
    assert (await models.served(OPENAI, None, KEY)).model is OPEN
    assert (await models.served(OPENAI, "hidden", None)).model is HIDDEN
    checkpoint = await models.served(OPENAI, "tinker://run/sampler_weights/a", None)
    assert (checkpoint.model, checkpoint.adapter) == (HIDDEN, Adapter("adapter", "/adapter.gguf"))
