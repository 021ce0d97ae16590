"""What a caller is told whose limits or money do not carry a request."""

import math
from datetime import UTC, datetime

from onward.admission.ledger import AccountKind, Refused
from onward.admission.limits import Exceeded, LimitKind, Take
from onward.core.failure import Failure, FailureKind
from onward.core.money import format_amount


def no_price(model: str) -> Failure:
    """The failure of a model without a price, where money is counted."""
    return Failure(
        FailureKind.PAYMENT_REQUIRED,
        f"The model '{model}' has no price, so a key whose money is counted cannot use it."
        " Use another model.",
        param="model",
    )


def money_refused(refused: Refused, amount: int, currency: str, at_ms: int) -> Failure:
    """The failure of a request that came at `at_ms` and could cost `amount`: an account carries less."""
    could = f"this request could cost {format_amount(amount)} {currency}"
    carries = f"{format_amount(refused.available)} {currency}"
    if refused.kind is AccountKind.BALANCE:
        return Failure(
            FailureKind.INSUFFICIENT_BALANCE,
            f"The balance carries {carries} and {could}. Ask for fewer tokens, or add to the balance.",
        )
    whose = "key's monthly cap" if refused.kind is AccountKind.KEY_MONTH else "account's monthly budget"
    return Failure(
        FailureKind.BUDGET_EXCEEDED,
        f"The {whose} has {carries} left and {could}. Ask for fewer tokens, or wait for the next month.",
        retry_after=_to_next_month(at_ms),
    )


def _to_next_month(at_ms: int) -> int:
    """Whole seconds, at least 1."""
    now = datetime.fromtimestamp(at_ms / 1000, UTC)
    next_month = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return math.ceil((next_month - now).total_seconds())


def limit_exceeded(exceeded: Exceeded, take: Take) -> Failure:
    """The failure of a request for which a key's limits have no room."""
    limit = exceeded.limit
    if exceeded.retry_after_s == 0:
        what = (
            f"This request could use {take.tokens} tokens and this key may use {limit} per minute, so it"
            " never passes. Ask for fewer tokens."
        )
    elif exceeded.kind is LimitKind.REQUESTS:
        what = f"This key may make {limit} requests per minute. Wait and try again."
    elif exceeded.kind is LimitKind.TOKENS:
        what = (
            f"This key may use {limit} tokens per minute and this request could use {take.tokens}."
            " Ask for fewer tokens, or wait and try again."
        )
    else:
        what = f"This key may have {limit} requests running at once. Wait for one to end."
    return Failure(FailureKind.RATE_LIMITED, what, retry_after=exceeded.retry_after_s or 60)
