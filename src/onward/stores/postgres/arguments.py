"""What a batch changed, as the columns that `ledger_write` takes."""

from typing import Final

from onward.admission.books import Changes, Tally
from onward.admission.ledger import State
from onward.core.usage import Usage

STATES: Final = {State.HELD: 0, State.SETTLED: 1, State.RELEASED: 2, State.EXPIRED: 3}
Column = list[str] | list[int] | list[bool] | list[str | None] | list[int | None]
_NONE: Final[list[str]] = []
_NO_USAGE: Final = Usage()


def arguments_of(
    before: dict[str, Tally],
    after: dict[str, Tally],
    known: list[str],
    changes: Changes,
    origins: dict[str, int],
) -> list[Column]:
    """The arguments of `ledger_write`, in order. `origins` by request ID."""
    new = [after[account] for account in before]
    columns: list[Column] = [
        [*before],
        [tally.credited for tally in before.values()],
        [tally.spent for tally in before.values()],
        [tally.held for tally in before.values()],
        [tally.spent for tally in new],
        [tally.held for tally in new],
        known,
    ]
    opened = changes.opened
    if opened:
        reserves = [hold.reserve for hold in opened]
        columns += [
            [reserve.request_id for reserve in reserves],
            [reserve.label for reserve in reserves],
            [reserve.lease for reserve in reserves],
            [origins[reserve.request_id] for reserve in reserves],
            [hold.amount for hold in opened],
            [reserve.at_ms for reserve in reserves],
        ]
    else:
        columns += [_NONE] * 6
    if changes.marked:
        marked = [(name, hold.charge, hold.usage or _NO_USAGE) for name, hold in changes.marked.items()]
        columns += [
            [name for name, _, _ in marked],
            [charge for _, charge, _ in marked],
            [usage.prompt_tokens for _, _, usage in marked],
            [usage.completion_tokens for _, _, usage in marked],
            [usage.cached_tokens for _, _, usage in marked],
        ]
    else:
        columns += [_NONE] * 5
    return columns + (_endings(changes) if changes.ended else [_NONE] * 18)


def _endings(changes: Changes) -> list[Column]:
    ended = changes.ended
    names = [ending.hold.reserve.request_id for ending in ended]
    usages = [ending.usage for ending in ended]
    attempts = [
        (name, number, attempt)
        for name, ending in zip(names, ended, strict=True)
        for number, attempt in enumerate(ending.attempts)
    ]
    return [
        names,
        [STATES[ending.state] for ending in ended],
        [ending.charged for ending in ended],
        [usage.prompt_tokens for usage in usages],
        [usage.completion_tokens for usage in usages],
        [usage.cached_tokens for usage in usages],
        [ending.estimated for ending in ended],
        [ending.overdraft for ending in ended],
        [ending.outcome for ending in ended],
        [ending.at_ms for ending in ended],
        [name for name, _, _ in attempts],
        [number for _, number, _ in attempts],
        [attempt.deployment for _, _, attempt in attempts],
        [attempt.outcome for _, _, attempt in attempts],
        [attempt.status for _, _, attempt in attempts],
        [attempt.started_ms for _, _, attempt in attempts],
        [attempt.first_ms for _, _, attempt in attempts],
        [attempt.took_ms for _, _, attempt in attempts],
    ]
