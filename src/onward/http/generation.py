"""The endpoints that generate: streamed or whole, from the same deltas."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from onward.core.clock import Clock
from onward.core.delta import ChoiceDelta, fold, settled
from onward.core.failure import Failure, FailureKind
from onward.core.request import OutputOptions
from onward.dialects.schema import HeaderValue
from onward.http.event_stream import EventStream
from onward.http.exchange import Exchange, HeldBodies, shutting_down
from onward.http.limits import Limits
from onward.http.served import Models
from onward.http.watch import Watch
from onward.serve.job import Job, prepare_chat, prepare_completion
from onward.serve.pipeline import run
from onward.wire.body import check_body_headers, decode_body
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.requests import chat_request, completion_request

logger = logging.getLogger("onward")
_LARGE_BODY = 128 * 1024
"""Bytes from which a body is read in a thread, so that nobody else waits for it."""
_LARGE_ANSWER = 20_000
"""Log probabilities from which an answer is written in a thread."""


class Surface(msgspec.Struct, frozen=True):
    """What one generating surface is made of."""

    read: Callable[[Any, dict[str, Any]], Any]
    prepare: Callable[[Any, Any, str], Awaitable[Job]]
    encoder: Callable[..., ChatEncoder | CompletionEncoder]


COMPLETIONS = Surface(completion_request, prepare_completion, CompletionEncoder)
CHAT = Surface(chat_request, prepare_chat, ChatEncoder)


async def read_request(
    exchange: Exchange, limits: Limits, held: HeldBodies, read: Callable[[Any, dict[str, Any]], Any]
) -> Any:
    """The request in a body, by one of `wire.requests`. Raises `Failure`, `Disconnected`.

    What its header says is looked at first: a caller that waits to be asked for its body
    (`Expect: 100-continue`) is not asked in vain.
    """
    check_body_headers(exchange.header(b"content-type"), exchange.header(b"content-encoding"))
    raw = await exchange.read_body(limits, held)
    dialect = exchange.dialect
    if len(raw) < _LARGE_BODY:
        return read(dialect, decode_body(raw))
    return await asyncio.to_thread(lambda: read(dialect, decode_body(raw)))


class Generation:
    """Completions and chat."""

    def __init__(self, models: Models, limits: Limits, held: HeldBodies, clock: Clock) -> None:
        self._models = models
        self._limits = limits
        self._held = held
        self._clock = clock

    async def completions(self, exchange: Exchange) -> None:
        await self._generate(exchange, COMPLETIONS)

    async def chat(self, exchange: Exchange) -> None:
        await self._generate(exchange, CHAT)

    async def _generate(self, exchange: Exchange, surface: Surface) -> None:
        request: OutputOptions = await read_request(exchange, self._limits, self._held, surface.read)
        record = exchange.record
        record.stream, record.user = request.stream, request.user
        served = await self._models.find(exchange.dialect, request.model, exchange.key)
        record.model = served.model.id
        exchange.header_values[HeaderValue.PROVIDER_CLASS] = b"primary"
        with Watch(exchange, self._limits.request_s) as watch:
            try:
                job = await surface.prepare(served, request, exchange.request_id)
                record.usage = job.usage
                encoder = surface.encoder(
                    exchange.dialect,
                    request,
                    id=exchange.request_id,
                    created=int(self._clock.unix()),
                )
                if request.stream:
                    await self._stream(exchange, job, encoder, watch)
                else:
                    await self._whole(exchange, job, encoder)
            except asyncio.CancelledError:
                if watch.gone:
                    record.disconnected = True
                    return
                failure = self._cut_off(watch)
                record.failure = failure.kind
                if not exchange.answering:
                    raise failure from None

    async def _whole(self, exchange: Exchange, job: Job, encoder: Any) -> None:
        deltas: list[ChoiceDelta] = []
        async with aclosing(run(job)) as pieces:
            async for delta in pieces:
                _note(exchange, delta)
                deltas.append(delta)
        entries = sum(len(delta.entries) for delta in deltas) * (1 + (job.request.logprobs or 0))
        if entries < _LARGE_ANSWER:
            body = _folded(encoder, deltas, job)
        else:
            body = await asyncio.to_thread(_folded, encoder, deltas, job)
        await exchange.respond(200, body)

    async def _stream(self, exchange: Exchange, job: Job, encoder: Any, watch: Watch) -> None:
        rule = exchange.dialect.stream
        silence = self._limits.silence_s or rule.keep_alive_s
        buffer = self._limits.stream_buffer_bytes
        async with EventStream(
            exchange, silence_s=silence, comment=rule.keep_alive, buffer_bytes=buffer
        ) as stream:
            try:
                async with aclosing(run(job)) as pieces:
                    async for delta in pieces:
                        _note(exchange, delta)
                        await stream.put(encoder.events(delta, job.usage))
                await stream.end(encoder.end(job.usage))
            except asyncio.CancelledError:
                if watch.gone or not stream.started:
                    raise
                await self._break(exchange, stream, encoder, self._cut_off(watch))
            except Failure as failure:
                if not stream.started:
                    raise
                await self._break(exchange, stream, encoder, failure)
            except Exception:
                if not stream.started:
                    raise
                logger.exception("request_id=%s failed while it streamed", exchange.request_id)
                message = (
                    f"Something is wrong on our side. The log knows more under request {exchange.shown_id}."
                )
                await self._break(exchange, stream, encoder, Failure(FailureKind.INTERNAL, message))

    async def _break(self, exchange: Exchange, stream: EventStream, encoder: Any, failure: Failure) -> None:
        """End a stream with an error event, and without the mark of a whole one (1.8)."""
        exchange.record.failure = failure.kind
        await stream.end(encoder.failure(failure))

    def _cut_off(self, watch: Watch) -> Failure:
        if not watch.expired:
            return shutting_down()
        return Failure(
            FailureKind.DEADLINE_EXCEEDED,
            f"The answer was not complete after {self._limits.request_s:g} s. Ask for fewer tokens.",
        )


def _folded(encoder: Any, deltas: list[ChoiceDelta], job: Job) -> bytes:
    """The unstreamed answer: the fold of the stream."""
    return encoder.body([settled(choice) for choice in fold(deltas)], job.usage)


def _note(exchange: Exchange, delta: ChoiceDelta) -> None:
    record = exchange.record
    now = time.monotonic()
    if record.first_piece is None:
        record.first_piece = now
    record.last_piece = now
    if delta.finish is not None:
        record.finish.append(delta.finish.value)
