"""SQL that lies in files: queries, each with a name and a sentence, and numbered migrations."""

import re
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(r"^-- name: (\w+)\n-- \S.*\.\n", re.MULTILINE)
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


def read_queries(*files: Path) -> dict[str, str]:
    """Queries by name. Before each stand two lines: ``-- name: NAME`` and ``-- A sentence.``"""
    queries: dict[str, str] = {}
    for file in files:
        before, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
        found = dict(zip(parts[::2], parts[1::2], strict=True))
        if before.strip() or len(found) * 2 != len(parts) or queries.keys() & found.keys():
            raise ValueError(f"{file.name}: every query needs a name of its own and a sentence")
        queries |= {name: text.strip().removesuffix(";") for name, text in found.items()}
    return queries


class Migration(NamedTuple):
    """A step from one version of a schema to the next."""

    number: int
    name: str
    sql: str


def read_migrations(folder: Path) -> list[Migration]:
    """All steps, in order: 0001, 0002 and so on, without a gap."""
    steps = [
        Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir())
        if (match := _NUMBERED.fullmatch(file.name))
    ]
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"{folder}: migrations are numbered from 0001, without a gap")
    return steps
