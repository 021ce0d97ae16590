"""Models on a Hugging Face hub: ``hf:ORG/REPO[@REVISION][/FILE]``.

The hub's own client does the work, so its settings count: ``HF_ENDPOINT``, ``HF_TOKEN``,
``HF_HOME``, ``HF_HUB_OFFLINE``. Files stay in its cache, where other programs find them too.
"""

import re
import sys
from pathlib import Path

import msgspec

from onward.sources.choose import choose
from onward.sources.error import SourceError
from onward.sources.local import check_magic

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
    import httpx  # noqa: PLC0415
    from huggingface_hub import constants, errors, hf_hub_download, try_to_load_from_cache  # noqa: PLC0415
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    place = parse_place(rest)
    if not progress:
        disable_progress_bars()
    paths: list[Path] = []
    try:
        parts = [place.file] if place.file else _choose_on_hub(place, progress=progress)
        for part in parts:
            cached = try_to_load_from_cache(place.repo, part, revision=place.revision)
            if isinstance(cached, str):
                paths.append(Path(cached))
            else:
                paths.append(Path(hf_hub_download(place.repo, part, revision=place.revision)))
    except errors.GatedRepoError:
        raise SourceError(f"{place} wants your agreement: give it on its page, then set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise SourceError(f"{place} is not there, or private: check the name, or set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"{place} has no such revision; name a branch, a tag or a commit") from None
    except errors.EntryNotFoundError as error:
        if not isinstance(error, errors.LocalEntryNotFoundError):
            raise SourceError(f"{place} has no {place.file}; leave it out to see what there is") from None
        raise SourceError(_unreachable(place, constants.ENDPOINT)) from None
    except (errors.OfflineModeIsEnabled, httpx.TransportError, ConnectionError):
        raise SourceError(_unreachable(place, constants.ENDPOINT)) from None
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise SourceError(f"{place} cannot be fetched ({why}); try again later") from None
    check_magic(paths[0])
    return paths[0]


def _unreachable(place: Place, endpoint: str) -> str:
    return (
        f"{place} is not cached and {endpoint} cannot be reached; connect once, set HF_ENDPOINT to a mirror,"
        " or give a local .gguf file with --model PATH"
    )


def _choose_on_hub(place: Place, *, progress: bool) -> list[str]:
    import httpx  # noqa: PLC0415
    from huggingface_hub import HfApi, errors, snapshot_download  # noqa: PLC0415

    try:
        files = HfApi().list_repo_files(place.repo, revision=place.revision)
    except (errors.OfflineModeIsEnabled, httpx.TransportError):
        folder = Path(snapshot_download(place.repo, revision=place.revision, local_files_only=True))
        files = [str(path.relative_to(folder)) for path in folder.rglob("*.gguf")]
    parts = choose(files, str(place), f"name one: {place}/FILE")
    if progress and sum(name.lower().endswith(".gguf") for name in files) > len(parts):
        print(f"{place}: taking {parts[0]}", file=sys.stderr)  # noqa: T201 - asked for by `progress`
    return parts
