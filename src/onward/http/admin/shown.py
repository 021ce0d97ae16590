"""What operators are shown, as JSON objects. Amounts are decimal strings, times are in UTC."""

import time
from typing import Any, Final

from onward.admission.gate import Grant
from onward.admission.ledger import Entry
from onward.admission.roster import KnownKey, KnownTenant
from onward.admission.store import Money, UsageRow
from onward.core.money import format_amount
from onward.core.usage import Usage

SUMS: Final = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "charged",
    "estimated",
)
"""Columns of usage, behind those that it is grouped by."""
Json = dict[str, Any]


def stamp(at_ms: int | None) -> str | None:
    """Unix milliseconds such as ``2026-11-30T12:00:00.000Z``."""
    if at_ms is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03d}Z"


def amount(units: int | None) -> str | None:
    """A decimal string; None stays None."""
    return None if units is None else format_amount(units)


def key(known: KnownKey) -> Json:
    """A key, without what would let anybody in."""
    one = known.key
    return {
        "id": one.id,
        "name": one.name,
        "source": known.source.value,
        "prefix": known.prefix,
        "tenant": one.tenant,
        "models": None if one.models is None else sorted(one.models),
        "monthly_cap": amount(one.monthly_cap),
        "requests_per_minute": one.requests_per_minute,
        "tokens_per_minute": one.tokens_per_minute,
        "concurrency": one.concurrency,
        **_month(known.month),
        "created_at": stamp(known.created_ms),
        "last_used_at": stamp(known.last_used_ms),
        "revoked_at": stamp(known.revoked_ms),
    }


def tenant(known: KnownTenant) -> Json:
    """A tenant and its money. Of one that is not prepaid `balance` and what goes with it are null."""
    one, balance = known.tenant, known.balance
    return {
        "name": one.name,
        "source": known.source.value,
        "status": one.status.value,
        "prepaid": one.prepaid,
        "balance": None if balance is None else amount(balance.credited - balance.spent - balance.held),
        "credited": None if balance is None else amount(balance.credited),
        "spent": None if balance is None else amount(balance.spent),
        "held": None if balance is None else amount(balance.held),
        "monthly_budget": amount(one.monthly_budget),
        **_month(known.month),
        "agreements": sorted(one.agreements),
    }


def entry(one: Entry) -> Json:
    """An entry of the ledger, with every attempt."""
    return {
        **_asked(one),
        "state": one.state.value,
        "held": amount(one.held),
        "charged": amount(one.charged),
        "usage": usage(one.usage),
        "estimated": one.estimated,
        "overdraft": one.overdraft,
        "outcome": one.outcome,
        "attempts": [
            {
                "deployment": attempt.deployment,
                "outcome": attempt.outcome,
                "status": attempt.status,
                "started_at": stamp(attempt.started_ms),
                "first_ms": attempt.first_ms,
                "took_ms": attempt.took_ms,
            }
            for attempt in one.attempts
        ],
        "at": stamp(one.at_ms),
        "ended_at": stamp(one.ended_ms),
        "config_version": one.config_version,
    }


def running(one: Entry) -> Json:
    """A request that has not ended: what it holds, and what it used when that was last written down."""
    return {
        **_asked(one),
        "since": stamp(one.at_ms),
        "held": amount(one.held),
        "usage": usage(one.usage),
    }


def granted(grant: Grant) -> Json:
    """The same of a request of this process."""
    demand = grant.demand
    return {
        "request_id": demand.request_id,
        "client_request_id": demand.label,
        "key": None if demand.key is None else demand.key.name,
        "key_id": None if demand.key is None else demand.key.id,
        "tenant": None if demand.tenant is None else demand.tenant.name,
        "model": demand.model,
        "surface": demand.surface,
        "since": stamp(grant.at_ms),
        "held": amount(grant.held),
        "usage": usage(grant.usage),
    }


def usage_row(row: UsageRow) -> Json:
    """A sum, under the values that it stands for."""
    return {
        **row.group,
        "requests": row.requests,
        "usage": usage(row.usage),
        "charged": amount(row.charged),
        "estimated": row.estimated,
    }


def usage_cells(row: UsageRow) -> list[str]:
    """The same as a line of a table: the group's values, then `SUMS`."""
    used = row.usage
    counts = (
        row.requests,
        used.prompt_tokens,
        used.completion_tokens,
        used.total_tokens,
        used.cached_tokens,
        format_amount(row.charged),
        row.estimated,
    )
    return [value or "" for value in row.group.values()] + [str(count) for count in counts]


def usage(used: Usage) -> Json:
    """Token counts."""
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens,
        "cached_tokens": used.cached_tokens,
    }


def _asked(one: Entry) -> Json:
    """Whose request an entry is, and for what."""
    return {
        "request_id": one.request_id,
        "client_request_id": one.label,
        "key": one.key_name,
        "key_id": one.key_id,
        "tenant": one.tenant,
        "model": one.model,
        "surface": one.surface,
    }


def _month(money: Money | None) -> Json:
    """What was spent in this calendar month, and is held for requests that run."""
    return {
        "spent_this_month": None if money is None else amount(money.spent),
        "held_this_month": None if money is None else amount(money.held),
    }
