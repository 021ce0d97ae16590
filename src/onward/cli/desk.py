"""What the commands of an operator share: the store of a config, and how things are printed."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from onward.cli.error import CommandError
from onward.core.failure import Failure
from onward.wiring import config
from onward.wiring.desk import Desk, desk
from onward.wiring.listen import ServeError

_T = TypeVar("_T")
PAGE = 500
"""How many things are read at a time."""


def at_desk(chosen: argparse.Namespace, work: Callable[[Desk], Awaitable[_T]], *, makes: bool = False) -> _T:
    """Do `work` on the store of the chosen config. `makes`: it may be a new one."""

    async def run() -> _T:
        async with desk(chosen.config, makes=makes) as opened:
            return await work(opened)

    try:
        return asyncio.run(run())
    except config.ConfigError as error:
        raise CommandError("; ".join(error.faults)) from None
    except ServeError as error:
        raise CommandError(str(error)) from None
    except Failure as failure:
        raise CommandError(failure.message) from None


async def every(page: Callable[[str | None], Awaitable[tuple[Sequence[_T], str | None]]]) -> list[_T]:
    """All that there is, page by page: `page` gives what stands behind a cursor, and the next one."""
    found: list[_T] = []
    cursor = None
    while True:
        some, cursor = await page(cursor)
        found += some
        if cursor is None:
            return found


def print_json(shown: Any) -> None:
    """One JSON document."""
    print(json.dumps(shown, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns; numbers at the right. None is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [bool(cells) and all(_is_number(row[n]) for row in cells) for n in range(len(head))]
    for row in [list(head), *cells]:
        padded = [
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(row, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip())


def print_fields(shown: dict[str, Any]) -> None:
    """A name and a value a line."""
    width = max(map(len, shown))
    for name, value in shown.items():
        print(f"{name.ljust(width)}  {_cell(value)}")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(value) if isinstance(value, list) else value
    return "-" if text is None or text == "" else str(text)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(".", "", 1).isdecimal()
