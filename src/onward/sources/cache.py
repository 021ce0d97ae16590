"""Where fetched models are kept, and how we know that they are still what was fetched.

Beside each model lies a receipt: its hash, and the size and time of the file when the hash was
taken. A file that matches its receipt is not read again; one that does not is hashed anew.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock
import msgspec

from onward.sources.error import SourceError


def cache_folder() -> Path:
    """``$ONWARD_CACHE``, else ``$XDG_CACHE_HOME/onward``, else ``~/.cache/onward``."""
    if own := os.environ.get("ONWARD_CACHE"):
        return Path(own).expanduser()
    if common := os.environ.get("XDG_CACHE_HOME"):
        return Path(common).expanduser() / "onward"
    return Path("~/.cache/onward").expanduser()


class Receipt(msgspec.Struct, frozen=True):
    """What a cached file was when its hash was taken."""

    sha256: str
    size: int
    mtime_ns: int


def _receipt_path(path: Path) -> Path:
    return path.with_name(path.name + ".receipt")


def write_receipt(path: Path, sha256: str) -> None:
    """Note the hash of a file that was just written. Replaces the old receipt as a whole."""
    status = path.stat()
    receipt = Receipt(sha256, status.st_size, status.st_mtime_ns)
    partial = path.with_name(path.name + ".receipt.partial")
    partial.write_bytes(msgspec.json.encode(receipt))
    partial.replace(_receipt_path(path))


def is_intact(path: Path, sha256: str | None) -> bool:
    """Whether `path` is a whole file with this hash; with None, with the hash of its receipt."""
    if not path.is_file():
        return False
    receipt = None
    with suppress(OSError, msgspec.DecodeError):
        receipt = msgspec.json.decode(_receipt_path(path).read_bytes(), type=Receipt)
    expected = sha256 or (receipt.sha256 if receipt is not None else None)
    if expected is None:
        return False
    status = path.stat()
    if receipt is not None and (receipt.size, receipt.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return receipt.sha256 == expected
    if file_sha256(path) != expected:
        return False
    with suppress(OSError):  # a cache that is read-only is as good, only slower
        write_receipt(path, expected)
    return True


def file_sha256(path: Path) -> str:
    """The hash of a whole file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time fetch into `folder`; the others wait, then find the file."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / "fetch.lock"):
            yield
    except NotImplementedError:
        raise SourceError(
            f"the file system of {folder} has no locks; set ONWARD_CACHE to a local folder"
        ) from None
