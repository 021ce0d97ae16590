"""The models that callers can name, and the deployments that run them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from onward.admission.keys import Key, not_allowed
from onward.core.failure import Failure, FailureKind
from onward.dialects.reference import parse
from onward.dialects.schema import Dialect
from onward.engines.protocol import EngineState, EngineStatus
from onward.routing.catalog import Catalog, Model
from onward.routing.checkpoints import Checkpoints, NoCheckpoints, resolve, unknown_checkpoint
from onward.serve.model import Deployment, ServedModel


class Target(msgspec.Struct, frozen=True):
    """A model that a caller named and may use."""

    model: Model
    deployments: Sequence[Deployment]
    """In the order in which they are tried."""


class Models:
    """The catalog and what runs it. `deployments` is by model ID, each at least one."""

    def __init__(
        self,
        catalog: Catalog,
        deployments: Mapping[str, Sequence[Deployment]],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._catalog = catalog
        self._deployments = deployments
        self._checkpoints = checkpoints or NoCheckpoints()
        self._by_name: dict[tuple[Dialect, str], Target] = {}
        """Models under their own names, as they were asked for: no more than dialects times names."""
        self._by_deployment = {
            one.deployment: Target(catalog.by_id(model), [one])
            for model, several in deployments.items()
            for one in several
        }

    def known(self, dialect: Dialect, reference: str | None, key: Key | None) -> Target | None:
        """What `target` gives, where that was asked for before and is still open to the key."""
        if reference is None:
            return None
        known = self._by_name.get((dialect, reference))
        return known if known is not None and (key is None or key.allows(known.model.id)) else None

    async def target(self, dialect: Dialect, reference: str | None, key: Key | None) -> Target:
        """The model of a reference, with the checkpoint (TC-1) or the deployment (P-5) that it names. Raises
        `Failure`.

        None: the first model that the key may use.
        """
        if reference is not None:
            known = self.known(dialect, reference, key)
            if known is not None:
                return known
            parsed = parse(dialect, reference)
            seen = self._catalog if key is None or key.models is None else Catalog(self.visible(key))
            if parsed.account is not None and (key is None or parsed.account != key.tenant):
                raise seen.unknown(reference)
            if parsed.deployment is not None and self._catalog.named(parsed.base) is None:
                return self._deployment(dialect, parsed.deployment, key, seen.unknown(reference))
            try:
                base = seen.find_base(parsed) if parsed.checkpoint else seen.find(parsed)
            except Failure as unknown:
                raise self._withheld(dialect, self._catalog.named(parsed.base), unknown) from None
            if base is not None and parsed.checkpoint is None:
                target = Target(base, self._deployments[base.id])
                if base is self._catalog.named(reference):
                    self._by_name[dialect, reference] = target
                return target
            found = await resolve(self._catalog, self._checkpoints, parsed)
            if key is not None and not key.allows(found.model.id):
                raise self._withheld(dialect, found.model, unknown_checkpoint(parsed.checkpoint or ""))
            deployments = self._deployments[found.model.id]
            if found.adapter is not None:
                # a provider knows nothing of checkpoints
                deployments = [
                    replace(one, adapter=found.adapter) for one in deployments if isinstance(one, ServedModel)
                ]
            return Target(found.model, deployments)
        for model in self.visible(key):
            return Target(model, self._deployments[model.id])
        raise Failure(FailureKind.MODEL_NOT_ALLOWED, "No model is open to this API key.", param="model")

    async def served(self, dialect: Dialect, reference: str | None, key: Key | None) -> ServedModel:
        """The first deployment of a model whose tokens are ours. Raises as `target`, SURFACE_UNSUPPORTED."""
        target = await self.target(dialect, reference, key)
        for one in target.deployments:
            if isinstance(one, ServedModel):
                return one
        raise not_ours(target.model.id)

    def _deployment(self, dialect: Dialect, name: str, key: Key | None, unknown: Failure) -> Target:
        """The one deployment of a name, as if its model had no other (P-5). Raises `unknown`."""
        target = self._by_deployment.get(name)
        if target is None or (key is not None and not key.allows(target.model.id)):
            raise self._withheld(dialect, None if target is None else target.model, unknown, name)
        return target

    @staticmethod
    def _withheld(
        dialect: Dialect, model: Model | None, unknown: Failure, name: str | None = None
    ) -> Failure:
        """What a caller is told of `model`, which its key does not cover; None: there is none such.
        `name`: what the caller called it, where that is no name of the model.

        Where a dialect has the same row for both, nobody learns which of them it is.
        """
        kind = FailureKind.MODEL_NOT_ALLOWED
        if model is None:
            return unknown
        if dialect.errors[kind].looks_like(dialect.errors[FailureKind.UNKNOWN_MODEL]):
            return Failure(kind, unknown.message, param=unknown.param)
        return not_allowed(name or model.id)

    def visible(self, key: Key | None) -> list[Model]:
        """What the caller may know of."""
        return [model for model in self._catalog if key is None or key.allows(model.id)]

    def status(self) -> dict[str, EngineStatus]:
        """The engine of every deployment that has one."""
        return {
            one.deployment: one.engine.status()
            for deployments in self._deployments.values()
            for one in deployments
            if isinstance(one, ServedModel)
        }

    def primaries(self) -> list[str]:
        """The first deployment of each model."""
        return [deployments[0].deployment for deployments in self._deployments.values()]

    def unready(self, newcomers: set[str]) -> list[str]:
        """Why requests cannot be answered yet, one line for each engine that is not up.

        `newcomers` do not count before they were up once. Those that are leave the set.
        """
        lines: list[str] = []
        for name, status in self.status().items():
            if status.state is EngineState.READY:
                newcomers.discard(name)
            elif name not in newcomers:
                lines.append(f"{name}: {status.state}{': ' if status.detail else ''}{status.detail}")
        return lines


def not_ours(model: str) -> Failure:
    """The failure of a request that needs a model's tokens, where a provider owns them."""
    return Failure(
        FailureKind.SURFACE_UNSUPPORTED,
        f"The model '{model}' is run by a provider, which does not offer this. Use another model.",
        param="model",
    )
