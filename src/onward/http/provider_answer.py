"""A try at a provider: the request on its way, the answer as it comes, what it reports and says wrong."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from onward.core.failure import Failure
from onward.core.usage import Usage
from onward.http.event_stream import Out
from onward.http.record import Record
from onward.providers.failures import was_sent
from onward.providers.protocol import Answer
from onward.serve.model import ProxiedModel
from onward.wire.passing.kinds import Reading
from onward.wire.passing.refusal import refusal

logger = logging.getLogger("onward")
_LOGGED_TEXT = 2000
_REFUSAL_BYTES = 64 * 1024
_REFUSAL_S = 2.0
"""How long the words of a refusal, which are for the log alone, may take behind its status."""
_ANSWER_BYTES = 64 * 1024 * 1024
_TAIL_S = 0.25
"""How long the end of a body may come behind its last event, so that the connection can be used again."""
_TOKENS_PER_S = 100
"""Of a choice that nobody sees: a guess that is not too low."""
_JSON = (b"content-type", b"application/json")
T = TypeVar("T")


class ProviderAnswer:
    """One try at a provider, whatever becomes of its answer."""

    def __init__(self, deployment: ProxiedModel, record: Record, usage: Usage) -> None:
        """`usage` is what is assumed until the provider reports its own."""
        self._deployment = deployment
        self._record = record
        self.usage = usage
        self.estimated = True
        self.status: int | None = None
        self.first: float | None = None
        self._asked_at: float | None = None
        """When it was sent to a provider that has not refused it (monotonic)."""

    async def _open(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        """Send a body. Raises `Failure` for an answer that is a refusal."""
        began = time.monotonic()
        try:
            answer = await self._deployment.provider.send(path, body, [_JSON, *headers])
        except asyncio.CancelledError as error:
            self._asked_at = began if was_sent(error) else None
            raise
        self.status = answer.status
        if answer.status == 200:
            self._asked_at = began
            return answer
        try:
            text = b""
            with suppress(Failure, TimeoutError):
                async with asyncio.timeout(_REFUSAL_S):
                    text = await answer.read_all(_REFUSAL_BYTES)
            self._log(text.decode("utf-8", "replace"))
            failure = refusal(answer.status, answer.headers, time.time(), text)
            answer.blame(failure)
            raise failure
        finally:
            answer.close()

    async def _streamed(
        self, answer: Answer, reader: Reading[T], encode: Callable[[T], bytes], out: Out
    ) -> None:
        """Read a stream to its end; what its reader makes of it goes out, encoded. Raises `Failure`."""
        usage = self.usage
        failed = False
        left = b""
        """What could not go out at once."""

        def take(data: bytes) -> bool:
            """Pass on what came, while that needs no waiting."""
            nonlocal left
            made = reader.feed(data)
            usage.completion_tokens = reader.completion_tokens
            if self.first is None and (prompt := reader.prompt_usage) is not None:  # it comes first of all
                usage.prompt_tokens, usage.cached_tokens = prompt.prompt_tokens, prompt.cached_tokens
            over = reader.done or reader.failure is not None
            if not made:
                return not over
            self._piece()
            left = encode(made)
            if over or not out.put_now(left):
                return False
            left = b""
            return True

        try:
            # Whatever its content type claims: what is no stream of events shows by its first bytes.
            while await answer.hand_on(take, reader.heard):
                over = reader.done or reader.failure is not None
                await out.put(left, last=over)
                left = b""
                if over:
                    break
            made = reader.close()
            self._reported(reader.usage)
            if made:
                self._piece()
                await out.put(encode(made), last=True)
            if reader.failure is not None:
                self._log(reader.failure_text)
                raise reader.failure
            if not answer.ended:
                await self._drain(answer)
        except Failure as failure:
            failed = True
            answer.blame(failure)
            raise
        finally:
            usage.completion_tokens = reader.completion_tokens
            if usage.completion_tokens or not failed:  # what failed before any output costs nothing
                self._reported(reader.usage)
            answer.close()

    async def _read(self, answer: Answer, read: Callable[[bytes], T]) -> T:
        """`read` of a whole body. Raises `Failure`, with what was said in the log."""
        body = b""
        try:
            body = await answer.read_all(_ANSWER_BYTES)
            return read(body)
        except Failure as failure:
            answer.blame(failure)
            if body:
                self._log(body.decode("utf-8", "replace"))
            raise
        finally:
            answer.close()

    def assume(self, choices: int, most: int) -> None:
        """See `Tried.assume`. A provider makes its answer unseen, and may go on though nobody waits."""
        if self._asked_at is not None and not self.usage.completion_tokens:
            likely = int((time.monotonic() - self._asked_at) * _TOKENS_PER_S)
            self.usage.completion_tokens = choices * min(most, max(likely, 1))

    def _piece(self) -> None:
        self._record.piece()
        if self.first is None:
            self.first = self._record.last_piece

    def _reported(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self.estimated = False
        self.usage.prompt_tokens = usage.prompt_tokens
        self.usage.completion_tokens = usage.completion_tokens
        self.usage.cached_tokens = usage.cached_tokens

    async def _drain(self, answer: Answer) -> None:
        """Read what is left behind the last event, which is nothing but the end of the body."""
        with suppress(Failure, TimeoutError):
            async with asyncio.timeout(_TAIL_S):
                while await answer.read():
                    pass

    def _log(self, text: str) -> None:
        """What a provider said: for the operator alone, and without the key that it may repeat."""
        said = self._deployment.provider.conceal(text)
        logger.warning(
            "request_id=%s deployment=%s provider=%s status=%s said: %s",
            self._record.request_id,
            self._deployment.deployment,
            self._deployment.provider.name,
            self.status,
            repr(said[:_LOGGED_TEXT]),
        )
