"""Answers of OpenAI's chat completions as deltas."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta
from onward.core.failure import Failure, FailureKind
from onward.core.request import Thought
from onward.core.stretches import Stretch, stretches
from onward.core.usage import Usage
from onward.wire.passing.events import (
    Choice,
    NoEvent,
    arguments_of,
    content_of,
    is_error,
    new_text,
    read_payload,
)
from onward.wire.passing.message_events import fields_of, items_of, text_at
from onward.wire.passing.refusal import stream_error
from onward.wire.passing.usage import read_usage
from onward.wire.thinking_blocks import read_thinking_blocks
from onward.wire.translating.reading import DeltaReader

_REASONS: Final = {
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
"""Every other reason is a stop."""


class _Ended(msgspec.Struct, gc=False):
    """What some providers say of a choice beside `finish_reason`: the text, or the token, that ended it."""

    index: Any = 0
    stop_reason: Any = None
    """vLLM's name for it."""
    matched_stop: Any = None
    """SGLang's."""


class _Ends(msgspec.Struct, gc=False):
    choices: list[_Ended] | None = None


_read_ends: Final = msgspec.json.Decoder(_Ends).decode


class _Call:
    """A call whose beginning has come."""

    __slots__ = ("arguments", "given", "id", "index", "name", "told")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.given = False
        """Whether its provider has named it."""
        self.name = ""
        self.arguments = ""
        """What came before it could be told."""
        self.told = False


