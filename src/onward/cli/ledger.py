"""`onward usage` and `onward ledger`: what was used and charged."""

import argparse
import csv
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

from onward.admission.store import EntryQuery, UsageQuery, UsageRow
from onward.cli.desk import PAGE, at_desk, print_fields, print_json, print_table
from onward.cli.error import CommandError
from onward.http.admin import shown
from onward.http.admin.asking import groups_of, state_of, time_of
from onward.wiring.desk import Desk

_COLUMNS = ("at", "request_id", "key", "tenant", "model", "state", "held", "charged", "tokens", "outcome")
_ATTEMPT = ("deployment", "outcome", "status", "started_at", "first_ms", "took_ms")
_CSV = (
    "at",
    "ended_at",
    "request_id",
    "client_request_id",
    "key",
    "key_id",
    "tenant",
    "model",
    "surface",
    "state",
    "held",
    "charged",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "estimated",
    "overdraft",
    "outcome",
    "attempts",
)


def usage(chosen: argparse.Namespace) -> None:
    """Sums of what has ended."""

    async def work(desk: Desk) -> list[UsageRow]:
        return await desk.store.usage(
            UsageQuery(
                group_by=groups_of({"group_by": chosen.group_by} if chosen.group_by else {}),
                tenant=chosen.tenant,
                key_id=await _key_id(desk, chosen.key),
                model=chosen.model,
                from_ms=_time(chosen.from_time, "from"),
                before_ms=_time(chosen.to_time, "to"),
            )
        )

    rows = at_desk(chosen, work)
    head = [*(chosen.group_by.split(",") if chosen.group_by else []), *shown.SUMS]
    if chosen.json:
        print_json([shown.usage_row(row) for row in rows])
    elif chosen.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(shown.usage_cells(row) for row in rows)
    else:
        print_table(head, [shown.usage_cells(row) for row in rows])


def ledger(chosen: argparse.Namespace) -> None:
    """Entries, newest first, printed as they are read: there may be millions."""
    at_desk(chosen, lambda desk: _ledger(desk, chosen))


async def _ledger(desk: Desk, chosen: argparse.Namespace) -> None:
    if chosen.json:
        before = "[\n"
        async for one in _entries(desk, chosen):
            print(before + json.dumps(one, ensure_ascii=False), end="")
            before = ",\n"
        print("[]" if before == "[\n" else "\n]")
    elif chosen.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_CSV)
        async for one in _entries(desk, chosen):
            flat = one | one["usage"] | {"attempts": " ".join(_attempt(each) for each in one["attempts"])}
            writer.writerow([_csv_cell(flat[name]) for name in _CSV])
    elif chosen.request_id:
        found = [one async for one in _entries(desk, chosen)]
        if not found:
            raise CommandError(f"the ledger has no request {chosen.request_id}; name its x-request-id")
        for one in found:
            attempts = one.pop("attempts")
            print_fields(one | one.pop("usage"))
            print_table(_ATTEMPT, [[each[name] for name in _ATTEMPT] for each in attempts])
    else:
        rows = [one | {"tokens": one["usage"]["total_tokens"]} async for one in _entries(desk, chosen)]
        print_table(_COLUMNS, [[one[name] for name in _COLUMNS] for one in rows])


async def _entries(desk: Desk, chosen: argparse.Namespace) -> AsyncGenerator[dict[str, Any]]:
    key_id = await _key_id(desk, chosen.key)
    cursor, left = None, chosen.limit
    while left:
        page = await desk.store.entries(
            EntryQuery(
                request_id=chosen.request_id,
                tenant=chosen.tenant,
                key_id=key_id,
                model=chosen.model,
                state=state_of({"state": chosen.state} if chosen.state else {}),
                from_ms=_time(chosen.from_time, "from"),
                before_ms=_time(chosen.to_time, "to"),
                cursor=cursor,
                limit=min(left, PAGE),
            )
        )
        for one in page.entries:
            yield shown.entry(one)
        left -= len(page.entries)
        cursor = page.cursor
        if cursor is None:
            return


async def _key_id(desk: Desk, named: str | None) -> str | None:
    return None if named is None else await desk.roster.key_id(named)


def _time(text: str | None, name: str) -> int | None:
    return time_of({} if text is None else {name: text}, name)


def _csv_cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _attempt(one: dict[str, Any]) -> str:
    return f"{one['deployment']}:{one['outcome']}"
