"""Answers of the `messages` surface, streamed and not, in the shape of Anthropic's Messages API (P-12).

A message is blocks, one after the other: reasoning, text, calls. A stream opens a block, brings it in
pieces and closes it before the next one begins; then come the reason of the end and the usage.
"""

from typing import Any, Final

from onward.core.delta import ChoiceDelta, FinishReason, settled
from onward.core.failure import Failure
from onward.core.request import ChatRequest
from onward.core.usage import Usage
from onward.dialects.schema import Dialect
from onward.wire.blocks import Blocks, Step, StepKind, written
from onward.wire.errors import failure_event
from onward.wire.frames import encode

_REASONS: Final = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
}
_ID: Final = "msg_"


class MessagesEncoder:
    """Encodes the answer to one request. `id` is the part after the prefix."""

    __slots__ = ("_blocks", "_dialect", "_id", "_opened", "_reason", "_request", "_stop", "_surface")

    def __init__(self, dialect: Dialect, request: ChatRequest, *, id: str, created: int) -> None:  # noqa: A002
        del created  # a message has no time
        self._dialect = dialect
        self._surface = dialect.surfaces["messages"]
        self._request = request
        self._id = id
        self._blocks = Blocks(shown=request.thinking is None or request.thinking.shown)
        self._opened = False
        self._reason: FinishReason | None = None
        self._stop: str | None = None

    def events(self, delta: ChoiceDelta, usage: Usage) -> bytes:
        """The events of one delta: the message before the first, no end after the last."""
        opening = b"" if self._opened else self._opening(usage)
        blocks = self._blocks
        if (
            blocks.in_text
            and delta.text
            and not (delta.finish or delta.reasoning or delta.tool_calls or delta.thoughts)
        ):
            return b"".join(
                (
                    opening,
                    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":',
                    b"%d" % blocks.index,
                    b',"delta":{"type":"text_delta","text":',
                    encode(delta.text),
                    b"}}\n\n",
                )
            )
        steps = blocks.read(delta)
        if delta.finish is not None:
            self._reason, self._stop = delta.finish, delta.stop
        return opening + b"".join([_step_event(step) for step in steps])

    def end(self, usage: Usage) -> bytes:
        """Why the message ended, its usage, and the end."""
        opening = b"" if self._opened else self._opening(usage)
        closing = b"".join([_step_event(step) for step in self._blocks.end()])
        reason, stop = self._ended(self._reason, self._stop, usage)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop, "stop_details": _details(reason)},
            "usage": _usage(usage),
        }
        return opening + closing + _event(delta) + _event({"type": "message_stop"})

    def failure(self, failure: Failure) -> bytes:
        """The event that ends a stream that failed."""
        return failure_event(self._dialect, failure, self._surface.failures, self._id)

    def whole(self, deltas: list[ChoiceDelta], usage: Usage) -> bytes:
        """The unstreamed answer: the blocks of all deltas, as a stream brings them."""
        steps: list[Step] = []
        blocks = self._blocks
        reason = stop = None
        for delta in deltas:
            if delta.plain is not None:
                plain = settled(delta)
                blocks = Blocks(shown=True)
                steps, delta = [], plain  # noqa: PLW2901 - the whole reply is this text
            steps += blocks.read(delta)
            if delta.finish is not None:
                reason, stop = delta.finish, delta.stop
        steps += blocks.end()
        return encode(self._message(written(steps), *self._ended(reason, stop, usage), _usage(usage)))

    def body(self, choices: list[ChoiceDelta], usage: Usage) -> bytes:
        """The unstreamed answer of a whole choice: reasoning, text and calls, in this order."""
        return self.whole(choices, usage)

    def _opening(self, usage: Usage) -> bytes:
        self._opened = True
        message = self._message([], None, None, {**_usage(usage), "output_tokens": 0})
        ping = self._surface.stream.keep_alive if self._surface.stream is not None else b""
        return _event({"type": "message_start", "message": message}) + ping

    def _message(
        self,
        content: list[dict[str, Any]],
        reason: str | None,
        stop: str | None,
        usage: dict[str, Any],
    ) -> dict[str, Any]:
        return {
            "id": _ID + self._id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "stop_details": _details(reason),
            "usage": usage,
        }

    def _ended(
        self, reason: FinishReason | None, stop: str | None, usage: Usage
    ) -> tuple[str | None, str | None]:
        """`stop_reason` and `stop_sequence`."""
        if reason is None:
            return None, None
        if reason is FinishReason.STOP and stop in self._request.stop:
            return "stop_sequence", stop  # not of a provider's own, nor what else it may say there
        most = self._request.max_tokens
        if reason is FinishReason.LENGTH and most is not None and usage.completion_tokens < most:
            return "model_context_window_exceeded", None
        return _REASONS[reason], None


def _details(reason: str | None) -> dict[str, Any] | None:
    """`stop_details`: of a refusal alone, and nothing more than that it is one."""
    return {"type": "refusal", "category": None, "explanation": None} if reason == "refusal" else None


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _step_event(step: Step) -> bytes:
    index, kind, value = step
    if kind is StepKind.START:
        return _event({"type": "content_block_start", "index": index, "content_block": value})
    if kind is StepKind.DELTA:
        return _event({"type": "content_block_delta", "index": index, "delta": value})
    return _event({"type": "content_block_stop", "index": index})


def _event(data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), encode(data))
