"""The tries of one request at its model's deployments, in order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from onward.core.clock import Clock
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import HeaderValue
from onward.http.asked import Answering, Asked
from onward.http.bill import Bill
from onward.http.exchange import Exchange
from onward.routing.attempts import moves_on

T = TypeVar("T")
_PRIMARY: Final = b"primary"
_FALLBACK: Final = b"fallback"


class Tries:
    """Finds the deployment that answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def first(
        self,
        exchange: Exchange,
        asked: Asked,
        bill: Bill,
        use: Callable[[Answering], Awaitable[T]],
    ) -> tuple[Answering, T]:
        """Try the deployments in order; the first piece of output commits to one. Raises `Failure`."""
        last = len(asked.deployments) - 1
        for number, deployment in enumerate(asked.deployments):
            answer = asked.answer(deployment, bill, int(self._clock.unix()))
            exchange.record.usage = answer.usage
            exchange.header_values[HeaderValue.PROVIDER_CLASS] = _FALLBACK if number else _PRIMARY
            bill.begin(deployment.deployment, answer)
            try:
                result = await use(answer)
            except Failure as failure:
                bill.over(failure.kind.value)
                if answer.first is not None or not moves_on(failure, exchange.dialect.passing.final):
                    raise
                if number == last:
                    raise _none_left(exchange, failure, last) from None
            except asyncio.CancelledError:
                bill.over("cut_off")
                raise
            except Exception:
                bill.over(FailureKind.INTERNAL.value)
                raise
            else:
                bill.over("ok")
                return answer, result
        raise AssertionError("a model has at least one deployment")


def _none_left(exchange: Exchange, failure: Failure, others: int) -> Failure:
    """What is said when every deployment failed: of the only one its own failure (K-7)."""
    if not others:
        return failure
    joint = exchange.dialect.passing.joint_failure
    if joint is not None:
        return Failure(joint, "No provider of this model could answer. Try again later.")
    failure.upstream_status = None
    return failure
