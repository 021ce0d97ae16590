"""A provider's stream on its way to the caller: whole events, watched, almost untouched.

Most events of a stream differ in nothing but a text. The bytes before it and after it, the event's
*frame*, are learnt from one event and looked for in the next ones. A burst of events that all have
the frame is passed on in a few searches over all its bytes; any other event is read by itself. Both
ways lead to the same bytes and the same counts, however the stream was cut.

Untouched, save: `model` is the name that the caller used; usage is an event of its own, directly
before the end, for those to whom it is shown; what a provider says of an error stays with us.
"""

from typing import Final

import msgspec

from onward.core.failure import Failure, FailureKind, excerpt
from onward.core.usage import Usage
from onward.wire.passing.choices import known_answer
from onward.wire.passing.events import (
    NoEvent,
    Payload,
    changed,
    head_of,
    is_error,
    new_text,
    read_lines,
    read_payload,
    usage_event,
    usage_json,
    with_data,
)
from onward.wire.passing.frame import Frame, learn
from onward.wire.passing.refusal import stream_error
from onward.wire.passing.split import LINE_ENDS, LONGEST_BLANK, LONGEST_EVENT, event_end, last_end
from onward.wire.passing.usage import likely_tokens, outside_ascii, read_usage
from onward.wire.usage import usage_json as encoded_usage

_DONE: Final = b"data: [DONE]\n\n"
_MOST_LEARNT: Final = 16
"""Frames that are learnt in vain before no more are."""
_MOST_FRAMES: Final = 4
"""Frames in use: of choices that take turns, of reasoning and text."""
_NO_HEAD: Final = b"{}"
_SHOWN_ERROR: Final = 2000

_encode: Final = msgspec.json.Encoder().encode


