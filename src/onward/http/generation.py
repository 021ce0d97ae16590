"""The endpoints that generate: admitted, tried at the model's deployments in order, settled, answered.

Money and limits are taken before the first try and settled before the last bytes of the answer: what
a caller has seen to its end stands in the ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from operator import methodcaller
from typing import Any, Final

from onward.admission.gate import Gate
from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.http.asked import CHAT, COMPLETIONS, LARGE_BODY, MESSAGES, Asked, Surface, in_turn
from onward.http.bill import Bill
from onward.http.event_stream import event_stream
from onward.http.exchange import Exchange, HeldBodies, shutting_down, went_wrong
from onward.http.idempotent import Idempotency, request_name
from onward.http.limits import Limits
from onward.http.recording import Recording
from onward.http.served import Models, Target
from onward.http.tries import Tries
from onward.http.watch import Watch
from onward.wire.body import check_body_headers, decode_body

logger = logging.getLogger("onward")
_WHOLE: Final = methodcaller("whole")


async def read_body(exchange: Exchange, limits: Limits, held: HeldBodies) -> tuple[bytes, dict[str, Any]]:
    """A body as it came, and the object in it. Raises `Failure`, `Disconnected`.

    What its header says is looked at first: a caller that waits to be asked for its body
    (`Expect: 100-continue`) is not asked in vain.
    """
    head, dialect = exchange.head, exchange.dialect
    if head.checked is not dialect:
        check_body_headers(
            exchange.header(b"content-type"),
            exchange.header(b"content-encoding"),
            dialect.untyped_body_lacks,
        )
        head.checked = dialect
    raw = await exchange.read_body(limits, held)
    if len(raw) < LARGE_BODY:
        return raw, decode_body(raw)
    return raw, await asyncio.to_thread(decode_body, raw)


def _read_at_once(exchange: Exchange, limits: Limits) -> tuple[bytes, dict[str, Any]] | None:
    """What `read_body` gives, of a small body that is here, behind a header that was looked at before; None:
    there is something to wait for.
    """
    if exchange.head.checked is not exchange.dialect:
        return None
    raw = exchange.take_body(min(limits.body_bytes, LARGE_BODY - 1))
    return None if raw is None else (raw, decode_body(raw))


async def read_request(
    exchange: Exchange, limits: Limits, held: HeldBodies, read: Callable[[Any, dict[str, Any]], Any]
) -> Any:
    """The request in a body, by one of `wire.requests`. Raises `Failure`, `Disconnected`."""
    raw, body = await read_body(exchange, limits, held)
    return await in_turn(read, exchange, raw, body)


class Generation:
    """Completions and chat."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        held: HeldBodies,
        tries: Tries,
        *,
        gate: Gate,
        idempotency: Idempotency,
        assumed_max_tokens: int,
    ) -> None:
        """`assumed_max_tokens`: held where a request sets no limit, of a model that a provider runs."""
        self._models = models
        self._limits = limits
        self._held = held
        self._tries = tries
        self._gate = gate
        self._idempotency = idempotency
        self._assumed = assumed_max_tokens

    def completions(self, exchange: Exchange) -> Awaitable[None]:
        return self._generate(exchange, COMPLETIONS)

    def chat(self, exchange: Exchange) -> Awaitable[None]:
        return self._generate(exchange, CHAT)

    def messages(self, exchange: Exchange) -> Awaitable[None]:
        return self._generate(exchange, MESSAGES)

    async def _generate(self, exchange: Exchange, surface: Surface) -> None:
        named = request_name(exchange)
        limits = self._limits
        raw, body = _read_at_once(exchange, limits) or await read_body(exchange, limits, self._held)
        name = body.get("model")
        if not isinstance(name, str):
            await in_turn(surface.read, exchange, raw, body)  # which says what is wrong with it
            name = None
        models, dialect, key = self._models, exchange.dialect, exchange.key
        target = models.known(dialect, name, key) or await models.target(dialect, name, key)
        exchange.record.model = target.model.id
        if target.model.agreement:
            _check_agreement(exchange, target)
        asked = Asked(exchange, surface, target, raw, body)
        if named is None:
            await self._answer(exchange, asked, None)
        else:
            await self._idempotency.answer(
                exchange, named, raw, lambda recording: self._answer(exchange, asked, recording)
            )

    async def _answer(self, exchange: Exchange, asked: Asked, recording: Recording | None) -> None:
        """Answer a request to its caller, whose leaving ends it, or into a recording. Raises `Failure`."""
        attended = recording is None
        task = exchange.task if attended else None
        with Watch(exchange, self._limits.request_s, attended=attended, task=task) as watch:
            try:
                await asked.prepare(self._assumed)
                await self._admitted(exchange, asked, watch, recording)
            except asyncio.CancelledError:
                if watch.gone:
                    exchange.record.disconnected = True
                    return
                failure = self._cut_off(watch)
                exchange.record.failure = failure.kind
                if not (exchange if recording is None else recording).answering:
                    raise failure from None

    async def _admitted(
        self, exchange: Exchange, asked: Asked, watch: Watch, recording: Recording | None
    ) -> None:
        # A named request that dies with its process is tried again: nothing of it is charged.
        grant = await self._gate.admit(asked.demand(), Usage(), marked=recording is None)
        grant.cancel = watch.cancel
        bill = Bill(self._gate, grant, recording)
        try:
            if asked.stream:
                await self._stream(exchange, asked, bill, watch, recording)
            else:
                _, body = await self._tries.first(exchange, asked, bill, _WHOLE)
                await bill.settle(body, given=False)
                await (exchange if recording is None else recording).respond(200, body)
        except asyncio.CancelledError:
            await (bill.leave(streamed=asked.stream) if watch.gone else bill.fail(self._cut_off(watch)))
            raise
        except Failure as failure:
            await bill.fail(failure)
            raise
        except Exception:
            await bill.close(FailureKind.INTERNAL.value, charged=False)
            raise

    async def _stream(
        self, exchange: Exchange, asked: Asked, bill: Bill, watch: Watch, recording: Recording | None
    ) -> None:
        async with event_stream(exchange, self._limits) if recording is None else recording as stream:
            try:
                answer, _ = await self._tries.first(exchange, asked, bill, lambda one: one.stream(stream))
                end = answer.end()
                await bill.settle(end)
                await stream.end(end)
            except asyncio.CancelledError:
                if watch.gone or not stream.started:
                    raise
                failure = self._cut_off(watch)
            except Failure as error:
                if not stream.started:
                    raise
                failure = error
            except Exception:
                if not stream.started:
                    raise
                logger.exception("request_id=%s failed while it streamed", exchange.request_id)
                failure = went_wrong(exchange)
            else:
                return
            await bill.fail(failure)
            # Ends with an error event, and without the mark of a whole one (1.8).
            exchange.record.failure = failure.kind
            await stream.end(exchange.failure_event(failure))

    def _cut_off(self, watch: Watch) -> Failure:
        if watch.cancelled:
            return Failure(
                FailureKind.CANCELLED, "The operator of the server cancelled this request. Ask there why."
            )
        if not watch.expired:
            return shutting_down()
        return Failure(
            FailureKind.DEADLINE_EXCEEDED,
            f"The answer was not complete after {self._limits.request_s:g} s. Ask for fewer tokens.",
        )


def _check_agreement(exchange: Exchange, target: Target) -> None:
    """Raises AGREEMENT_REQUIRED for a model whose terms the caller's tenant has not accepted."""
    if exchange.key is None:
        return
    if exchange.tenant is None or target.model.id not in exchange.tenant.agreements:
        raise Failure(
            FailureKind.AGREEMENT_REQUIRED,
            f"The terms of the model '{target.model.id}' have not been accepted for this API key. Accept them"
            " first.",
            param="model",
        )