class OpenAiDeltas(DeltaReader):
    """Reads one answer, of one choice, of OpenAI's API."""

    __slots__ = ("_by_place", "_calls", "_new_id", "_reasons", "_stop", "_thinking", "_usage")

    def __init__(self, new_id: Callable[[], str]) -> None:
        """`new_id` names calls that the provider gave no ID."""
        super().__init__()
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._by_place: dict[Any, _Call] = {}
        """By the index that the provider says."""
        self._usage: Usage | None = None
        self._reasons = False
        """Whether reasoning comes in a field of its own; else `thinking_blocks` alone tell it."""
        self._stop: str | None = None
        """The text that ended it, where it is told."""
        self._thinking: list[str] = []
        """Reasoning since the last thought that was signed or sealed."""

    @property
    def usage(self) -> Usage | None:
        usage = self._usage
        return None if usage is None or (self.output_events and not usage.completion_tokens) else usage

    def _whole(self, body: bytes) -> list[ChoiceDelta]:
        try:
            answer = read_payload(body)
        except NoEvent:
            raise _no_answer() from None
        if is_error(answer):
            raise stream_error(answer.error)
        if not answer.choices:
            raise _no_answer()
        deltas: list[ChoiceDelta] = []
        choice = answer.choices[0]
        self._choice(choice, fields_of(choice.message), deltas, numbered=False)
        self.finish.setdefault(0, "stop")
        self._stop = _stop_text(body)
        self._usage = read_usage(answer.usage)
        self._end(deltas)
        return deltas

    def _data(self, data: bytes, name: bytes, deltas: list[ChoiceDelta]) -> None:
        if data.strip() == b"[DONE]":
            self.done = True
            return
        payload = read_payload(data)
        if is_error(payload, name):
            self.fail(data.decode("utf-8", "replace"), stream_error(payload.error))
            return
        for choice in payload.choices or ():
            if choice.index in (0, None):
                self._choice(choice, fields_of(choice.delta or choice.message), deltas, numbered=True)
                if choice.finish_reason:
                    self._stop = _stop_text(data)
        if type(payload.usage) is dict:
            self._usage = read_usage(payload.usage) or self._usage

    def _end(self, deltas: list[ChoiceDelta]) -> None:
        if 0 not in self.finish and not (self.done and self.output_events):
            self.broke_off()
            return
        deltas += [self._tell(call) for call in self._calls if not call.told]
        reason = _REASONS.get(self.finish.get(0, ""), FinishReason.STOP)
        if self._calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        stop = self._stop if reason is FinishReason.STOP else None
        deltas.append(ChoiceDelta(index=0, finish=reason, stop=stop))

    def _choice(
        self, choice: Choice, said: dict[str, Any], deltas: list[ChoiceDelta], *, numbered: bool
    ) -> None:
        """`numbered`: whether calls say which they are; in a whole answer each is a new one."""
        if text := new_text(choice):
            self.count(text)
            self._usage = None
        content = content_of(said.get("content"))
        text = content.text or text_at(said, "refusal")
        reasoning = text_at(said, "reasoning_content") or text_at(said, "reasoning") or content.reasoning
        thoughts = read_thinking_blocks(said.get("thinking_blocks"))
        calls: list[Any] = items_of(said.get("tool_calls"))
        if said.get("function_call") is not None:
            calls = [*calls, {"index": "function", "function": said["function_call"]}]
        told: list[ToolCallDelta] = []
        for item in calls:
            told += self._call(fields_of(item), numbered=numbered)
        self._reasons = self._reasons or bool(reasoning)
        in_blocks = "".join([one.text for one in thoughts])
        if not self._reasons:
            reasoning = in_blocks
        by_block = bool(thoughts) and in_blocks == reasoning
        whole = by_block and not numbered
        cuts = stretches(text, len(told), thoughts) if whole else [Stretch(thoughts, text, slice(None))]
        for cut in cuts:
            pieces = (
                [self._thought(one.text, [one]) for one in cut.thoughts]
                if by_block
                else [self._thought(reasoning, thoughts)]
            ) or [ChoiceDelta(index=0)]
            pieces[-1].text, pieces[-1].tool_calls = str(cut.content), told[cut.calls]
            deltas += [piece for piece in pieces if not piece.is_empty()]
        if choice.finish_reason:
            self.finish[0] = str(choice.finish_reason)

    def _thought(self, reasoning: str, thoughts: list[Thought]) -> ChoiceDelta:
        """Reasoning, and the thoughts that end with it: those that are signed, or sealed. Pieces of a block
        that some providers tell beside its text are none.
        """
        self._thinking.append(reasoning)
        kept: list[Thought] = []
        for one in thoughts:
            if one.sealed is not None:
                kept.append(one)
            elif one.signature:
                kept.append(one if one.text else replace(one, text="".join(self._thinking)))
                self._thinking.clear()
        return ChoiceDelta(index=0, reasoning=reasoning, thoughts=kept or None)

    def _call(self, said: dict[str, Any], *, numbered: bool) -> list[ToolCallDelta]:
        """The piece of a call. A call is told once its name is here, with its ID, and never again."""
        call = self._known(said, numbered=numbered)
        function = fields_of(said.get("function"))
        arguments = arguments_of(function)
        if call.told:
            return [ToolCallDelta(call.index, arguments=arguments)] if arguments else []
        call.id = call.id or text_at(said, "id")
        call.given = bool(call.id)
        call.name += text_at(function, "name")
        call.arguments += arguments
        return self._tell(call).tool_calls if call.name else []

    def _known(self, said: dict[str, Any], *, numbered: bool) -> _Call:
        """Some providers leave the index out, and some say the same one of every call."""
        place = said.get("index")
        if not numbered:
            place = ("after", len(self._calls))
        elif type(place) not in (int, str):
            place = None
        call = self._by_place.get(place)
        if call is None or _is_another(call, said, numbered=place is not None):
            call = self._by_place[place] = _Call(len(self._calls))
            self._calls.append(call)
        return call

    def _tell(self, call: _Call) -> ChoiceDelta:
        call.told = True
        call.id = call.id or f"call_{self._new_id()}"
        told, call.arguments = call.arguments, ""
        return _delta(ToolCallDelta(call.index, call.id, call.name, told))


def _is_another(call: _Call, said: dict[str, Any], *, numbered: bool) -> bool:
    """Whether a piece begins a call, though it is where the pieces of `call` are: by another ID (and a name,
    where pieces are numbered), or where there are no IDs by another name.
    """
    name, given = text_at(fields_of(said.get("function")), "name"), text_at(said, "id")
    if given:
        return given != call.id and (not numbered or (call.told and bool(name)))
    return call.told and not call.given and name not in ("", call.name)


def _stop_text(data: bytes) -> str | None:
    """The text that ended the first choice, of the last event or of a whole answer."""
    try:
        choices = _read_ends(data).choices
    except msgspec.MsgspecError:
        return None
    for one in choices or ():
        if one.index in (0, None):
            told = (one.stop_reason, one.matched_stop)
            return next((text for text in told if type(text) is str and text), None)
    return None


def _delta(call: ToolCallDelta) -> ChoiceDelta:
    return ChoiceDelta(index=0, tool_calls=[call])


def _no_answer() -> Failure:
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider answered with something that is no answer. Send the request again.",
    )