class StreamWatch:
    """Reads one stream. Feed it what comes, pass on what it returns.

    Nothing is returned before the first piece of output (or a finish), so that until then another
    provider may still be asked. Once `done` or `failure` is set the rest of the stream is ignored.
    """

    __slots__ = (
        "_choices",
        "_done_event",
        "_frames",
        "_head",
        "_heard",
        "_held",
        "_held_size",
        "_keep_usage",
        "_learnt",
        "_model",
        "_model_field",
        "_model_json",
        "_other_size",
        "_own_head",
        "_pending",
        "_show_usage",
        "_size",
        "_usage_event",
        "_usage_json",
        "done",
        "failure",
        "failure_text",
        "finish",
        "output_events",
        "started",
        "usage",
    )

    def __init__(
        self,
        model: str,
        *,
        show_usage: bool,
        keep_usage: bool = False,
        choices: int = 1,
        done: bytes = _DONE,
        head: bytes | None = None,
    ) -> None:
        """`model` is the name that the caller used. `show_usage`: whether a usage event is due.
        `keep_usage`: whether events with choices may have usage too (the caller asked for that).
        `choices`: how many the stream will have. `done`: the event that ends it for the caller. `head`: as
        of `Shown`: of an event nothing but its choices goes on then, and usage is told as it is charged.
        """
        self._own_head = head
        self._model = model
        self._model_json = _encode(model)
        self._model_field = b""
        self._show_usage = show_usage
        self._keep_usage = keep_usage
        self._choices = choices
        self._done_event = done
        self._pending = bytearray()
        self._heard = False
        self._held: list[bytes] = []
        self._held_size = 0
        self._frames: list[Frame] = []
        self._learnt = self._size = self._other_size = 0
        self._head: bytes = _NO_HEAD
        """The last event with choices."""
        self._usage_event = b""
        self._usage_json = b""
        self.usage: Usage | None = None
        """What the provider reported last; None: nothing that can be believed, or only of less output
        than has come."""
        self.finish: dict[int, str] = {}
        """Why each choice finished, by its index."""
        self.started = False
        """Whether a piece of output, or a finish, has come."""
        self.done = False
        """Whether the event that ends a stream has come."""
        self.failure: Failure | None = None
        """What broke the stream off."""
        self.failure_text = ""
        """What the provider said then, for the log."""
        self.output_events = 0
        """Pieces of output so far."""

    @property
    def finished(self) -> bool:
        """Whether all of the answer came: the event that ends it, or the finish of every choice.

        Some providers send no ``[DONE]``. Clients do not miss it, and a choice that says why it
        finished is whole; a stream that has neither was cut, and one of nothing but its end is no answer.
        """
        return (self.done and self._head is not _NO_HEAD) or len(self.finish) >= self._choices

    @property
    def prompt_usage(self) -> Usage | None:
        """Of the prompt alone nobody tells."""
        return None

    @property
    def completion_tokens(self) -> int:
        """Tokens of output so far, as far as can be told from outside: at least one for each piece, and
        at least what its bytes make likely.
        """
        return max(self.output_events, likely_tokens(self._size, self._other_size))

    def heard(self) -> bool:
        """See `Reading.heard`."""
        heard, self._heard = self._heard, False
        return heard

    def estimate(self, prompt_tokens: int) -> Usage:
        """What is assumed where the provider reports no usage (K-9)."""
        return Usage(prompt_tokens, self.completion_tokens)

    def feed(self, data: bytes) -> bytes:
        """What may go on to the caller now that `data` has come: whole events."""
        if self.done or self.failure is not None:
            return b""
        pending, frames = self._pending, self._frames
        if not pending and frames and (text := frames[0].text(data)) is not None:
            return self._framed(frames[0], data, text)
        if pending:
            looked = max(len(pending) - LONGEST_BLANK, 0)
            pending += data
            end = last_end(pending, looked)
            data = bytes(pending[:end])
            del pending[:end]
        else:
            end = last_end(data, 0)
            if end != len(data):
                pending += data[end:]
                data = data[:end]
        if len(pending) > LONGEST_EVENT:
            self._fail(f"more than {LONGEST_EVENT} bytes without the end of an event")
            return b""
        return self._events(data) if data else b""

    def close(self) -> bytes:
        """What may still go on now that the provider's body has ended well. Sets `failure` where the
        stream had not come to its end.
        """
        out = b""
        rest = bytes(self._pending)
        self._pending.clear()
        if rest and not self.done and self.failure is None:
            event = rest.rstrip(LINE_ENDS)
            out = self._events(event + b"\n\n") if event else self._aside(rest)
        if not self.finished and self.failure is None:
            self.failure = Failure(
                FailureKind.UPSTREAM_UNAVAILABLE,
                "The model's provider broke its answer off. Send the request again.",
            )
        return out

    def end(self, usage: Usage) -> bytes:
        """The last bytes of a whole stream: what was held back, the usage event if it is due, the end.

        `usage` is what the request is charged for; it is told where the provider had no usage of its own.
        """
        held = b"".join(self._held)
        self._held.clear()
        if not self._show_usage:
            return held + self._done_event
        head = self._own_head or head_of(self._head, self._model_json)
        made = self._usage_event or usage_event(head, self._usage_json or encoded_usage(usage))
        return held + made + self._done_event

    def _events(self, block: bytes) -> bytes:
        """`block` is whole events."""
        out: list[bytes] = []
        start, size = 0, len(block)
        tried: Frame | None = None
        while start < size and not self.done and self.failure is None:
            frame = self._frames[0] if self._frames else None
            if frame is not None and frame is not tried:
                tried = frame
                end = frame.end(block, start)
                if end and (texts := frame.texts(block[start:end])) is not None:
                    out.append(self._run(frame, block[start:end], texts))
                    start = end
                    continue
            end = event_end(block, start)
            out.append(self._any_event(block[start:end]))
            start = end
        return out[0] if len(out) == 1 else b"".join(out)

    def _any_event(self, event: bytes) -> bytes:
        for frame in self._frames:
            if (text := frame.text(event)) is not None:
                return self._framed(frame, event, text)
        try:
            return self._event(event)
        except NoEvent:
            self._fail(event.decode("utf-8", "replace").strip())
            return b""

    def _framed(self, frame: Frame, event: bytes, text: bytes) -> bytes:
        """An event that has the frame, and this text."""
        self._learnt = 0
        self._heard = True
        if text:
            self.output_events += 1
            self._size += len(text)
            if not text.isascii():
                self._other_size += outside_ascii(text)
            if self.usage is not None:
                self._outdate()
        return event if frame.same else frame.shown_before + text + frame.shown_after

    def _run(self, frame: Frame, block: bytes, texts: list[bytes]) -> bytes:
        """Events that all have the frame, and these texts."""
        self._learnt = 0
        self._heard = True
        joined = b"".join(texts)
        self.output_events += len(texts) - texts.count(b"")
        self._size += len(joined)
        if not joined.isascii():
            self._other_size += outside_ascii(joined)
        if self.usage is not None and joined:
            self._outdate()
        return block if frame.same else frame.shown(texts)

    def _event(self, event: bytes) -> bytes:
        """One event by itself."""
        if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.count(b"\n") == 2:
            name, data = b"", event[6:-2]
        else:
            lines = read_lines(event)
            if not lines.data:
                return self._aside(event)
            name, data = lines.name, lines.data
        self._heard = True
        if data.strip() == b"[DONE]":
            self.done = True
            return b""
        payload = read_payload(data)
        if is_error(payload, name):
            self.failure = stream_error(payload.error)
            self.failure_text = excerpt(data.decode("utf-8", "replace"), _SHOWN_ERROR)
            return b""
        reports = type(payload.usage) is dict
        if not payload.choices:
            shown = self._changed(data, payload, null_usage=False)
            if reports:
                if self._report(payload) and self._own_head is None:
                    self._usage_event = b"data: %b\n\n" % shown.replace(b"\n", b" ")
                return b""
            if self._own_head is not None:
                return b""
            return self._let_go(event if shown is data else with_data(event, shown))
        text = self._read_choices(payload)
        if reports and self._report(payload):
            self._usage_event = b""
            told = self._keep_usage or self._own_head is not None
            self._usage_json = b"" if told else usage_json(data)
        shown = self._changed(data, payload, null_usage=reports and not self._keep_usage)
        self._head = data
        if self._own_head is not None:
            passed = b"data: %b\n\n" % shown
        else:
            passed = event if shown is data else with_data(event, shown)
        if text and not reports and self._learnt < _MOST_LEARNT:
            self._learn(event, passed, payload, text)
        return self._let_go(passed)

    def _changed(self, data: bytes, payload: Payload, *, null_usage: bool) -> bytes:
        """The JSON of an event under the caller's name for the model; `data` itself if nothing changes."""
        if self._own_head is not None:
            return known_answer(data, self._own_head)
        renamed = payload.model is not None and payload.model != self._model
        if not renamed and not null_usage:
            return data
        field = self._model_field
        if renamed and not null_usage and data.count(b'"model"') == 1:
            # Without a backslash no name of a member is spelled in another way.
            if not field and type(payload.model) is str and b"\\" not in data:
                field = b'"model":' + _encode(payload.model)
            if field and data.count(field) == 1:
                self._model_field = field
                return data.replace(field, b'"model":' + self._model_json)
            field = self._model_field
        made = changed(data, self._model_json if renamed else None, null_usage=null_usage)
        self._model_field = made.field or field
        return made.data

    def _report(self, payload: Payload) -> bool:
        """Whether the provider's usage is believed. That an output has no tokens is not."""
        usage = read_usage(payload.usage)
        if usage is None or (self.output_events and not usage.completion_tokens):
            return False
        self.usage = usage
        return True

    def _read_choices(self, payload: Payload) -> str:
        """Count what an event brings; all its text."""
        whole = ""
        for choice in payload.choices or ():
            text = new_text(choice)
            if text:
                whole += text
                self.output_events += 1
            if choice.finish_reason:
                self.finish[choice.index if type(choice.index) is int else 0] = str(choice.finish_reason)
        if whole:
            encoded = whole.encode("utf-8", "replace")
            self._size += len(encoded)
            self._other_size += outside_ascii(encoded)
            if self.usage is not None:
                self._outdate()
        return whole

    def _outdate(self) -> None:
        """What was reported is less than what has come since."""
        self.usage, self._usage_event, self._usage_json = None, b"", b""

    def _learn(self, event: bytes, shown: bytes, payload: Payload, text: str) -> None:
        """Take the frame of an event that holds one text of one choice and finishes nothing."""
        choices = payload.choices or []
        if len(choices) == 1 and not choices[0].finish_reason:
            self._learnt += 1
            frame = learn(event, shown, text)
            if frame is not None:
                self._frames = [frame, *self._frames[: _MOST_FRAMES - 1]]

    def _aside(self, event: bytes) -> bytes:
        """What is no data: a comment, an empty line."""
        return self._let_go(event) if self._own_head is None else b""

    def _let_go(self, event: bytes) -> bytes:
        """An event on its way out, behind those that wait for the first piece of output."""
        if self.started:
            return event
        self._held.append(event)
        self._held_size += len(event)
        if self.output_events or self.finish:
            self.started = True
            out = b"".join(self._held)
            self._held.clear()
            return out
        if self._held_size > LONGEST_EVENT:
            self._fail(f"more than {LONGEST_EVENT} bytes before the first piece of output")
        return b""

    def _fail(self, what: str) -> None:
        self.failure_text = excerpt(what, _SHOWN_ERROR)
        self.failure = Failure(
            FailureKind.UPSTREAM_UNAVAILABLE,
            "The model's provider answered with something that is no stream of events. Send the request"
            " again.",
        )
