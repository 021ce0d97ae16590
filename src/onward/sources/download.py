"""Download one file whose hash is known: resumed where it was cut, checked, or refused."""

import hashlib
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import httpx
from tqdm import tqdm

from onward.sources.error import SourceError

ATTEMPTS = 5
"""Tries in a row that may bring less than `PROGRESS` bytes each before we give up."""
PROGRESS = 1 << 20
BLOCK = 1 << 18
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
TIMEOUT = httpx.Timeout(30.0, connect=15.0)


class _RestartError(Exception):
    """What was resumed is not a beginning of the file: start over."""


class _BrokenError(Exception):
    """A try failed in a way that the next may not."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


def download(url: str, part: Path, sha256: str, *, label: str, progress: bool) -> None:
    """Complete `part` to the file at `url`.

    `part` may hold a beginning of it from an earlier run; whatever interrupts us leaves it
    resumable. Raises `SourceError` when the network, the server or the hash says no, OSError
    when the disk does. A file with a wrong hash is removed.
    """
    with httpx.Client(timeout=TIMEOUT, follow_redirects=True, verify=tls_context()) as client:
        for fresh in (False, True):
            if fresh:
                part.unlink(missing_ok=True)
            resumed = part.exists() and part.stat().st_size > 0
            with suppress(_RestartError):
                found = _complete(client, url, part, label=label, progress=progress)
                if found == sha256:
                    return
                part.unlink(missing_ok=True)
                if not resumed:
                    raise SourceError(
                        f"{label} came with the wrong content (sha256 {found}, expected {sha256}) and was"
                        " removed; try again, or check the proxy or mirror between here and there"
                    )
    raise SourceError(f"{label}: the server does not let us resume nor restart; try again later")


def tls_context() -> ssl.SSLContext:
    """Trust what httpx, the system and pip's own ``PIP_CERT`` trust."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    if (extra := os.environ.get("PIP_CERT")) and Path(extra).is_file():
        context.load_verify_locations(extra)
    return context


def _complete(client: httpx.Client, url: str, part: Path, *, label: str, progress: bool) -> str:
    with part.open("ab+") as file, _bar(label, progress=progress) as bar:
        file.seek(0)
        run = _Run(client, url, file, bar)
        while block := file.read(BLOCK):
            run.digest.update(block)
        bar.update(file.tell())
        bar.unpause()
        _try_until_whole(run, label)
    return run.digest.hexdigest()


def _bar(label: str, *, progress: bool) -> "tqdm[Any]":
    return tqdm(desc=label, unit="B", unit_scale=True, unit_divisor=1024, disable=not progress)


class _Run:
    """A download under way: where it comes from, where it goes, what is shown of it."""

    def __init__(self, client: httpx.Client, url: str, file: BinaryIO, bar: "tqdm[Any]") -> None:
        self.client = client
        self.url = url
        self.file = file
        self.bar = bar
        self.digest = hashlib.sha256()


def _try_until_whole(run: _Run, label: str) -> None:
    failed = 0
    pause = FIRST_PAUSE_S
    while True:
        before = run.file.tell()
        try:
            _one_try(run)
        except (httpx.TransportError, _BrokenError) as error:
            if run.file.tell() - before >= PROGRESS:
                failed, pause = 0, FIRST_PAUSE_S
            failed += 1
            if failed >= ATTEMPTS:
                why = str(error) or type(error).__name__
                raise SourceError(
                    f"cannot download {label} ({why}); check the network and run it again: it resumes where"
                    " it was cut"
                ) from None
            asked = error.pause if isinstance(error, _BrokenError) else 0.0
            time.sleep(min(max(pause, asked), LONGEST_PAUSE_S))
            pause *= 2
        else:
            return


def _one_try(run: _Run) -> None:
    start = run.file.tell()
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with run.client.stream("GET", run.url, headers=headers) as response:
        total = _total(response, start)
        if total == start and start:
            return
        run.bar.total = total
        run.bar.refresh()
        for block in response.iter_raw():  # unsized: a cut then loses nothing that came
            run.file.write(block)
            run.digest.update(block)
            run.bar.update(len(block))
    run.file.flush()
    if total is not None and run.file.tell() < total:
        raise _BrokenError("the connection was cut")


def _total(response: httpx.Response, start: int) -> int | None:
    """The length of the whole file, if the server says it and sends what we asked for."""
    status = response.status_code
    if status in {408, 429} or status >= 500:
        wait = response.headers.get("retry-after", "")
        raise _BrokenError(f"the server answered {status}", float(wait) if wait.isdecimal() else 0.0)
    length = response.headers.get("content-length", "")
    if start:
        sent, _, whole = response.headers.get("content-range", "").removeprefix("bytes ").partition("/")
        total = int(whole) if whole.isdecimal() else None
        if status == 416 and total == start:
            return total
        if status == 206 and sent.startswith(f"{start}-"):
            return total
        if status in {200, 206, 416}:
            raise _RestartError
    elif status == 200:
        return int(length) if length.isdecimal() else None
    raise SourceError(
        f"{response.url} answered {status}; check that it still exists and that you may read it"
    )
