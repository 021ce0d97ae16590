"""The answer of an engine of ours: deltas, encoded as the dialect has it."""

import asyncio
from contextlib import aclosing

from onward.core.delta import ChoiceDelta
from onward.http.event_stream import Out
from onward.http.record import Record
from onward.serve.job import Job
from onward.serve.pipeline import run
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.messages import MessagesEncoder

_LARGE_ANSWER = 20_000
"""Log probabilities from which an answer is written in a thread."""


class ServedAnswer:
    """One run of a job. An unstreamed answer is the fold of the stream."""

    estimated: bool = False
    status: int | None = None

    def __init__(
        self, job: Job, encoder: ChatEncoder | CompletionEncoder | MessagesEncoder, record: Record
    ) -> None:
        self._job = job
        self._encoder = encoder
        self._record = record
        self.usage = job.usage
        self.first: float | None = None

    async def stream(self, out: Out) -> None:
        """The events of its output, each `put` out as it is made. Cancelling it cancels the engine's work."""
        encoder, usage = self._encoder, self.usage
        async with aclosing(run(self._job)) as deltas:
            async for delta in deltas:
                self._note(delta)
                if self.first is None:
                    self.first = self._record.last_piece
                await out.put(encoder.events(delta, usage))

    def end(self) -> bytes:
        """What ends a stream that is whole."""
        return self._encoder.end(self.usage)

    def assume(self, choices: int, most: int) -> None:
        """Nothing: every token that was made is counted."""

    async def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        deltas: list[ChoiceDelta] = []
        async with aclosing(run(self._job)) as pieces:
            async for delta in pieces:
                self._note(delta)
                deltas.append(delta)
        self.first = self._record.last_piece  # a caller sees nothing before its end
        entries = sum(len(delta.entries) for delta in deltas) * (1 + (self._job.request.logprobs or 0))
        if entries < _LARGE_ANSWER:
            return self._encoder.whole(deltas, self.usage)
        return await asyncio.to_thread(self._encoder.whole, deltas, self.usage)

    def _note(self, delta: ChoiceDelta) -> None:
        self._record.piece()
        if delta.finish is not None:
            self._record.finish.append(delta.finish.value)
