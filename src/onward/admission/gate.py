"""The way in and the way out of every request: limits and money are taken, and given back once.

`Gate.admit` takes a request's place and holds its worst cost, or refuses and takes nothing. Whatever
becomes of the request, exactly one of `settle` and `release` ends its `Grant`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec.structs import replace

from onward.admission.demand import Demand
from onward.admission.idempotency import Binding
from onward.admission.keys import Key
from onward.admission.ledger import (
    AccountKind,
    Done,
    Granted,
    Operation,
    Progress,
    Refused,
    Release,
    Reserve,
    Result,
    Settle,
)
from onward.admission.limits import Exceeded, GiveBack, Take
from onward.admission.payers import Payer, Payers
from onward.admission.pricing import affordable_completion, charge, worst_case
from onward.admission.refusals import limit_exceeded, money_refused, no_price
from onward.core.attempt import Attempt
from onward.core.clock import Clock
from onward.core.failure import Failure
from onward.core.price import Price
from onward.core.usage import Usage

_MOST_UNSETTLED: Final = 100_000
_MOST_UNDONE: Final = 50_000
"""Of them, those of requests that were refused as the store was down: they leave room for the others."""
_LOWERED_TIMES: Final = 3
_NO_PRICE: Final = Price(input=0, cached_input=0, output=0)
Write = Callable[[Operation], Awaitable[Result]]
"""Hands an operation to the ledger at once, in the order of the calls; durable once awaited."""


class Grant:
    """A request that was let in."""

    held: int = 0
    marked_tokens: int = 0
    open: bool = True
    cancel: Callable[[], None] | None = None
    """Ends the request as CANCELLED; set by whoever runs it. Calling it again changes nothing."""

    def __init__(self, demand: Demand, usage: Usage, at_ms: int, *, taken: bool, marked: bool) -> None:
        self.demand = demand
        self.max_tokens = demand.max_tokens
        """Of each choice: the demand's, or lowered."""
        self.usage = usage
        """Live: filled by whoever runs the request, read by the progress marks."""
        self.at_ms = at_ms
        self.taken = taken
        """Whether a place was taken from the key's limits."""
        self.marked = marked
        """Whether what it used is written down while it runs, and charged if its process dies."""


class Takes:
    """How the gate reaches the rate limits, each call in order."""

    __slots__ = ("give_back", "give_back_now", "take", "take_now")

    def __init__(
        self,
        take: Callable[[Take], Awaitable[Exceeded | None]],
        give_back: Callable[[GiveBack], Awaitable[None]],
        take_now: Callable[[Take], Exceeded | None] | None = None,
        give_back_now: Callable[[GiveBack], None] | None = None,
    ) -> None:
        """`take_now`, `give_back_now`: the same, where nothing is waited for."""
        self.take = take
        self.give_back = give_back
        self.take_now = take_now
        self.give_back_now = give_back_now


