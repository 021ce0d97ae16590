"""Models on a Hugging Face hub: ``hf:ORG/REPO[@REVISION][/FILE]``.

The hub's own client does the work, so its settings count: ``HF_ENDPOINT``, ``HF_TOKEN``,
``HF_HOME``, ``HF_HUB_OFFLINE``. Files stay in its cache, where other programs find them too.
"""

import importlib
import re
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from onward.sources.choose import choose
from onward.sources.error import SourceError
from onward.sources.local import check_magic

PROBE_S = 10.0
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,95})"
_SOURCE = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._-]{{0,99}}))?(?:/(.+))?")


class Place(msgspec.Struct, frozen=True):
    """A parsed source. Without a revision: the main branch; without a file: the only or best one."""

    repo: str
    revision: str | None
    file: str | None

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f"@{self.revision}" if self.revision else "")


def parse_place(rest: str) -> Place:
    """What follows ``hf:``. Raises `SourceError`."""
    matched = _SOURCE.fullmatch(rest)
    if matched is None or any(part in {"", ".", ".."} for part in (matched[3] or "x").split("/")):
        raise SourceError(
            f"{rest[:100]!r} is no repository; write hf:ORG/REPO, hf:ORG/REPO@REVISION or hf:ORG/REPO/FILE"
        )
    return Place(matched[1], matched[2], matched[3])


def fetch_huggingface(rest: str, *, progress: bool) -> Path:
    """The model file; all its parts are fetched where it is split. Raises `SourceError`, OSError."""
    # Half a second of imports, needed only here.
    from huggingface_hub import constants, errors, hf_hub_download, try_to_load_from_cache  # noqa: PLC0415
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    place = parse_place(rest)
    if not progress:
        disable_progress_bars()
    unreachable = SourceError(
        f"{place} is not cached and {constants.ENDPOINT} cannot be reached; connect once, set HF_ENDPOINT to"
        " a mirror, or give a local .gguf file with --model PATH"
    )
    paths: list[Path] = []
    try:
        for part in [place.file] if place.file else _choose(place, progress=progress):
            cached = try_to_load_from_cache(place.repo, part, revision=place.revision)
            if isinstance(cached, str):
                paths.append(Path(cached))
            elif _reachable():
                paths.append(Path(hf_hub_download(place.repo, part, revision=place.revision)))
            else:
                raise unreachable
    except errors.GatedRepoError:
        raise SourceError(f"{place} wants your agreement: give it on its page, then set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise SourceError(f"{place} is not there, or private: check the name, or set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"{place} has no such revision; name a branch, a tag or a commit") from None
    except (errors.LocalEntryNotFoundError, *_transport_errors()):
        raise unreachable from None
    except errors.EntryNotFoundError:
        raise SourceError(f"{place} has no {place.file}; leave it out to see what there is") from None
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise SourceError(f"{place} cannot be fetched ({why}); try again later") from None
    check_magic(paths[0])
    return paths[0]


def _choose(place: Place, *, progress: bool) -> list[str]:
    """The files of the model: chosen among those of the hub, without it among those in its cache."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415

    if _reachable():
        files = list(HfApi().list_repo_files(place.repo, revision=place.revision))
    else:
        folder = Path(snapshot_download(place.repo, revision=place.revision, local_files_only=True))
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]
    parts = choose(files, str(place), f"name one: {place}/FILE")
    if progress and sum(name.lower().endswith(".gguf") for name in files) > len(parts):
        print(f"{place}: taking {parts[0]}", file=sys.stderr)  # noqa: T201 - asked for by `progress`
    return parts


def _reachable() -> bool:
    """Whether the hub answers at all. Its client would try for half a minute before it says no."""
    import httpx  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415

    from onward.sources.download import tls_context  # noqa: PLC0415

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        httpx.head(constants.ENDPOINT, timeout=PROBE_S, verify=tls_context())
    except httpx.TransportError:
        return False
    return True


def _transport_errors() -> list[type[Exception]]:
    """What the hub's client raises when a connection breaks: it depends on the client's version."""
    found: list[type[Exception]] = [ConnectionError]
    for library in ("httpx", "httpx2"):
        with suppress(ImportError):
            found.append(importlib.import_module(library).TransportError)
    return found
