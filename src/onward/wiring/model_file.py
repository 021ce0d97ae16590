"""What the file of a model says about itself. Imports little: it is read before an engine starts."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onward.rendering import gguf
from onward.wiring import config as settings
from onward.wiring.listen import ServeError


def read_metadata(path: Path) -> Mapping[str, Any]:
    """The metadata of a GGUF. Raises `ServeError`."""
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            return gguf.read_metadata(view)
    except (OSError, ValueError) as error:
        raise ServeError(f"{path} cannot be served: {error}. Is it a whole GGUF file?") from None


def context_length(model: settings.Model, metadata: Mapping[str, Any]) -> int:
    """What is asked for, but never more than the model was trained to hold."""
    trained = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return min(model.context_length, trained) if isinstance(trained, int) else model.context_length
