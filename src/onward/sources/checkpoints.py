"""Checkpoints on disk: ``ROOT/RUN/sampler_weights/NAME`` is ``tinker://RUN/sampler_weights/NAME``.

A checkpoint is there once both of its files are whole, whoever writes them and in whatever order.
"""

import re
import stat
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.core.checkpoint import SavedCheckpoint
from onward.sources.safetensors import IncompleteError, read_tensors

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
MAX_CONFIG: Final = 1024 * 1024
"""Bytes."""

# Each name starts with no dot and holds no slash, so it stays where it is put.
_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,199}"
_PATH: Final = re.compile(f"tinker://({_NAME})/sampler_weights/({_NAME})")

Version = tuple[int, ...]


class CheckpointFolder:
    """The checkpoints below one folder. Blocks: it reads from disk, and nothing is remembered."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def version(self, path: str) -> Version | None:
        """What changes whenever a checkpoint is written again; None if there is nothing at `path`.

        Raises `IncompleteError` where only a part of it is there.
        """
        files = self._files(path)
        return None if files is None else _version(*files)

    def read(self, path: str) -> SavedCheckpoint | None:
        """The checkpoint at a path; None if there is nothing. Raises `IncompleteError`."""
        files = self._files(path)
        if files is None:
            return None
        config, weights = files
        version = _version(config, weights)
        try:
            found = SavedCheckpoint(
                path=path,
                config=_config(config),
                weights=str(weights),
                tensors=read_tensors(weights),
                version=version,
            )
        except OSError as error:
            raise IncompleteError(f"it cannot be read ({error.strerror})") from None
        if _version(config, weights) != version:
            raise IncompleteError("it is being written")
        return found

    def _files(self, path: str) -> tuple[Path, Path] | None:
        """Where both files really are, which is below the root."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        folder = self._root / match[1] / "sampler_weights" / match[2]
        try:
            root = self._root.resolve(strict=True)
            if not folder.resolve(strict=True).is_relative_to(root):
                return None
        except (OSError, RuntimeError):  # a loop of links is a RuntimeError before Python 3.13
            return None
        found: list[Path] = []
        for name in (CONFIG, WEIGHTS):
            try:
                file = (folder / name).resolve(strict=True)
            except (OSError, RuntimeError):
                raise IncompleteError(f"{name} is missing") from None
            if not file.is_relative_to(root):
                return None
            found.append(file)
        return found[0], found[1]


def _version(*files: Path) -> Version:
    facts: list[int] = []
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            raise IncompleteError(f"{file.name} cannot be read ({error.strerror})") from None
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise IncompleteError(f"{file.name} is no file")
        facts += [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return tuple(facts)


def _config(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_CONFIG:
        raise IncompleteError(f"{CONFIG} has more than {MAX_CONFIG} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise IncompleteError(f"{CONFIG} is no whole JSON object") from None
