"""The answer of a provider that speaks the caller's API: its bytes, watched for usage, errors and the end."""

import asyncio

from onward.core.content_filter import ContentFilter, Found, output_refused
from onward.core.usage import Usage
from onward.http.event_stream import Out
from onward.http.provider_answer import ProviderAnswer
from onward.http.record import Record
from onward.serve.content_filter import log_found
from onward.serve.model import ProxiedModel
from onward.wire.passing.filtered import FilteredWatch, check_whole
from onward.wire.passing.kinds import Kind, Shown, Watching
from onward.wire.passing.outgoing import Passed, outgoing

_LARGE_ANSWER = 64 * 1024
"""Bytes from which an answer is searched in a thread, so that nobody else waits for it."""


class ProxiedAnswer(ProviderAnswer):
    """One try at a provider, whose bytes pass on."""

    def __init__(  # noqa: PLR0917 - keywords take a dict, and this is made for every request
        self,
        deployment: ProxiedModel,
        kind: Kind,
        path: str,
        passed: Passed,
        max_tokens: int | None,
        shown: Shown,
        headers: list[tuple[bytes, bytes]],
        record: Record,
        input_images: int,
        content: ContentFilter | None,
    ) -> None:
        """`max_tokens`: what the caller's limit is replaced by; None: it passes as it is. `headers`: of the
        caller, those that go on; `input_images`: of the request, where its usage tells them; `content`: what
        may not come out, where there is such.
        """
        usage = Usage(prompt_tokens=passed.size.likely, input_images=input_images)
        ProviderAnswer.__init__(self, deployment, record, usage)
        self._kind = kind
        self._path = path
        self._passed = passed
        self._headers = headers
        self._shown = shown
        self._content = content
        self._watch: Watching | None = kind.watch(passed, shown) if passed.stream else None
        if content is not None and self._watch is not None:
            self._watch = FilteredWatch(
                self._watch, content, kind.shape, choices=passed.prompts * passed.n, found=self._found
            )
        limit_field = deployment.limit_field if kind.own_limit_field else "max_tokens"
        self._body = outgoing(
            passed,
            model=deployment.upstream,
            max_tokens=max_tokens,
            limit_field=limit_field,
            ask_usage=passed.stream and kind.asks_usage and deployment.asks_usage,
        )

    async def stream(self, out: Out) -> None:
        """Whole events, each sent as it comes. Cancelling it tells the provider to stop."""
        watch = self._watch
        assert watch is not None  # noqa: S101 - a stream was asked for
        await self._streamed(await self._open(self._path, self._body, self._headers), watch, _as_it_is, out)
        self._record.finish.extend(watch.finish.values())

    def end(self) -> bytes:
        """What ends a stream that is whole."""
        assert self._watch is not None  # noqa: S101 - after `stream`
        return self._watch.end(self.usage)

    async def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        kind, head = self._kind, self._shown.head
        answer = await self._open(self._path, self._body, self._headers)
        found = await self._read(answer, lambda body: kind.whole(body, self._passed.model, head))
        self._record.finish.extend(found.finish)
        self.usage.completion_tokens = found.completion_tokens
        self._reported(found.usage)
        if self._content is not None:
            await self._check(self._content, found.body)
        self._piece()
        if self.estimated and kind.fill_usage is not None:
            return kind.fill_usage(found.body, self.usage)
        if head is None or kind.with_usage is None:
            return found.body
        return kind.with_usage(found.body, self.usage)

    async def _check(self, content: ContentFilter, body: bytes) -> None:
        """Raises `Failure` (CONTENT_BLOCKED_OUTPUT)."""
        shape = self._kind.shape
        if len(body) < _LARGE_ANSWER:
            found = check_whole(content, shape, body)
        else:
            found = await asyncio.to_thread(check_whole, content, shape, body)
        if found is not None:
            self._found(found)
            raise output_refused()

    def _found(self, found: Found) -> None:
        log_found(self._record.request_id, self._deployment.model.id, found)


def _as_it_is(data: bytes) -> bytes:
    return data