class Gate:
    """Admission of one process. `write` and `limits` None: nothing is kept, or limited."""

    def __init__(
        self,
        *,
        write: Write | None,
        limits: Takes | None,
        lease: str,
        clock: Clock,
        currency: str = "USD",
        bind: Callable[[str, Binding], None] | None = None,
    ) -> None:
        """`bind`: keeps the answer of a request ID where nothing is written."""
        self._write = write
        self._bind = bind
        self._limits = limits
        self._lease = lease
        self._clock = clock
        self._currency = currency
        self._open: dict[str, Grant] = {}
        self._unsettled: dict[str, Settle | Release] = {}
        self._payers = Payers()
        self.used: dict[str, int] = {}
        """When each key was last used (Unix milliseconds), for whoever writes that down."""

    @property
    def writes(self) -> bool:
        """Whether anything is kept of a request."""
        return self._write is not None

    @property
    def running(self) -> Iterable[Grant]:
        """What is let in and has not ended."""
        return self._open.values()

    def cancel(self, request_id: str) -> bool:
        """End a request that runs here. False: it does not, or is about to end by itself."""
        grant = self._open.get(request_id)
        if grant is None or grant.cancel is None:
            return False
        grant.cancel()
        return True

    async def admit(self, demand: Demand, usage: Usage, *, marked: bool = True) -> Grant:
        """Take a place and hold the worst cost. Raises RATE_LIMITED, INSUFFICIENT_BALANCE,
        BUDGET_EXCEEDED, PAYMENT_REQUIRED, STORE_DOWN; nothing is taken then.

        `marked` False: if this process dies, nothing of it is charged.
        """
        key = demand.key
        take = None if key is None else self._take(demand, key)
        if take is not None and self._limits is not None:
            try:
                now = self._limits.take_now
                exceeded = await self._limits.take(take) if now is None else now(take)
            except BaseException:
                self._give_back(demand, 0, counts=False)
                raise
            if exceeded is not None:
                raise limit_exceeded(exceeded, take)
        grant = Grant(demand, usage, int(self._clock.unix() * 1000), taken=take is not None, marked=marked)
        if key is not None or self._write is not None:
            try:
                payer = self._payer(demand, grant.at_ms)
                tries = _LOWERED_TIMES
                while self._write is not None:
                    tries -= 1
                    try:
                        result = await self._write(self._reservation(grant, payer))
                    except BaseException:
                        self._undo(grant)
                        raise
                    if isinstance(result, Granted):
                        break
                    self._lower(grant, result, last=tries == 0)
            except BaseException:
                if grant.taken:
                    self._give_back(demand, 0, counts=False)
                raise
        self._open[demand.request_id] = grant
        if key is not None:
            self.used[key.id] = grant.at_ms
        return grant

    async def settle(
        self,
        grant: Grant,
        *,
        attempts: tuple[Attempt, ...] = (),
        outcome: str = "ok",
        estimated: bool = False,
        given: bool = True,
        binding: Binding | None = None,
    ) -> int:
        """End a grant by what `grant.usage` says. Durable on return; what was charged. Raises STORE_DOWN.

        `binding`: the answer that is kept with the charge, or with none.
        `given` False: the caller gets an answer only behind this. Where it raises the caller is not
        charged later for what it did not get.
        """
        cost = charge(grant.demand.price or _NO_PRICE, grant.usage)
        request_id, write = grant.demand.request_id, self._write
        if write is None:
            self._end(grant, counts=True)
            if self._bind is not None and binding is not None:
                self._bind(request_id, binding)
            return cost
        at_ms = int(self._clock.unix() * 1000)
        settle = Settle(
            request_id=request_id,
            charge=cost,
            usage=replace(grant.usage),
            at_ms=at_ms,
            estimated=estimated,
            outcome=outcome,
            attempts=attempts,
            binding=binding,
        )
        self._end(grant, counts=True)
        try:
            await write(settle)
        except BaseException as error:
            if isinstance(error, Failure) and not given:
                why = error.kind.value
                self._keep(Release(request_id=request_id, at_ms=at_ms, outcome=why, attempts=attempts))
            else:
                self._keep(settle)
            raise
        return cost

    async def release(self, grant: Grant, *, outcome: str, attempts: tuple[Attempt, ...] = ()) -> None:
        """End a grant of which nothing was made: nothing is charged, its place does not count."""
        ended = Release(
            request_id=grant.demand.request_id,
            at_ms=int(self._clock.unix() * 1000),
            outcome=outcome,
            attempts=attempts,
        )
        self._end(grant, counts=False)
        if self._write is not None:
            try:
                await self._write(ended)
            except BaseException:
                self._keep(ended)
                raise

    async def mark(self) -> None:
        """Write the progress of everything that moved since the last mark, and what could not be ended
        while the store was down. To be called once a second; what fails is tried again by the next
        call. Raises STORE_DOWN.
        """
        if self._write is None:
            return
        ending = [(operation, self._write(operation)) for operation in self._unsettled.values()]
        marking: list[tuple[Grant, Awaitable[Result]]] = []
        for grant in self._open.values():
            tokens = grant.usage.completion_tokens
            if tokens != grant.marked_tokens and grant.marked:
                grant.marked_tokens = tokens
                price = grant.demand.price or _NO_PRICE
                operation = Progress(
                    request_id=grant.demand.request_id,
                    usage=replace(grant.usage),
                    charge=charge(price, grant.usage),
                )
                marking.append((grant, self._write(operation)))
        failed: Failure | None = None
        for ended, done in ending:
            try:
                await done
            except Failure as failure:
                failed = failure
            else:
                if self._unsettled.get(ended.request_id) is ended:
                    del self._unsettled[ended.request_id]
        for grant, done in marking:
            try:
                await done
            except Failure as failure:
                failed = failure
                grant.marked_tokens = -1
        if failed is not None:
            raise failed

    def _payer(self, demand: Demand, at_ms: int) -> Payer:
        payer = self._payers.payer(demand.key, demand.tenant, at_ms)
        if demand.price is None and payer.counts_money:
            raise no_price(demand.model)
        return payer

    def _lower(self, grant: Grant, result: Refused | Done, *, last: bool) -> None:
        """Ask for as many tokens as the balance carries. Raises where that cannot be."""
        if isinstance(result, Done):
            raise RuntimeError("a request ID was used twice")  # noqa: TRY004 - no type is wrong
        demand = grant.demand
        price = demand.price or _NO_PRICE
        carried = affordable_completion(price, demand.prompt_tokens, result.available) // demand.choices
        lowered = demand.lowerable and result.kind is AccountKind.BALANCE and not last
        if not lowered or not 1 <= carried < grant.max_tokens:
            raise money_refused(result, grant.held, self._currency, grant.at_ms)
        grant.max_tokens = carried

    def _undo(self, grant: Grant) -> None:
        """Nobody knows whether the hold was written: this goes behind it, and ends it if it was."""
        release = Release(request_id=grant.demand.request_id, at_ms=grant.at_ms, outcome="not_admitted")
        if len(self._unsettled) < _MOST_UNDONE:
            self._keep(release)
        if self._write is not None:
            self._write(release)

    def _reservation(self, grant: Grant, payer: Payer) -> Reserve:
        demand = grant.demand
        grant.held = held = worst_case(
            demand.price or _NO_PRICE, demand.prompt_tokens, demand.choices * grant.max_tokens
        )
        return Reserve(
            request_id=demand.request_id,
            lease=self._lease,
            key_id=payer.key_id,
            key_name=payer.key_name,
            tenant=payer.tenant_name,
            model=demand.model,
            surface=demand.surface,
            at_ms=grant.at_ms,
            amount=held,
            accounts=payer.accounts,
            label=demand.label,
            config_version=demand.config_version,
        )

    def _take(self, demand: Demand, key: Key) -> Take | None:
        requests, tokens, concurrency = key.requests_per_minute, key.tokens_per_minute, key.concurrency
        if self._limits is None or (requests is None and tokens is None and concurrency is None):
            return None
        return Take(
            request_id=demand.request_id,
            lease=self._lease,
            subject=key.id,
            tokens=demand.prompt_tokens + demand.choices * demand.max_tokens,
            requests_per_minute=requests,
            tokens_per_minute=tokens,
            concurrency=concurrency,
        )

    def _give_back(self, demand: Demand, tokens: int, *, counts: bool) -> None:
        limits = self._limits
        if demand.key is not None and limits is not None:
            end = GiveBack(request_id=demand.request_id, subject=demand.key.id, tokens=tokens, counts=counts)
            now = limits.give_back_now
            if now is None:
                limits.give_back(end)
            else:
                now(end)

    def _end(self, grant: Grant, *, counts: bool) -> None:
        if not grant.open:
            raise RuntimeError("a grant ends once")
        grant.open = False
        del self._open[grant.demand.request_id]
        if grant.taken:
            self._give_back(grant.demand, grant.usage.total_tokens if counts else 0, counts=counts)

    def _keep(self, operation: Settle | Release) -> None:
        """Try again with the next mark. What is too much for our memory is left to the lease's end.

        Also where the waiting was cancelled: what is not known to be written is written again, which
        changes nothing if it was.
        """
        if len(self._unsettled) < _MOST_UNSETTLED:
            self._unsettled[operation.request_id] = operation
