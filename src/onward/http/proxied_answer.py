"""The answer of a provider: its bytes, watched for usage, errors and the end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from onward.core.failure import Failure
from onward.core.usage import Usage
from onward.http.record import Record
from onward.providers.protocol import Answer
from onward.serve.model import ProxiedModel
from onward.wire.passing.outgoing import Passed, outgoing
from onward.wire.passing.refusal import refusal
from onward.wire.passing.stream import StreamWatch
from onward.wire.passing.whole import read_whole, with_usage

logger = logging.getLogger("onward")
_LOGGED_TEXT = 2000
_REFUSAL_BYTES = 64 * 1024
_REFUSAL_S = 2.0
"""How long the words of a refusal, which are for the log alone, may take behind its status."""
_ANSWER_BYTES = 64 * 1024 * 1024
_TAIL_S = 0.25
"""How long the end of a body may come behind its last event, so that the connection can be used again."""


class ProxiedAnswer:
    """One try at a provider."""

    def __init__(
        self,
        deployment: ProxiedModel,
        *,
        path: str,
        passed: Passed,
        max_tokens: int | None,
        show_usage: bool,
        done: bytes,
        record: Record,
        members: Collection[str] | None = None,
        input_images: int = 0,
    ) -> None:
        """`max_tokens`: what the caller's limit is replaced by; None: it passes as it is. `members` is
        `Passing.members`; `input_images`: of the request, where its usage tells them.
        """
        self._members = members
        self._deployment = deployment
        self._path = path
        self._passed = passed
        self._max_tokens = max_tokens
        self._record = record
        self._watch: StreamWatch | None = None
        if passed.stream:
            self._watch = StreamWatch(
                passed.model,
                show_usage=show_usage,
                keep_usage=passed.continuous_usage,
                choices=passed.prompts * passed.n,
                done=done,
                members=members,
            )
        self.usage = Usage(prompt_tokens=passed.likely_prompt_tokens, input_images=input_images)
        self.estimated = True
        self.status: int | None = None
        self.first: float | None = None

    async def stream(self, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Whole events, each `put` as it comes. Cancelling it tells the provider to stop."""
        answer = await self._open()
        watch, usage = self._watch, self.usage
        assert watch is not None  # noqa: S101 - a stream was asked for
        try:
            # Whatever its content type claims: what is no stream of events shows by its first bytes.
            while not watch.done and watch.failure is None and (data := await answer.read()):
                events = watch.feed(data)
                usage.completion_tokens = watch.completion_tokens
                if events:
                    self._piece()
                    await put(events)
            if events := watch.close():
                self._piece()
                await put(events)
            if watch.failure is not None:
                self._log(watch.failure_text)
                raise watch.failure
            if not answer.ended:
                await self._drain(answer)
        except Failure as failure:
            answer.blame(failure)
            raise
        finally:
            self._reported(watch.usage)
            answer.close()

    def end(self) -> bytes:
        """What ends a stream that is whole."""
        assert self._watch is not None  # noqa: S101 - after `stream`
        return self._watch.end(self.usage)

    async def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        answer = await self._open()
        body = b""
        try:
            body = await answer.read_all(_ANSWER_BYTES)
            found = read_whole(body, self._passed.model, self._members)
        except Failure as failure:
            answer.blame(failure)
            if body:
                self._log(body.decode("utf-8", "replace"))
            raise
        finally:
            answer.close()
        self._piece()
        self._record.finish.extend(found.finish)
        self.usage.completion_tokens = found.completion_tokens
        self._reported(found.usage)
        return found.body if self._members is None else with_usage(found.body, self.usage)

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

    async def _open(self) -> Answer:
        deployment = self._deployment
        body = outgoing(
            self._passed,
            model=deployment.upstream,
            max_tokens=self._max_tokens,
            limit_field=deployment.limit_field if self._path.startswith("/chat") else "max_tokens",
            ask_usage=self._passed.stream and deployment.asks_usage,
        )
        answer = await deployment.provider.send(self._path, body, _HEADERS)
        self.status = answer.status
        if answer.status == 200:
            return answer
        try:
            text = b""
            with suppress(Failure, TimeoutError):
                async with asyncio.timeout(_REFUSAL_S):
                    text = await answer.read_all(_REFUSAL_BYTES)
            self._log(text.decode("utf-8", "replace"))
            failure = refusal(answer.status, answer.headers, time.time())
            answer.blame(failure)
            raise failure
        finally:
            answer.close()

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


_HEADERS: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
