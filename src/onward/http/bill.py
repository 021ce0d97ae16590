"""The money side of one request: its grant, its tries, and the one end of both."""

import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol

from onward.admission.gate import Gate, Grant
from onward.admission.idempotency import Binding
from onward.core.attempt import Attempt
from onward.core.failure import Failure
from onward.core.usage import Usage
from onward.http.recording import Recording
from onward.routing.attempts import billed


class Tried(Protocol):
    """What a try tells of itself."""

    usage: Usage
    """Filled while it works."""
    estimated: bool
    """Whether `usage` is not what the deployment reported."""
    status: int | None
    """What a provider answered."""
    first: float | None
    """When the first output came that the caller may see (monotonic)."""

    def assume(self, choices: int, most: int) -> None:
        """Nobody waits for the whole answer any more: `usage` is what may have been made, where that cannot
        be known. At most `most` tokens in each of `choices`.
        """
        ...


class Bill:
    """Ends its grant exactly once, whatever becomes of the request."""

    def __init__(self, gate: Gate, grant: Grant, recording: Recording | None = None) -> None:
        """`recording`: where the answer goes that is kept with its charge; None: it is not kept."""
        self._gate = gate
        self._grant = grant
        self._recording = recording
        self._attempts: list[Attempt] = []
        self._tried: Tried | None = None
        self._deployment = ""
        self._began = 0.0
        self._ended = False

    @property
    def max_tokens(self) -> int:
        """Of each choice, as it was granted."""
        return self._grant.max_tokens

    @property
    def lowered(self) -> bool:
        """Whether fewer tokens were granted than asked for (K-10)."""
        return self._grant.max_tokens < self._grant.demand.max_tokens

    def begin(self, deployment: str, tried: Tried) -> None:
        """A deployment is tried."""
        self._tried = tried
        self._grant.usage = tried.usage
        self._deployment = deployment
        self._began = time.monotonic()

    def over(self, outcome: str) -> None:
        """The try that runs has ended."""
        if not self._gate.writes:
            return
        tried = self._tried
        first = None if tried is None else tried.first
        took = time.monotonic() - self._began
        self._attempts.append(
            Attempt(
                deployment=self._deployment,
                outcome=outcome,
                status=None if tried is None else tried.status,
                started_ms=int((time.time() - took) * 1000),
                first_ms=None if first is None else int((first - self._began) * 1000),
                took_ms=int(took * 1000),
            )
        )

    def settle(self, end: bytes, *, given: bool = True) -> Awaitable[None]:
        """Charge what was made, of an answer that ends by these bytes. Durable on return. Raises STORE_DOWN.

        `given`: whether the caller has what it is charged for, as it has a stream but for its end.
        """
        recording = self._recording
        binding = None if recording is None or self._ended else recording.binding(end)
        return self._settle("ok", binding, given=given)

    async def close(self, outcome: str, *, charged: bool, failure: Failure | None = None) -> None:
        """End it without a whole answer: with `failure`, where that is what the caller gets. If the store is
        down the gate tries again later.
        """
        if self._ended:
            return
        with suppress(Failure):
            if charged and self._grant.usage.completion_tokens:
                binding = None
                if self._recording is not None and failure is not None:
                    binding = self._recording.binding_of(failure)
                await self._settle(outcome, binding, given=True)
            else:
                self._ended = True
                await self._gate.release(self._grant, outcome=outcome, attempts=tuple(self._attempts))

    async def fail(self, failure: Failure) -> None:
        """Charge what was made before a failure, where it is charged at all."""
        await self.close(failure.kind.value, charged=billed(failure.kind), failure=failure)

    async def leave(self, *, streamed: bool) -> None:
        """The caller has gone: what was made so far is charged. Of a stream that is what has come."""
        if self._tried is not None and not streamed:
            self._tried.assume(self._grant.demand.choices, self._grant.max_tokens)
        await self.close("disconnected", charged=True)

    async def _settle(self, outcome: str, binding: Binding | None, *, given: bool) -> None:
        if self._ended:
            return
        self._ended = True
        bound = binding is not None
        try:
            await self._gate.settle(
                self._grant,
                attempts=tuple(self._attempts),
                outcome=outcome,
                estimated=self._tried is not None and self._tried.estimated,
                given=given,
                binding=binding,
            )
        except Failure:
            bound = bound and given  # then it is charged, and its answer kept, later
            raise
        finally:
            if self._recording is not None:
                self._recording.bound = bound
