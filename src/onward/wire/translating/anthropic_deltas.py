"""Answers of Anthropic's Messages as deltas."""

import json
from typing import Any, Final

from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta
from onward.core.request import Thought
from onward.wire.passing.message_events import (
    MessageReader,
    MessageUsage,
    block_text,
    fields_of,
    items_of,
    message_error,
    read_message_event,
    text_at,
)
from onward.wire.passing.messages_whole import whole_message
from onward.wire.translating.reading import DeltaReader

_REASONS: Final = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
}
"""Every other reason, such as ``end_turn``, is a stop."""


class _Block:
    """A block that is open: what has come of it."""

    __slots__ = ("call", "kind", "opened", "pieces", "signature")

    def __init__(self, kind: str, opened: dict[str, Any], call: int) -> None:
        self.kind = kind
        self.opened = opened
        self.call = call
        """Which call it is, from 0."""
        self.pieces: list[str] = []
        self.signature = text_at(opened, "signature")


class AnthropicDeltas(MessageReader, DeltaReader):
    """Reads one answer of Anthropic's API.

    Blocks that a chat has no place for, such as the calls of a provider's own tools, are left out: who asked
    in a chat asked for none of them.
    """

    __slots__ = ("_blocks", "_calls", "_last", "_reported")

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[Any, _Block] = {}
        self._calls = 0
        self._last: ChoiceDelta | None = None
        self._reported = MessageUsage()

    def _whole(self, body: bytes) -> list[ChoiceDelta]:
        message = whole_message(body)
        deltas: list[ChoiceDelta] = []
        for index, block in enumerate(items_of(message.content)):
            if text := block_text(block):
                self.count(text)
            self._open(index, fields_of(block), deltas)
            self._close(index, deltas)
        self._reported.hear(message.usage, final=True)
        self._finish(message.stop_reason or "end_turn", message.stop_sequence)
        self._end_with(deltas)
        return deltas

    def _data(self, data: bytes, name: bytes, deltas: list[ChoiceDelta]) -> None:
        event = read_message_event(data)
        match event.type:
            case "content_block_delta":
                self.count_output(event)
                self._piece(event.index, fields_of(event.delta), deltas)
            case "content_block_start":
                self.count_output(event)
                self._open(event.index, fields_of(event.content_block), deltas)
            case "content_block_stop":
                self._close(event.index, deltas)
            case "message_start":
                self._reported.hear(fields_of(event.message).get("usage"), final=False)
            case "message_delta":
                self._reported.hear(event.usage, final=True)
                ended = fields_of(event.delta)
                if ended.get("stop_reason"):
                    self._finish(ended["stop_reason"], ended.get("stop_sequence"))
            case "message_stop":
                self.done = True
            case _:
                if event.type == "error" or name == b"error":
                    self.fail(data.decode("utf-8", "replace"), message_error(event.error))

    def _end(self, deltas: list[ChoiceDelta]) -> None:
        if not self.done or self._last is None:
            self.broke_off()
            return
        for index in list(self._blocks):
            self._close(index, deltas)
        self._end_with(deltas)

    def _end_with(self, deltas: list[ChoiceDelta]) -> None:
        if self._last is not None:
            deltas.append(self._last)

    def _open(self, index: Any, block: dict[str, Any], deltas: list[ChoiceDelta]) -> None:
        kind = text_at(block, "type")
        opened = self._blocks[_key(index)] = _Block(kind, block, self._calls)
        match kind:
            case "text" | "thinking":
                self._piece(index, {kind: block.get(kind)}, deltas)
            case "redacted_thinking":
                deltas.append(ChoiceDelta(index=0, thoughts=[Thought(sealed=text_at(block, "data"))]))
            case "tool_use":
                self._calls += 1
                call = ToolCallDelta(opened.call, text_at(block, "id"), text_at(block, "name"))
                deltas.append(ChoiceDelta(index=0, tool_calls=[call]))
            case _:
                pass

    def _piece(self, index: Any, delta: dict[str, Any], deltas: list[ChoiceDelta]) -> None:
        """A piece of a block. What a delta holds counts, whatever its type claims."""
        block = self._blocks.get(_key(index))
        if block is None:
            return
        match block.kind:
            case "text":
                if text := text_at(delta, "text"):
                    deltas.append(ChoiceDelta(index=0, text=text))
            case "thinking":
                if text := text_at(delta, "thinking"):
                    block.pieces.append(text)
                    deltas.append(ChoiceDelta(index=0, reasoning=text))
                block.signature += text_at(delta, "signature")
            case "tool_use":
                if piece := text_at(delta, "partial_json"):
                    block.pieces.append(piece)
                    deltas.append(_arguments(block, piece))
            case _:
                pass

    def _close(self, index: Any, deltas: list[ChoiceDelta]) -> None:
        block = self._blocks.pop(_key(index), None)
        if block is None:
            return
        if block.kind == "thinking" and block.signature:
            thought = Thought("".join(block.pieces), block.signature)
            deltas.append(ChoiceDelta(index=0, thoughts=[thought]))
        elif block.kind == "tool_use" and not block.pieces:
            given = fields_of(block.opened.get("input"))
            deltas.append(_arguments(block, json.dumps(given, ensure_ascii=False)))

    def _finish(self, reason: Any, sequence: Any) -> None:
        told = str(reason)
        self.finish[0] = told
        self._last = ChoiceDelta(
            index=0,
            finish=_REASONS.get(told, FinishReason.STOP),
            stop=sequence if told == "stop_sequence" and type(sequence) is str else None,
        )


def _key(index: Any) -> Any:
    """What a block is called by: a number, if the provider keeps to its API."""
    return index if type(index) is int else 0


def _arguments(block: _Block, piece: str) -> ChoiceDelta:
    return ChoiceDelta(index=0, tool_calls=[ToolCallDelta(block.call, arguments=piece)])
