"""The tries of one request at its model's deployments: the healthy ones in order, then those that rest."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

from onward.core.clock import Clock
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import HeaderValue
from onward.engines.protocol import EngineState
from onward.http.asked import Answering, Asked
from onward.http.bill import Bill
from onward.http.exchange import Exchange
from onward.routing.attempts import after_output, moves_on
from onward.routing.breaker import Breakers
from onward.serve.model import Deployment, ServedModel

T = TypeVar("T")
_PRIMARY: Final = b"primary"
_FALLBACK: Final = b"fallback"


class Tries:
    """Finds the deployment that answers."""

    def __init__(
        self, clock: Clock, breakers: Breakers, primaries: Collection[str], request_s: float
    ) -> None:
        """`primaries`: the first deployment of each model of the config. `request_s`: see `Limits`."""
        self._clock = clock
        self._breakers = breakers
        self._primaries = frozenset(primaries)
        self._request_s = request_s

    async def first(
        self,
        exchange: Exchange,
        asked: Asked,
        bill: Bill,
        use: Callable[[Answering], Awaitable[T]],
    ) -> tuple[Answering, T]:
        """Try the deployments in order; the first piece of output commits to one. Raises `Failure`."""
        breakers, deployments = self._breakers, asked.deployments
        last = len(deployments) - 1
        for number, deployment in enumerate(in_order(breakers, deployments) if last else deployments):
            name = deployment.deployment
            answer = asked.answer(deployment, bill, int(self._clock.unix()))
            exchange.record.usage = answer.usage
            exchange.header_values[HeaderValue.PROVIDER_CLASS] = (
                _PRIMARY if name in self._primaries else _FALLBACK
            )
            began_in = breakers.begin(name, answer)
            bill.begin(name, answer)
            try:
                result = await use(answer)
            except Failure as error:
                failure = error if answer.first is None else after_output(error)
                bill.over(failure.kind.value)
                breakers.failed(name, failure, answer)
                if answer.first is not None or not moves_on(failure, exchange.dialect.passing.final):
                    raise failure from None
                if number == last:
                    raise _none_left(exchange, failure, last) from None
                if self._clock.monotonic() - exchange.record.started >= self._request_s:
                    raise self._too_late() from None
            except asyncio.CancelledError:
                bill.over("cut_off")
                breakers.left(name, answer)
                raise
            except Exception:
                bill.over(FailureKind.INTERNAL.value)
                breakers.left(name, answer)
                raise
            else:
                bill.over("ok")
                breakers.succeeded(name, began_in)
                return answer, result
        raise AssertionError("a model has at least one deployment")

    def _too_late(self) -> Failure:
        return Failure(
            FailureKind.DEADLINE_EXCEEDED,
            f"No provider of this model had answered after {self._request_s:g} s. Try again later.",
        )


def in_order(breakers: Breakers, deployments: Sequence[Deployment]) -> Iterator[Deployment]:
    """The order of the config, but those that rest, or whose engine is not up, come last: they are asked
    where nobody else can answer.
    """
    later: list[Deployment] = []
    for one in deployments:
        if breakers.rests(one.deployment) or not is_up(one):
            later.append(one)
        else:
            yield one
    yield from later


def is_up(deployment: Deployment) -> bool:
    """Whether an engine of ours can take requests. Of a provider nothing is known before it is asked."""
    return not isinstance(deployment, ServedModel) or deployment.engine.status().state is EngineState.READY


def _none_left(exchange: Exchange, failure: Failure, others: int) -> Failure:
    """What is said when every deployment failed: of the only one its own failure (K-7)."""
    if not others:
        return failure
    joint = exchange.dialect.passing.joint_failure
    if joint is not None:
        return Failure(joint, "No provider of this model could answer. Try again later.")
    failure.upstream_status = None
    return failure
