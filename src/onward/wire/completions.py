"""Answers of the `completions` surface, streamed and not (1.4 to 1.8)."""

from typing import Any

from onward.core.delta import ChoiceDelta, fold, settled
from onward.core.failure import Failure
from onward.core.request import CompletionRequest
from onward.core.usage import Usage
from onward.dialects.schema import Dialect
from onward.wire.frames import Frames, encode
from onward.wire.logprobs import completion_logprobs
from onward.wire.usage import usage_fields

_OBJECT = "text_completion"


class CompletionEncoder:
    """Encodes the answer to one request. `id` is the part after the prefix; `created` Unix seconds."""

    __slots__ = ("_created", "_frames", "_identity", "_request", "_simple")

    def __init__(self, dialect: Dialect, request: CompletionRequest, *, id: str, created: int) -> None:  # noqa: A002
        self._request = request
        self._identity = dialect.response.completion_id + id
        self._created = created
        self._frames = Frames(dialect, request, _OBJECT, self._identity, created)
        self._simple = request.logprobs is None and not request.return_token_ids

    def events(self, delta: ChoiceDelta, usage: Usage) -> bytes:
        """The event of one delta. Every delta makes one."""
        frames = self._frames
        if self._simple:
            finish = b'"%s"' % delta.finish.encode() if delta.finish else b"null"
            return b'%b{"index":%d,"text":%b,"logprobs":null,"finish_reason":%b}%b' % (
                frames.begin,
                delta.index,
                encode(delta.text),
                finish,
                frames.close(usage),
            )
        return frames.begin + encode(self._choice(delta)) + frames.close(usage)

    def end(self, usage: Usage) -> bytes:
        """The usage event, if it is due, and the end."""
        return self._frames.end(usage)

    def failure(self, failure: Failure) -> bytes:
        """The event that ends a stream that failed."""
        return self._frames.failure(failure)

    def whole(self, deltas: list[ChoiceDelta], usage: Usage) -> bytes:
        """The unstreamed answer: the fold of a stream's deltas."""
        return self.body([settled(choice) for choice in fold(deltas)], usage)

    def body(self, choices: list[ChoiceDelta], usage: Usage) -> bytes:
        """The unstreamed answer: `choices` are whole, one for each index, in order."""
        return encode(
            {
                "id": self._identity,
                "object": _OBJECT,
                "created": self._created,
                "model": self._request.model,
                "choices": [self._choice(choice) for choice in choices],
                "usage": usage_fields(usage),
            }
        )

    def _choice(self, delta: ChoiceDelta) -> dict[str, Any]:
        """The IDs of a prompt in parts are never told: images have none (TC-10)."""
        request = self._request
        choice: dict[str, Any] = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": None if request.logprobs is None else completion_logprobs(delta.entries),
            "finish_reason": delta.finish,
        }
        if request.return_token_ids:
            choice["token_ids"] = delta.token_ids
            if delta.prompt_token_ids is not None and request.prompt_chunks is None:
                choice["prompt_token_ids"] = delta.prompt_token_ids
        return choice
