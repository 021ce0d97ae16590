"""`onward tenants`: who pays, and with what."""

import argparse
from typing import Any

from onward.admission.keys import TenantStatus
from onward.admission.roster import TenantSettings
from onward.cli.desk import PAGE, at_desk, every, print_fields, print_json, print_table
from onward.http.admin import bodies, shown
from onward.wiring.desk import Desk

_COLUMNS = ("name", "source", "status", "balance", "held", "spent_this_month", "monthly_budget")


def create(chosen: argparse.Namespace) -> None:
    """Make a tenant and show it."""
    given = {"name": chosen.name, "balance": chosen.balance, "monthly_budget": chosen.monthly_budget}
    if chosen.agree:
        given["agreements"] = chosen.agree

    async def work(desk: Desk) -> dict[str, Any]:
        name, settings, opening = bodies.new_tenant(bodies.read(bodies.NewTenant, given))
        return shown.tenant(await desk.roster.create_tenant(name, settings, opening))

    _print(chosen, at_desk(chosen, work, makes=True))


def list_all(chosen: argparse.Namespace) -> None:
    """A line for each tenant."""

    async def work(desk: Desk) -> list[dict[str, Any]]:
        return [shown.tenant(one) for one in await every(lambda after: desk.roster.tenants(after, PAGE))]

    tenants = at_desk(chosen, work)
    if chosen.json:
        print_json(tenants)
    else:
        print_table(_COLUMNS, [[one[name] for name in _COLUMNS] for one in tenants])


def show(chosen: argparse.Namespace) -> None:
    """All that is known of a tenant."""

    async def work(desk: Desk) -> dict[str, Any]:
        return shown.tenant(await desk.roster.tenant(chosen.name))

    _print(chosen, at_desk(chosen, work))


def credit(chosen: argparse.Namespace) -> None:
    """Pay in, or take out."""

    async def work(desk: Desk) -> dict[str, Any]:
        amount = bodies.credited(bodies.read(bodies.Credit, {"amount": chosen.amount, "note": chosen.note}))
        return shown.tenant(await desk.roster.credit(chosen.name, amount, note=chosen.note))

    _print(chosen, at_desk(chosen, work))


def suspend(chosen: argparse.Namespace) -> None:
    """Serve it no more."""
    _set_status(chosen, TenantStatus.SUSPENDED)


def activate(chosen: argparse.Namespace) -> None:
    """Serve it again."""
    _set_status(chosen, TenantStatus.ACTIVE)


def _set_status(chosen: argparse.Namespace, status: TenantStatus) -> None:
    async def work(desk: Desk) -> dict[str, Any]:
        return shown.tenant(await desk.roster.change_tenant(chosen.name, TenantSettings(status=status)))

    _print(chosen, at_desk(chosen, work))


def _print(chosen: argparse.Namespace, one: dict[str, Any]) -> None:
    (print_json if chosen.json else print_fields)(one)
