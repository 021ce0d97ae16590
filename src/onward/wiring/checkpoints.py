"""The checkpoints of a configuration: found on disk, and made ready for the model's engine.

Looking is cheap and done for every request, so a checkpoint can be sampled once it is saved, and
what replaces it too. Converting is done once for each content, whichever process comes first.
"""

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from onward.core.checkpoint import Adapter, SavedCheckpoint
from onward.core.failure import Failure, excerpt, invalid
from onward.routing.catalog import Model
from onward.routing.checkpoints import Checkpoint, is_made_from, unknown_checkpoint
from onward.sources.cache import cache_folder, file_sha256, only_one
from onward.sources.checkpoints import CheckpointFolder, Version
from onward.sources.safetensors import IncompleteError
from onward.wiring.model_file import read_metadata

REMEMBERED = 256
"""Checkpoints of which a process knows what became of them."""
CACHED_BYTES = 10 * 1024**3
"""Converted adapters beyond this are removed, those first that were used longest ago."""
_ABANDONED_S = 3600.0
_LOOKING = 2


class CheckpointedModel(msgspec.Struct, frozen=True):
    """A model with a folder of checkpoints."""

    model: Model
    root: Path
    model_file: Path
    """The GGUF that its engine runs."""


class FolderCheckpoints:
    """`Checkpoints` of every model that has a folder of them. Models may share one."""

    def __init__(self, models: Iterable[CheckpointedModel]) -> None:
        self._places = [_Place(one) for one in models]
        self._looking = ThreadPoolExecutor(_LOOKING, "checkpoints")
        self._converting = ThreadPoolExecutor(1, "adapters")

    async def find(self, path: str, base: Model | None) -> Checkpoint:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._looking, self._look, path, base)
        place, known = found.place, found.known
        if known is None:
            known = await loop.run_in_executor(self._converting, place.prepare, found.saved)
        if isinstance(known, Failure):
            raise Failure(known.kind, known.message, param=known.param)
        return Checkpoint(place.model.id, known)

    def _look(self, path: str, base: Model | None) -> "_Found":
        why, other = "", None
        for place in sorted(self._places, key=lambda place: place.model is not base):
            try:
                saved = place.read(path)
            except IncompleteError as error:
                why = f"it is not complete, {error}"
                continue
            if saved is not None and (saved.base is None or is_made_from(place.model, saved.base)):
                return _Found(place, saved, place.known(saved))
            other = other or (saved and (place.model, saved))
        if other is not None:
            model, saved = other
            raise invalid(
                "model",
                f"The checkpoint '{excerpt(path)}' was made from '{excerpt(saved.base)}', and lies in the "
                f"folder of '{excerpt(model.id)}'. Put it into the folder of its own base model.",
            )
        raise unknown_checkpoint(path, why)


class _Found(NamedTuple):
    place: "_Place"
    saved: SavedCheckpoint
    known: Adapter | Failure | None


class _Place:
    """One model's checkpoints. Its methods block, and may run in several threads."""

    def __init__(self, one: CheckpointedModel) -> None:
        self.model = one.model
        self._model_file = one.model_file
        self._folder = CheckpointFolder(one.root)
        self._read: OrderedDict[str, SavedCheckpoint] = OrderedDict()
        self._known: OrderedDict[Version, Adapter | Failure] = OrderedDict()

    def read(self, path: str) -> SavedCheckpoint | None:
        """The checkpoint at a path as it is now. Raises `IncompleteError`."""
        saved = self._read.get(path)
        if saved is None or saved.version != self._folder.version(path):
            saved = self._folder.read(path)
            if saved is not None:
                _remember(self._read, path, saved)
        return saved

    def known(self, saved: SavedCheckpoint) -> Adapter | Failure | None:
        """What became of it; None: it must be prepared, also if what was made of it is gone."""
        known = self._known.get(saved.version)
        if isinstance(known, Adapter):
            try:
                os.utime(known.path)
            except OSError:
                return None
        return known

    def prepare(self, saved: SavedCheckpoint) -> Adapter | Failure:
        """Convert a checkpoint, unless that was done before."""
        known = self.known(saved)
        if known is None:
            try:
                known = self._convert(saved)
            except Failure as failure:
                known = failure
            except (OSError, EOFError):
                if self._is_as_it_was(saved):
                    raise
                known = None
            if known is None or not self._is_as_it_was(saved):
                return unknown_checkpoint(saved.path, "it is being written")
            _remember(self._known, saved.version, known)
        return known

    def _is_as_it_was(self, saved: SavedCheckpoint) -> bool:
        with contextlib.suppress(IncompleteError):
            return self._folder.version(saved.path) == saved.version
        return False

    def _convert(self, saved: SavedCheckpoint) -> Adapter:
        # With numpy, which a process that serves no checkpoints does without.
        from onward.engines.llama import lora, peft  # noqa: PLC0415

        base = lora.base_of(read_metadata(self._model_file))
        if isinstance(base, str):
            raise peft.unusable(saved, base)
        facts = (lora.FORMAT, base, saved.config, file_sha256(Path(saved.weights)))
        name = hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:40]
        folder = cache_folder() / "adapters"
        target = folder / f"{name}.gguf"
        with only_one(folder):
            if not target.is_file():
                descriptor, partial = tempfile.mkstemp(suffix=".partial", dir=folder)
                os.close(descriptor)
                try:
                    lora.convert(saved, base, Path(partial))
                    Path(partial).replace(target)
                finally:
                    Path(partial).unlink(missing_ok=True)
                _prune(folder, target)
            os.utime(target)
        return Adapter(name, str(target))


def _prune(folder: Path, kept: Path) -> None:
    """Remove what was used longest ago beyond `CACHED_BYTES`, and what a killed process left."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.suffix == ".gguf" and path != kept:
                found.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".partial" and time.time() - status.st_mtime > _ABANDONED_S:
                path.unlink()
    total = kept.stat().st_size
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > CACHED_BYTES:
            path.unlink(missing_ok=True)


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    while len(known) > REMEMBERED:
        with contextlib.suppress(KeyError):  # another thread was faster
            known.popitem(last=False)
