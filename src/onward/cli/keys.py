"""`onward keys`: who may call."""

import argparse
import sys
from typing import Any

from onward.admission.roster import KnownKey
from onward.cli.desk import PAGE, at_desk, every, print_fields, print_json, print_table
from onward.http.admin import bodies, shown
from onward.wiring.desk import Desk

_COLUMNS = ("id", "name", "source", "tenant", "prefix", "spent_this_month", "monthly_cap", "last_used_at")
_SETTINGS = (
    "name",
    "tenant",
    "models",
    "monthly_cap",
    "requests_per_minute",
    "tokens_per_minute",
    "concurrency",
)


def create(chosen: argparse.Namespace) -> None:
    """Make a key; print its secret, this once."""
    given = {name: getattr(chosen, name) for name in _SETTINGS if getattr(chosen, name) is not None}

    async def work(desk: Desk) -> tuple[KnownKey, str, str]:
        return *await desk.roster.create_key(
            bodies.key_settings(bodies.read(bodies.NewKey, given))
        ), desk.place

    known, secret, place = at_desk(chosen, work, makes=True)
    if chosen.json:
        print_json({**shown.key(known), "secret": secret})
        return
    print(secret)
    print(f"The key {known.key.name} ({known.key.id}) is in {place}. It is not shown again.", file=sys.stderr)


def list_all(chosen: argparse.Namespace) -> None:
    """A line for each key that is not revoked; with --all for those too."""

    async def work(desk: Desk) -> list[dict[str, Any]]:
        known = await every(lambda after: desk.roster.keys(after, PAGE))
        return [shown.key(one) for one in known if chosen.all or one.revoked_ms is None]

    keys = at_desk(chosen, work)
    if chosen.json:
        print_json(keys)
    else:
        columns = (*_COLUMNS, "revoked_at") if chosen.all else _COLUMNS
        print_table(columns, [[one[name] for name in columns] for one in keys])


def show(chosen: argparse.Namespace) -> None:
    """All that is known of a key."""

    async def work(desk: Desk) -> dict[str, Any]:
        return shown.key(await desk.roster.key_named(chosen.key))

    _print(chosen, at_desk(chosen, work))


def revoke(chosen: argparse.Namespace) -> None:
    """Refuse a key from now on."""

    async def work(desk: Desk) -> dict[str, Any]:
        known = await desk.roster.key_named(chosen.key)
        return shown.key(await desk.roster.revoke_key(known.key.id))

    _print(chosen, at_desk(chosen, work))


def _print(chosen: argparse.Namespace, one: dict[str, Any]) -> None:
    (print_json if chosen.json else print_fields)(one)
