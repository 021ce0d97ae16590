"""Requests that their callers have named: each runs once and to its end, its answer is repeated (P-8, O-6).

The first request with a name runs, and what it answers goes into a `Recording` that its caller follows
like anybody who repeats it meanwhile. What was charged is kept, by the transaction that charges it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from onward.admission.idempotency import Claim, Claimed, ClaimResult, Kept, KeptAnswer, Running
from onward.core.clock import Clock
from onward.core.failure import Failure, FailureKind
from onward.dialects.schema import HeaderValue
from onward.http.event_stream import event_stream
from onward.http.exchange import Disconnected, Exchange, Headers, shutting_down, went_wrong
from onward.http.limits import Limits
from onward.http.recording import PROVIDER_CLASS, Follower, Recording, Room, not_kept
from onward.http.watch import Watch

logger = logging.getLogger("onward")
HEADER: Final = b"idempotency-key"
_SHOWN: Final = "Idempotency-Key"
_REPLAYED: Final = (b"idempotent-replayed", b"true")
_POLL_S: Final = 0.25
_RETRY_AFTER: Final = 5
"""Seconds after which somebody who has waited in vain should ask again."""


Recordings = dict[tuple[str, str], Recording]
"""By the ID of the API key, and the name."""


class Names(Protocol):
    """How names are claimed, gathered into few calls."""

    async def claim(self, claim: Claim) -> ClaimResult:
        """Raises STORE_DOWN. Who is cancelled, or fails, has no name in the end."""
        ...

    async def let_go(self, claim: Claim) -> None:
        """Its request ended, and no answer is kept."""
        ...


def request_name(exchange: Exchange) -> str | None:
    """The name of a request; None: it has none. Raises INVALID_REQUEST for one that cannot be."""
    if HEADER not in exchange.headers:
        return None
    name = exchange.header_values.get(HeaderValue.IDEMPOTENCY_KEY)
    if name is None:
        raise Failure(
            FailureKind.INVALID_REQUEST,
            f"'{_SHOWN}' must have 1 to 255 characters of printable ASCII, and be sent once.",
            param=_SHOWN,
        )
    return name.decode()


class Idempotency:
    """Answers named requests of one process."""

    def __init__(
        self, names: Names, limits: Limits, clock: Clock, running: Recordings, *, lease: str
    ) -> None:
        """`running`: what runs in this process, under whichever config it began."""
        self._names = names
        self._limits = limits
        self._clock = clock
        self._lease = lease
        self._room = Room(limits.kept_answer_bytes, limits.recorded_bytes, limits.stream_buffer_bytes)
        self._running = running

    async def answer(
        self, exchange: Exchange, name: str, body: bytes, run: Callable[[Recording], Awaitable[None]]
    ) -> None:
        """Answer by `run`, or as the first request of this name was. Raises `Failure`, `Disconnected`.

        The caller may use what it asks for: this has been looked at.
        """
        if len(self._running) >= self._limits.connections:
            raise Failure(FailureKind.ENGINE_FULL, "Too many requests are running. Try again soon.")
        claim = Claim(
            scope="" if exchange.key is None else exchange.key.id,
            name=name,
            path=exchange.path,
            body_sha256=hashlib.sha256(body).digest(),
            request_id=exchange.request_id,
            lease=self._lease,
            at_ms=int(self._clock.unix() * 1000),
        )
        found = await self._names.claim(claim)
        if isinstance(found, Running):
            found = self._recording(claim, found) or await self._wait(exchange, claim)
        if isinstance(found, Claimed):
            await self._run(exchange, claim, run)
        elif isinstance(found, Recording):
            exchange.record.repeats = found.claim.request_id
            await self._follow(exchange, found, found.attach())
        elif isinstance(found, Kept):
            exchange.record.repeats = found.request_id
            await self._replay(exchange, found.answer)
        else:
            raise Failure(
                FailureKind.IDEMPOTENCY_CONFLICT,
                f"This {_SHOWN} belongs to a request with another body or path. Send another key.",
                param=_SHOWN,
            )

    async def _run(
        self, exchange: Exchange, claim: Claim, run: Callable[[Recording], Awaitable[None]]
    ) -> None:
        """Run a request to its end, in its caller's task: whether somebody reads shows in another one."""
        recording = Recording(exchange, claim, self._room)
        place = (claim.scope, claim.name)
        self._running[place] = recording
        following = asyncio.create_task(self._follow(exchange, recording, recording.attach()))
        try:
            failure = await _outcome(exchange, recording, run)
            if not recording.bound:
                await self._names.let_go(claim)
            if failure is not None:
                recording.fail(failure)
        finally:
            if self._running.get(place) is recording:  # else its lease ran out, and another one has the name
                del self._running[place]
            recording.fail(shutting_down())  # where it has not ended
        await following

    def _recording(self, claim: Claim, running: Running) -> Recording | None:
        """What a request of this process has answered so far."""
        recording = self._running.get((claim.scope, claim.name))
        if recording is None or recording.ended or recording.claim.request_id != running.request_id:
            return None
        return recording

    async def _wait(self, exchange: Exchange, claim: Claim) -> ClaimResult | Recording:
        """Wait for a request that runs elsewhere, or has just ended here. Raises IDEMPOTENCY_CONFLICT where
        that takes too long, `Disconnected`.
        """
        limits = self._limits
        with Watch(exchange, min(limits.named_wait_s, limits.request_s)) as watch:
            try:
                while True:
                    await asyncio.sleep(_POLL_S)
                    found = await self._names.claim(claim)
                    if not isinstance(found, Running):
                        return found
                    recording = self._recording(claim, found)
                    if recording is not None:
                        return recording
            except asyncio.CancelledError:
                if watch.gone:
                    raise Disconnected from None
                if not watch.expired:
                    raise
        raise Failure(
            FailureKind.IDEMPOTENCY_CONFLICT,
            f"A request with this {_SHOWN} is still running. Send this one again later.",
            param=_SHOWN,
            retry_after=_RETRY_AFTER,
        )

    async def _follow(self, exchange: Exchange, recording: Recording, follower: Follower) -> None:
        """Answer by what is recorded, as it comes. Raises `Failure` where nothing is."""
        with Watch(exchange, self._limits.request_s + self._limits.write_stall_s) as watch:
            try:
                await recording.begun(follower)
                _show_class(exchange, recording.provider_class)
                if recording.streams:
                    await self._stream(exchange, recording, follower, watch)
                elif recording.whole is not None:
                    await exchange.respond(*recording.whole)
                else:
                    raise _why(recording)
            except asyncio.CancelledError:
                if not _over(watch):
                    raise
                exchange.record.disconnected = True
            finally:
                recording.detach(follower)

    async def _stream(
        self, exchange: Exchange, recording: Recording, follower: Follower, watch: Watch
    ) -> None:
        async with event_stream(exchange, self._limits) as stream:
            try:
                data, last = await recording.read(follower)
                _show_class(exchange, recording.provider_class)
                while not last:
                    await stream.put(data)
                    data, last = await recording.read(follower)
                if recording.failure is None:
                    await stream.end(data)
                    return
                failure = _why(recording)
            except asyncio.CancelledError:
                if _over(watch):
                    raise
                data, failure = b"", shutting_down()
            if not stream.started:
                raise failure
            exchange.record.failure = failure.kind
            await stream.end(data + exchange.failure_event(failure))

    async def _replay(self, exchange: Exchange, answer: KeptAnswer) -> None:
        """Answer as it was answered before."""
        if not answer.status:
            raise not_kept()
        headers: Headers = [_REPLAYED]
        for name, value in answer.headers:
            if name == PROVIDER_CLASS:
                _show_class(exchange, value)  # in the header of that name which its dialect has
            else:
                headers.append((name, value))
        body, step = answer.body, self._limits.stream_buffer_bytes
        with self._room.taken(len(body)), Watch(exchange, self._limits.request_s) as watch:
            try:
                await exchange.start(answer.status, [*headers, (b"content-length", b"%d" % len(body))])
                for start in range(0, len(body) - step, step):
                    await exchange.write(body[start : start + step], last=False)
                await exchange.write(body[(len(body) - 1) // step * step :], last=True)
            except asyncio.CancelledError:
                if not _over(watch):
                    raise
                exchange.record.disconnected = True


async def _outcome(
    exchange: Exchange, recording: Recording, run: Callable[[Recording], Awaitable[None]]
) -> Failure | None:
    """Run a request; why it has no answer."""
    try:
        await run(recording)
    except Failure as failure:
        return failure
    except asyncio.CancelledError:
        return shutting_down()
    except Exception:
        logger.exception("request_id=%s failed", exchange.request_id)
        return went_wrong(exchange)
    return None


def _over(watch: Watch) -> bool:
    """Whether nobody reads an answer any more, or too slowly: it is cut."""
    return watch.gone or watch.expired


def _show_class(exchange: Exchange, provider_class: bytes | None) -> None:
    if provider_class is not None:
        exchange.header_values[HeaderValue.PROVIDER_CLASS] = provider_class


def _why(recording: Recording) -> Failure:
    """The failure of a recording, for one of those that follow it."""
    failure = recording.failure or shutting_down()
    return Failure(
        failure.kind,
        failure.message,
        param=failure.param,
        retry_after=failure.retry_after,
        upstream_status=failure.upstream_status,
    )
