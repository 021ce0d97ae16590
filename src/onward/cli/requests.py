"""`onward requests` and `onward reload`: what a running server does now, and by which config."""

import argparse
from typing import Any

from onward.admission.ledger import Entry, State
from onward.admission.store import EntryQuery
from onward.cli.client import Client
from onward.cli.desk import PAGE, at_desk, every, print_json, print_table
from onward.cli.error import CommandError
from onward.http.admin import shown
from onward.wiring.desk import Desk

_COLUMNS = ("request_id", "since", "key", "tenant", "model", "surface", "held")


def list_all(chosen: argparse.Namespace) -> None:
    """A line for each request in flight."""

    async def work(desk: Desk) -> list[dict[str, Any]]:
        async def page(after: str | None) -> tuple[list[Entry], str | None]:
            found = await desk.store.entries(EntryQuery(state=State.HELD, cursor=after, limit=PAGE))
            return found.entries, found.cursor

        return [shown.running(one) for one in await every(page)]

    running = at_desk(chosen, work)
    if chosen.json:
        print_json(running)
    else:
        print_table(_COLUMNS, [[one[name] for name in _COLUMNS] for one in running])


def cancel(chosen: argparse.Namespace) -> None:
    """End a request, wherever it runs."""

    async def work(desk: Desk) -> bool:
        return await desk.store.cancel(chosen.id)

    if not at_desk(chosen, work):
        raise CommandError(f"no request {chosen.id} is running; `onward requests list` shows those that are")
    if chosen.json:
        print_json({"request_id": chosen.id, "cancelled": True})
    else:
        print(f"{chosen.id} ends within a second")


def reload(chosen: argparse.Namespace) -> None:
    """Have a server read its config again, and say what changed."""
    client = Client(chosen)
    client.as_operator(chosen.admin_token_env)
    told = client.post("/config/reload", b"")
    if chosen.json:
        print_json(told)
        return
    print(f"config {told['version']} is in force")
    for word in ("added", "removed", "changed"):
        for name in told[word]:
            print(f"  {word} {name}")
