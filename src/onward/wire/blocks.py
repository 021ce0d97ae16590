"""The blocks of a message, out of the deltas of a choice: opened, filled piece by piece, closed."""

from enum import Enum
from typing import Any

import msgspec

from onward.core.delta import ChoiceDelta, ToolCallDelta
from onward.core.request import Thought


class StepKind(Enum):
    """What happens to a block."""

    START = "start"
    DELTA = "delta"
    STOP = "stop"


Step = tuple[int, StepKind, dict[str, Any]]
"""The block's index, what happens to it, and with what."""
_Steps = list[Step]
_NOTHING: dict[str, Any] = {}


class Blocks:
    """What was opened so far. One block at a time: pieces of a later call wait until the one before it is
    complete, however a provider mixes them.
    """

    __slots__ = ("_arguments", "_call", "_kind", "_shown", "_signature", "_steps", "_waiting", "index")

    def __init__(self, *, shown: bool) -> None:
        """`shown`: whether the text of reasoning is told."""
        self._shown = shown
        self.index = -1
        """Of the block that was opened last."""
        self._kind: str | None = None
        """What is open."""
        self._signature = ""
        self._call = -1
        """Which call is open, or was."""
        self._arguments: list[str] = []
        """Of the open call, as far as they came."""
        self._waiting: dict[int, list[ToolCallDelta]] = {}
        self._steps: _Steps = []

    @property
    def in_text(self) -> bool:
        """Whether a text is open."""
        return self._kind == "text"

    def read(self, delta: ChoiceDelta) -> _Steps:
        """What a delta does."""
        for part in delta.parts or (delta,):
            self._read(part)
        return self._taken() if delta.finish is None else self.end()

    def _read(self, delta: ChoiceDelta) -> None:
        if delta.reasoning:
            self._into_reasoning()
            if self._shown:
                self._piece({"type": "thinking_delta", "thinking": delta.reasoning})
        for thought in delta.thoughts or ():
            self._think(thought)
        if delta.text:
            self._into("text", {"type": "text", "text": ""})
            self._piece({"type": "text_delta", "text": delta.text})
        for call in delta.tool_calls:
            self._call_piece(call)

    def end(self) -> _Steps:
        """What closes all that is open."""
        self._close()
        return self._taken()

    def _taken(self) -> _Steps:
        steps, self._steps = self._steps, []
        return steps

    def _think(self, thought: Thought) -> None:
        if thought.sealed is not None:
            self._close()
            self._open("redacted_thinking", {"type": "redacted_thinking", "data": thought.sealed})
        else:
            self._into_reasoning()
            self._signature = thought.signature
        self._close()

    def _into_reasoning(self) -> None:
        self._into("thinking", {"type": "thinking", "thinking": "", "signature": ""})

    def _into(self, kind: str, block: dict[str, Any]) -> None:
        if self._kind != kind:
            self._close()
            self._open(kind, block)

    def _call_piece(self, call: ToolCallDelta) -> None:
        is_open = self._kind == "tool_use" and call.index == self._call
        if call.id is None and not is_open and call.index not in self._waiting:
            return  # of a call that is closed, as its arguments were whole: white space
        if self._kind != "tool_use":
            self._close()
            self._open_call(call)
        elif call.index == self._call:
            self._add(call.arguments)
        elif call.index in self._waiting or not self._complete():
            self._waiting.setdefault(call.index, []).append(call)
        else:
            self._close()
            self._open_call(call)
        while self._waiting and self._complete():
            self._close_one()
            self._next_waiting()

    def _open_call(self, call: ToolCallDelta) -> None:
        self._call = call.index
        self._arguments = []
        self._open(
            "tool_use", {"type": "tool_use", "id": call.id or "", "name": call.name or "", "input": {}}
        )
        self._add(call.arguments)

    def _add(self, arguments: str) -> None:
        if arguments:
            self._arguments.append(arguments)
            self._piece({"type": "input_json_delta", "partial_json": arguments})

    def _complete(self) -> bool:
        """Whether the arguments of the open call are whole: an object that has ended."""
        if not self._arguments or not self._arguments[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self._arguments))
        except msgspec.DecodeError:
            return False
        return True

    def _next_waiting(self) -> None:
        index = next(iter(self._waiting))
        first, *rest = self._waiting.pop(index)
        self._open_call(first)
        for call in rest:
            self._add(call.arguments)

    def _open(self, kind: str, block: dict[str, Any]) -> None:
        self.index += 1
        self._kind = kind
        self._steps.append((self.index, StepKind.START, block))

    def _piece(self, piece: dict[str, Any]) -> None:
        self._steps.append((self.index, StepKind.DELTA, piece))

    def _close(self) -> None:
        """Close what is open, and what waited for it."""
        self._close_one()
        while self._waiting:
            self._next_waiting()
            self._close_one()

    def _close_one(self) -> None:
        if self._kind is None:
            return
        if self._kind == "thinking":
            self._piece({"type": "signature_delta", "signature": self._signature})
            self._signature = ""
        self._kind = None
        self._steps.append((self.index, StepKind.STOP, _NOTHING))


def written(steps: _Steps) -> list[dict[str, Any]]:
    """The blocks that steps make. Arguments of a call that are no object are an empty one."""
    blocks: list[dict[str, Any]] = []
    pieces: list[str] = []
    for _, kind, value in steps:
        if kind is StepKind.START:
            blocks.append(dict(value))
            pieces = []
        elif kind is StepKind.DELTA:
            name = _MEMBERS[value["type"]]
            if name == "signature":
                blocks[-1][name] = value[name]
            else:
                pieces.append(value[name])
        elif pieces:
            block = blocks[-1]
            block[_CONTENT[block["type"]]] = _content(block["type"], "".join(pieces))
    return blocks


_MEMBERS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_CONTENT = {"text": "text", "thinking": "thinking", "tool_use": "input"}


def _content(kind: str, text: str) -> Any:
    if kind != "tool_use":
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
