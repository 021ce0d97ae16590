"""Answers of the `chat` surface, streamed and not (O-2).

A choice is streamed as a delta with the role, then deltas with what is new, then an empty one
with the finish reason.
"""

from typing import Any

from onward.core.delta import ChoiceDelta, ToolCallDelta, fold, settled
from onward.core.failure import Failure
from onward.core.request import ChatRequest
from onward.core.usage import Usage
from onward.dialects.schema import Dialect
from onward.wire.frames import Frames, encode
from onward.wire.logprobs import chat_logprobs
from onward.wire.thinking_blocks import indexed_blocks, placed_blocks
from onward.wire.usage import usage_fields

_NOTHING = ChoiceDelta(index=0)


class ChatEncoder:
    """Encodes the answer to one request. `id` is the part after the prefix; `created` Unix seconds."""

    __slots__ = (
        "_created",
        "_dialect",
        "_empty_delta",
        "_frames",
        "_identity",
        "_opened",
        "_request",
        "_simple",
        "_thoughts",
    )

    def __init__(self, dialect: Dialect, request: ChatRequest, *, id: str, created: int) -> None:  # noqa: A002
        self._dialect = dialect
        self._request = request
        self._identity = dialect.response.chat_id + id
        self._created = created
        self._frames = Frames(dialect, request, "chat.completion.chunk", self._identity, created)
        self._empty_delta: dict[str, Any] = dict.fromkeys(dialect.stream.delta_keys)
        self._simple = request.logprobs is None and not request.return_token_ids and not self._empty_delta
        self._opened: set[int] = set()
        self._thoughts = 0
        """Told so far. Who is asked for several choices has none."""

    def events(self, delta: ChoiceDelta, usage: Usage) -> bytes:
        """The events of one delta: the role before a choice's first, the finish after its last."""
        opening = b""
        if delta.index not in self._opened:
            self._opened.add(delta.index)
            opening = self._event(self._opening(delta), usage)
        if (
            self._simple
            and delta.text
            and not (delta.finish or delta.reasoning or delta.tool_calls or delta.thoughts)
        ):
            frames = self._frames
            return b'%b%b{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}%b' % (
                opening,
                frames.begin,
                delta.index,
                encode(delta.text),
                frames.close(usage),
            )
        new = self._new(delta)
        covered = delta
        middle = b""
        if new or (not delta.finish and (delta.entries or delta.token_ids)):
            if not new and "content" not in self._empty_delta:
                new = {"content": ""}
            middle = self._event(self._choice(delta.index, new, covered), usage)
            covered = _NOTHING
        if delta.finish is None:
            return opening + middle
        last = self._choice(delta.index, {}, covered)
        last["finish_reason"] = delta.finish
        return opening + middle + self._event(last, usage)

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
                "object": "chat.completion",
                "created": self._created,
                "model": self._request.model,
                "choices": [self._whole(choice) for choice in choices],
                "usage": usage_fields(usage),
            }
        )

    def _opening(self, delta: ChoiceDelta) -> dict[str, Any]:
        first = {"role": "assistant", **self._empty_delta, "content": self._dialect.stream.first_content}
        choice = self._choice(delta.index, first, None)
        if self._request.return_token_ids and delta.prompt_token_ids is not None:
            choice["prompt_token_ids"] = delta.prompt_token_ids
        return choice

    def _choice(self, index: int, new: dict[str, Any], covered: ChoiceDelta | None) -> dict[str, Any]:
        request = self._request
        choice: dict[str, Any] = {
            "index": index,
            "delta": {**self._empty_delta, **new},
            "logprobs": None
            if request.logprobs is None or covered is None
            else chat_logprobs(covered.entries, request.logprobs, self._dialect.response.logprobs_keys),
            "finish_reason": None,
        }
        if request.return_token_ids:
            choice["token_ids"] = covered.token_ids if covered is not None else []
        return choice

    def _new(self, delta: ChoiceDelta) -> dict[str, Any]:
        new: dict[str, Any] = {}
        if delta.reasoning:
            new["reasoning_content"] = delta.reasoning
        if delta.text:
            new["content"] = delta.text
        if delta.thoughts:
            new["thinking_blocks"] = indexed_blocks(delta.thoughts, self._thoughts)
            self._thoughts += len(delta.thoughts)
        if delta.tool_calls:
            new["tool_calls"] = [_call_delta(call) for call in delta.tool_calls]
        return new

    def _whole(self, choice: ChoiceDelta) -> dict[str, Any]:
        request = self._request
        calls = [_call(call) for call in choice.tool_calls]
        message: dict[str, Any] = dict.fromkeys(self._dialect.response.message_keys)
        message["role"] = "assistant"
        message["content"] = choice.text or (None if calls else "")
        if choice.reasoning or "reasoning_content" in message:
            message["reasoning_content"] = choice.reasoning or None
        if choice.thoughts:
            message["thinking_blocks"] = placed_blocks(choice.thoughts)
        if calls:
            message["tool_calls"] = calls
        whole: dict[str, Any] = {
            "index": choice.index,
            "message": message,
            "logprobs": None
            if request.logprobs is None
            else chat_logprobs(choice.entries, request.logprobs, self._dialect.response.logprobs_keys),
            "finish_reason": choice.finish,
        }
        if request.return_token_ids:
            whole["token_ids"] = choice.token_ids
            if choice.prompt_token_ids is not None:
                whole["prompt_token_ids"] = choice.prompt_token_ids
        return whole

    def _event(self, choice: dict[str, Any], usage: Usage) -> bytes:
        return self._frames.begin + encode(choice) + self._frames.close(usage)


def _call(call: ToolCallDelta) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _call_delta(call: ToolCallDelta) -> dict[str, Any]:
    """Identity and name only on the first delta of a call (D17); its index on every one (D16)."""
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_call(call)}
