"""The models of a configuration, by what callers call them."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from onward.core.content_filter import ContentFilter
from onward.core.failure import Failure, FailureKind, excerpt
from onward.core.price import Price
from onward.core.reference import ModelReference

_NAMED_IN_A_MESSAGE: Final = 5


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model as callers see it, whoever runs it."""

    id: str
    aliases: tuple[str, ...] = ()
    repo: str | None = None
    """Public repo ID: another name of it; picks the renderer, checks the base of checkpoints."""
    kind: str = "instruct"
    """base, instruct, hybrid or reasoning."""
    capabilities: frozenset[str] = frozenset({"completions", "chat"})
    """Of completions, chat, tools, images."""
    renderer: str | None = None
    """The family of its chat format, or ``template``; None: it has none."""
    renderer_reason: str | None = None
    """Why this one, in words."""
    context_length: int
    default_max_tokens: int | None = None
    """Where the dialect lets the model decide."""
    price: Price | None = None
    """None: not priced, and refused where money is counted."""
    created: int = 0
    """Unix seconds."""
    owned_by: str = "onward"
    agreement: bool = False
    """Whether a tenant must have accepted its terms first."""
    content_filter: ContentFilter | None = None
    """What must not go in or come out; None: anything may."""


class Catalog:
    """Every model, in the order of the configuration. The first one is the default."""

    def __init__(self, models: Iterable[Model]) -> None:
        """ValueError if two models share a name."""
        self._models: dict[str, Model] = {}
        for model in models:
            if model.id in self._models:
                raise ValueError(f"two models have the ID '{model.id}'")
            self._models[model.id] = model
        self._by_name = dict(self._models)
        for model in self._models.values():
            for alias in model.aliases:
                other = self._by_name.setdefault(alias, model)
                if other is not model:
                    raise ValueError(f"the alias '{alias}' of '{model.id}' already names '{other.id}'")
        for model in self._models.values():
            if model.repo:  # of several models out of one repository it names the first
                self._by_name.setdefault(model.repo, model)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._models)

    def by_id(self, model: str) -> Model:
        """The model of an ID that is known to exist."""
        return self._models[model]

    def named(self, name: str | None) -> Model | None:
        """The model that has this ID, alias or repo ID."""
        return None if name is None else self._by_name.get(name)

    def find(self, reference: ModelReference) -> Model:
        """The model of a reference to one alone. Raises `Failure` (UNKNOWN_MODEL)."""
        model = None if reference.checkpoint else self.find_base(reference)
        if model is None:
            raise self.unknown(reference.text)
        return model

    def find_base(self, reference: ModelReference) -> Model | None:
        """The base model that a reference names, None if it names none. Raises UNKNOWN_MODEL."""
        if not reference.base:
            return None
        model = self._by_name.get(reference.base)
        if model is None:
            raise self.unknown(reference.text)
        return model

    def find_or_first(self, reference: ModelReference) -> Model:
        """The same, but the first model where the caller named none (O-4)."""
        if not reference.text and self._models:
            return next(iter(self))
        return self.find(reference)

    def unknown(self, text: str) -> Failure:
        """The failure of a name that none of these models has."""
        names = [f"'{excerpt(model.id)}'" for model in list(self)[:_NAMED_IN_A_MESSAGE]]
        more = len(self) - len(names)
        known = ", ".join(names) + (f" and {more} more: see /models" if more > 0 else "")
        return Failure(
            FailureKind.UNKNOWN_MODEL,
            f"The model '{excerpt(text)}' does not exist here. There is {known or 'no model at all'}.",
            param="model",
        )
