"""The LoRA adapters of an engine: loaded when a request needs one, the least recently used unloaded."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from onward.core.failure import Failure, FailureKind, invalid
from onward.engines.llama.binding import Context


class Adapters:
    """At most `limit` adapters in memory. Which ones are in use the caller says."""

    def __init__(self, context: Context, *, limit: int) -> None:
        self._context = context
        self._limit = limit
        self._paths: dict[str, str] = {}
        self._loaded: OrderedDict[str, Any] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._loaded)

    def knows(self, name: str) -> bool:
        """Whether it is loaded, or can be without being told where it is."""
        return name in self._loaded or name in self._paths

    def add(self, name: str, path: str, in_use: Collection[str]) -> None:
        """Load or replace one and remember where it is. Raises `Failure`."""
        loaded = self._load(name, path)
        self._paths[name] = path
        if name in self._loaded:
            self._unload(name)
        self._make_room(in_use)
        self._loaded[name] = loaded

    def has_room(self, name: str, in_use: Collection[str]) -> bool:
        """Whether `take` needs to unload nothing that is in use."""
        return (
            name in self._loaded
            or len(self._loaded) < self._limit
            or any(other not in in_use for other in self._loaded)
        )

    def take(self, name: str, path: str | None, in_use: Collection[str]) -> None:
        """Have one ready for use. Raises `Failure` if it cannot be loaded."""
        if name not in self._loaded:
            place = path or self._paths.get(name)
            if place is None:
                raise invalid("adapter", f"The adapter {name} is not loaded.")
            self._make_room(in_use)
            self._loaded[name] = self._load(name, place)
        self._loaded.move_to_end(name)

    def use(self, name: str | None) -> None:
        """Apply one that was taken, or none, to what is computed next."""
        self._context.use_adapter(None if name is None else self._loaded[name])

    def _load(self, name: str, path: str) -> Any:
        try:
            return self._context.model.load_adapter(path)
        except ValueError as error:
            raise Failure(
                FailureKind.INVALID_REQUEST, f"The adapter {name} cannot be loaded: {error}.", param="model"
            ) from error

    def _make_room(self, in_use: Collection[str]) -> None:
        while len(self._loaded) >= self._limit:
            idle = next((name for name in self._loaded if name not in in_use), None)
            if idle is None:
                return
            self._unload(idle)

    def _unload(self, name: str) -> None:
        # llama.cpp would go on using the freed one, or take a new one at its address for it.
        self._context.use_adapter(None)
        self._context.model.free_adapter(self._loaded.pop(name))
