"""Checkpoints of models: what a reference to one leads to (TC-1)."""

from typing import Protocol

import msgspec

from onward.core.checkpoint import Adapter
from onward.core.failure import Failure, FailureKind, excerpt, invalid
from onward.core.reference import ModelReference
from onward.routing.catalog import Catalog, Model


class Checkpoint(msgspec.Struct, frozen=True):
    """A fine-tuned adapter of a model that we serve."""

    model: str
    """ID of its base model in the catalog."""
    adapter: Adapter
    """What the engine gets of it."""


class Checkpoints(Protocol):
    """Where checkpoints are found. They come and go while the server runs."""

    async def find(self, path: str, base: Model | None) -> Checkpoint:
        """The checkpoint at a path such as ``tinker://RUN/sampler_weights/NAME``, ready to sample.

        Where it fits several models it is of `base`, the one that the caller named, if that is one of
        them. Raises `Failure`: UNKNOWN_MODEL where there is none that is complete, INVALID_REQUEST where
        it was made for another base model than the one whose folder it lies in.
        """
        ...


class NoCheckpoints:
    """No model has a folder of checkpoints."""

    async def find(self, path: str, base: Model | None) -> Checkpoint:  # noqa: ARG002
        raise unknown_checkpoint(path)


class Resolved(msgspec.Struct, frozen=True):
    """What a model reference means here."""

    model: Model
    adapter: Adapter | None = None


async def resolve(catalog: Catalog, checkpoints: Checkpoints, reference: ModelReference) -> Resolved:
    """The model of a reference, and its checkpoint if one is named.

    Raises `Failure`: UNKNOWN_MODEL for a model or a checkpoint that is not there, INVALID_REQUEST
    for a checkpoint of another base model.
    """
    if reference.checkpoint is None:
        return Resolved(catalog.find(reference))
    base = catalog.find_base(reference)
    found = await checkpoints.find(reference.checkpoint, base)
    model = catalog.by_id(found.model)
    if base is not None and base is not model:
        raise invalid(
            "model",
            f"The checkpoint '{excerpt(reference.checkpoint)}' was made from '{excerpt(model.id)}', "
            f"not from '{excerpt(base.id)}'. Name it with its own base model, or alone.",
        )
    return Resolved(model, found.adapter)


def is_made_from(model: Model, base: str) -> bool:
    """Whether a checkpoint that names its base model so is one of `model`.

    Trainers write a repository's name, or the path of a folder that is called like it.
    """
    names = [name for name in (model.repo, model.id, *model.aliases) if name]
    wanted = base.casefold().replace("\\", "/").rstrip("/")
    if wanted.startswith(("/", ".", "~")) or wanted.count("/") != 1:
        return wanted.rpartition("/")[2] in {name.casefold().rpartition("/")[2] for name in names}
    return wanted in {name.casefold() for name in names}


def unknown_checkpoint(path: str, why: str = "") -> Failure:
    """The failure of a checkpoint that is not there, or not there yet: `why` says what is missing."""
    detail = f": {why}" if why else ""
    return Failure(
        FailureKind.UNKNOWN_MODEL, f"There is no checkpoint '{excerpt(path)}' here{detail}.", param="model"
    )
