"""What a batch changed, as the columns that `ledger_write` takes.

Each column is an array as PostgreSQL writes it: as text it costs a fifth of what the driver takes to
encode a list, since it looks at every element's type.
"""

from collections.abc import Iterable
from typing import Final

from onward.admission.books import Changes, Tally
from onward.core.usage import Usage
from onward.stores.rows import STATES

_NONE: Final = "{}"
_NO_USAGE: Final = Usage()


def arguments_of(
    before: dict[str, Tally],
    after: dict[str, Tally],
    known: list[str],
    changes: Changes,
    origins: dict[str, int],
) -> list[str]:
    """The arguments of `ledger_write`, in order. `origins` by request ID."""
    old, new = before.values(), [after[account] for account in before]
    columns = [
        texts(before),
        numbers([tally.credited for tally in old]),
        numbers([tally.spent for tally in old]),
        numbers([tally.held for tally in old]),
        numbers([tally.spent for tally in new]),
        numbers([tally.held for tally in new]),
        texts(known),
    ]
    opened = changes.opened
    if opened:
        reserves = [hold.reserve for hold in opened]
        columns += [
            texts([reserve.request_id for reserve in reserves]),
            texts([reserve.label for reserve in reserves]),
            texts([reserve.lease for reserve in reserves]),
            numbers([origins[reserve.request_id] for reserve in reserves]),
            numbers([hold.amount for hold in opened]),
            numbers([reserve.at_ms for reserve in reserves]),
        ]
    else:
        columns += [_NONE] * 6
    if changes.marked:
        marked = [(name, hold.charge, hold.usage or _NO_USAGE) for name, hold in changes.marked.items()]
        columns += [
            texts([name for name, _, _ in marked]),
            numbers([charge for _, charge, _ in marked]),
            numbers([usage.prompt_tokens for _, _, usage in marked]),
            numbers([usage.completion_tokens for _, _, usage in marked]),
            numbers([usage.cached_tokens for _, _, usage in marked]),
        ]
    else:
        columns += [_NONE] * 5
    return columns + (_endings(changes) if changes.ended else [_NONE] * 18)


def _endings(changes: Changes) -> list[str]:
    ended = changes.ended
    names = [ending.hold.reserve.request_id for ending in ended]
    usages = [ending.usage for ending in ended]
    columns = [
        texts(names),
        numbers([STATES[ending.state] for ending in ended]),
        numbers([ending.charged for ending in ended]),
        numbers([usage.prompt_tokens for usage in usages]),
        numbers([usage.completion_tokens for usage in usages]),
        numbers([usage.cached_tokens for usage in usages]),
        numbers([ending.estimated for ending in ended]),
        numbers([ending.overdraft for ending in ended]),
        texts([ending.by.outcome for ending in ended]),
        numbers([ending.by.at_ms for ending in ended]),
    ]
    attempts = [
        (name, number, attempt)
        for name, ending in zip(names, ended, strict=True)
        for number, attempt in enumerate(ending.by.attempts)
    ]
    if not attempts:
        return columns + [_NONE] * 8
    return [
        *columns,
        texts([name for name, _, _ in attempts]),
        numbers([number for _, number, _ in attempts]),
        texts([attempt.deployment for _, _, attempt in attempts]),
        texts([attempt.outcome for _, _, attempt in attempts]),
        numbers_or_not([attempt.status for _, _, attempt in attempts]),
        numbers([attempt.started_ms for _, _, attempt in attempts]),
        numbers_or_not([attempt.first_ms for _, _, attempt in attempts]),
        numbers([attempt.took_ms for _, _, attempt in attempts]),
    ]


def texts(values: Iterable[str | None]) -> str:
    """An array of texts, whatever is in them."""
    quoted = [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def numbers(values: list[int]) -> str:
    """An array of numbers, or of truth values."""
    return "{" + str(values)[1:-1] + "}"


def numbers_or_not(values: list[int | None]) -> str:
    """An array of numbers of which some are missing."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
