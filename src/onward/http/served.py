"""The models that callers can name."""

from collections.abc import Mapping
from dataclasses import replace

from onward.admission.keys import Key, not_allowed
from onward.core.failure import Failure, FailureKind
from onward.dialects.reference import parse
from onward.dialects.schema import Dialect
from onward.engines.protocol import EngineState, EngineStatus
from onward.routing.catalog import Catalog, Model
from onward.routing.checkpoints import Checkpoints, NoCheckpoints, resolve, unknown_checkpoint
from onward.serve.model import ServedModel


class Models:
    """The catalog and what serves it. `served` is by model ID, in the order of the config."""

    def __init__(
        self,
        catalog: Catalog,
        served: Mapping[str, ServedModel],
        deployments: Mapping[str, str],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._catalog = catalog
        self._served = served
        self._checkpoints = checkpoints or NoCheckpoints()
        self._deployments = deployments
        """Deployment name to model ID."""

    async def find(self, dialect: Dialect, reference: str | None, key: Key | None) -> ServedModel:
        """The model of a reference, with the checkpoint that it names (TC-1). Raises `Failure`.

        None: the first model that the key may use.
        """
        if reference is not None:
            parsed = parse(dialect, reference)
            seen = self._catalog if key is None or key.models is None else Catalog(self.visible(key))
            try:
                base = seen.find_base(parsed) if parsed.checkpoint else seen.find(parsed)
            except Failure as unknown:
                raise self._withheld(dialect, self._catalog.named(parsed.base), unknown) from None
            if base is not None and parsed.checkpoint is None:
                return self._served[base.id]
            found = await resolve(self._catalog, self._checkpoints, parsed)
            if key is not None and not key.allows(found.model.id):
                raise self._withheld(dialect, found.model, unknown_checkpoint(parsed.checkpoint or ""))
            served = self._served[found.model.id]
            return served if found.adapter is None else replace(served, adapter=found.adapter)
        for model in self.visible(key):
            return self._served[model.id]
        raise Failure(FailureKind.MODEL_NOT_ALLOWED, "No model is open to this API key.", param="model")

    @staticmethod
    def _withheld(dialect: Dialect, model: Model | None, unknown: Failure) -> Failure:
        """What a caller is told of `model`, which its key does not cover; None: there is none such.

        Where a dialect has the same row for both, nobody learns which of them it is.
        """
        kind = FailureKind.MODEL_NOT_ALLOWED
        if model is None:
            return unknown
        if dialect.errors[kind] == dialect.errors[FailureKind.UNKNOWN_MODEL]:
            return Failure(kind, unknown.message, param=unknown.param)
        return not_allowed(model.id)

    def visible(self, key: Key | None) -> list[Model]:
        """What the caller may know of."""
        models = [served.model for served in self._served.values()]
        return [model for model in models if key is None or key.allows(model.id)]

    def status(self) -> dict[str, EngineStatus]:
        """The engine of every deployment."""
        return {name: self._served[model].engine.status() for name, model in self._deployments.items()}

    def unready(self) -> list[str]:
        """Why requests cannot be answered yet, one line for each deployment that is not up."""
        return [
            f"{name}: {status.state}{': ' if status.detail else ''}{status.detail}"
            for name, status in self.status().items()
            if status.state is not EngineState.READY
        ]
