"""The answer of a provider that speaks the caller's API: its bytes, watched for usage, errors and the end."""

from collections.abc import Awaitable, Callable

from onward.core.usage import Usage
from onward.http.provider_answer import ProviderAnswer
from onward.http.record import Record
from onward.serve.model import ProxiedModel
from onward.wire.passing.kinds import Kind, Shown, Watching
from onward.wire.passing.outgoing import Passed, outgoing


class ProxiedAnswer(ProviderAnswer):
    """One try at a provider, whose bytes pass on."""

    def __init__(
        self,
        deployment: ProxiedModel,
        kind: Kind,
        *,
        path: str,
        passed: Passed,
        max_tokens: int | None,
        shown: Shown,
        headers: list[tuple[bytes, bytes]],
        record: Record,
        input_images: int = 0,
    ) -> None:
        """`max_tokens`: what the caller's limit is replaced by; None: it passes as it is. `headers`: of the
        caller, those that go on; `input_images`: of the request, where its usage tells them.
        """
        usage = Usage(prompt_tokens=passed.likely_prompt_tokens, input_images=input_images)
        super().__init__(deployment, record, usage)
        self._kind = kind
        self._path = path
        self._passed = passed
        self._headers = headers
        self._shown = shown
        self._watch: Watching | None = kind.watch(passed, shown) if passed.stream else None
        limit_field = deployment.limit_field if kind.own_limit_field else "max_tokens"
        self._body = outgoing(
            passed,
            model=deployment.upstream,
            max_tokens=max_tokens,
            limit_field=limit_field,
            ask_usage=passed.stream and kind.asks_usage and deployment.asks_usage,
        )

    async def stream(self, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Whole events, each `put` as it comes. Cancelling it tells the provider to stop."""
        watch = self._watch
        assert watch is not None  # noqa: S101 - a stream was asked for
        await self._streamed(await self._open(self._path, self._body, self._headers), watch, put)
        self._record.finish.extend(watch.finish.values())

    def end(self) -> bytes:
        """What ends a stream that is whole."""
        assert self._watch is not None  # noqa: S101 - after `stream`
        return self._watch.end(self.usage)

    async def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        kind, members = self._kind, self._shown.members
        answer = await self._open(self._path, self._body, self._headers)
        found = await self._read(answer, lambda body: kind.whole(body, self._passed.model, members))
        self._piece()
        self._record.finish.extend(found.finish)
        self.usage.completion_tokens = found.completion_tokens
        self._reported(found.usage)
        if members is None or kind.with_usage is None:
            return found.body
        return kind.with_usage(found.body, self.usage)
