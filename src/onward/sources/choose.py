"""Which model file is meant where a folder, a repository or a wheel holds several."""

import re
from collections.abc import Iterable

from onward.sources.error import SourceError

PREFERRED = "Q4_K_M"
"""The quantization taken where a place offers many: small, and close to the full model."""
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


def choose(files: Iterable[str], place: str, advice: str) -> list[str]:
    """The model's file among `files`, or all its parts in order where it is split.

    The only one there is; else the only one of the preferred quantization. Projectors (``mmproj``)
    are no models. Raises `SourceError`, which lists the candidates and ends with `advice`.
    """
    models: dict[str, list[str]] = {}
    for name in sorted(files):
        if name.lower().endswith(".gguf") and "mmproj" not in name.lower():
            models.setdefault(_SHARD.sub("", name), []).append(name)
    if not models:
        raise SourceError(f"{place} holds no .gguf model file; {advice}")
    if len(models) > 1:
        models = {stem: parts for stem, parts in models.items() if PREFERRED in parts[0].upper()} or models
    if len(models) > 1:
        names = [parts[0] for parts in models.values()]
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise SourceError(f"{place} holds {len(names)} models ({shown}); {advice}")
    (parts,) = models.values()
    return _complete(parts, place)


def _complete(parts: list[str], place: str) -> list[str]:
    shard = _SHARD.search(parts[0])
    if shard is not None and len(parts) != int(shard[2]):
        raise SourceError(
            f"{place} holds {len(parts)} of the {int(shard[2])} parts of {parts[0]}; add the others"
        )
    return parts
