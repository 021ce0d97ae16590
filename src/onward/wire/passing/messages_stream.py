"""A provider's stream of Anthropic's Messages on its way to the caller: whole events, watched, untouched.

Untouched, save: `model` in the first event is the name that the caller used; what a provider says of an
error stays with us; the event that ends the stream waits until the caller was charged; names of events and
usage, which clients of this API rely on, are added where a provider leaves them out.
"""

from typing import Any, Final

from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent, with_data
from onward.wire.passing.members import members, spliced
from onward.wire.passing.message_events import (
    MessageEvent,
    MessageReader,
    MessageUsage,
    fields_of,
    message_error,
    read_message_event,
)
from onward.wire.passing.messages_whole import completed, plain_event, renamed
from onward.wire.passing.reader import lines_of
from onward.wire.passing.split import LONGEST_EVENT

_OUTPUT: Final = frozenset({"content_block_start", "content_block_delta"})
_SILENT: Final = frozenset({"text", "thinking"})
"""Blocks that begin with nothing: their first delta is the first piece of output."""


class MessagesWatch(MessageReader):
    """Reads one stream. Feed it what comes, pass on what it returns.

    Nothing is returned before the first piece of output (or the reason of an end), so that until then
    another provider may still be asked: the first event and pings wait.
    """

    __slots__ = (
        "_end",
        "_held",
        "_held_size",
        "_model",
        "_only_known",
        "_prompt_tokens",
        "_reported",
        "started",
    )

    def __init__(self, model: str, *, only_known: bool = False, prompt_tokens: int = 0) -> None:
        """`model` is the name that the caller used. `only_known`: nothing passes that Anthropic's
        API does not have, so that nothing names the provider (P-5). `prompt_tokens`: what is told of the
        prompt where the provider tells nothing.
        """
        super().__init__()
        self._model = model
        self._only_known = only_known
        self._prompt_tokens = prompt_tokens
        self._reported = MessageUsage()
        self._held: list[bytes] = []
        self._held_size = 0
        self._end = b""
        self.started = False
        """Whether a piece of output, or the reason of an end, has come."""

    @property
    def finished(self) -> bool:
        """Whether all of the answer came. No client takes a message without its last event for whole."""
        return self.done

    def feed(self, data: bytes) -> bytes:
        """What may go on to the caller now that `data` has come: whole events."""
        return b"".join([self._event(event) for event in self.events(data)])

    def close(self) -> bytes:
        """What may still go on now that the provider's body has ended well. Sets `failure` where the
        stream had not come to its end.
        """
        out = b"".join([self._event(event) for event in self.last_event()])
        if not self.done and self.failure is None:
            self.broke_off()
        return out

    def end(self, usage: Usage) -> bytes:  # noqa: ARG002 - the provider's own events tell it
        """The last bytes of a whole stream: what was held back, the event that ends it."""
        held = b"".join(self._held)
        self._held.clear()
        return held + self._end

    def _event(self, event: bytes) -> bytes:
        try:
            lines = lines_of(event)
            if not lines.data:
                return b"" if self._only_known else self._let_go(event)
            self._heard = True
            read = read_message_event(lines.data)
        except NoEvent:
            self.no_event(event)
            return b""
        if read.type == "error" or lines.name == b"error":
            self.fail(lines.data.decode("utf-8", "replace"), message_error(read.error))
            return b""
        data = self._counted(read, lines.data)
        if data is not lines.data:
            event = with_data(event, data)
        if self._only_known:
            name = read.type if read.type.isidentifier() and read.type.isascii() else "message"
            event = plain_event(data, name, self._model)
        elif not lines.name and read.type.isidentifier() and read.type.isascii():
            event = b"event: %b\n%b" % (read.type.encode(), event)
        if read.type == "message_stop":
            self.done = True
            self._end = event
            return b""
        if read.type in _OUTPUT:
            text = self.count_output(read)
            self.started = self.started or bool(text) or _begins(read.content_block)
        elif read.type == "message_start":
            message = fields_of(read.message)
            self._reported.hear(message.get("usage"), final=False)
            if not self._only_known and message.get("model") != self._model:
                return self._let_go(with_data(event, self._renamed(data)))
        elif read.type == "message_delta":
            self._reported.hear(read.usage, final=True)
            reason = fields_of(read.delta).get("stop_reason")
            if reason:
                self.finish[0] = str(reason)
                self.started = True
        return self._let_go(event)

    def _counted(self, read: MessageEvent, data: bytes) -> bytes:
        """The JSON of an event, with usage as it is assumed where it should have some and has none."""
        if read.type == "message_delta" and type(read.usage) is not dict:
            return completed(data, b'{"output_tokens":%d}' % self.completion_tokens)
        if read.type == "message_start" and type(fields_of(read.message).get("usage")) is not dict:
            usage = b'{"input_tokens":%d,"output_tokens":0}' % self._prompt_tokens
            edits = [
                (one.value, one.end, completed(data[one.value : one.end], usage))
                for one in members(data)
                if one.name == "message" and data[one.value : one.value + 1] == b"{"
            ]
            return spliced(data, edits) if edits else data
        return data

    def _renamed(self, data: bytes) -> bytes:
        """The first event under the caller's name for the model."""
        edits = [
            (one.value, one.end, renamed(data[one.value : one.end], self._model, only_known=False))
            for one in members(data)
            if one.name == "message" and data[one.value : one.value + 1] == b"{"
        ]
        return spliced(data, edits) if edits else data

    def _let_go(self, event: bytes) -> bytes:
        """An event on its way out, behind those that wait for the first piece of output."""
        if self.started and not self._held:
            return event
        self._held.append(event)
        if self.started:
            out = b"".join(self._held)
            self._held.clear()
            return out
        self._held_size += len(event)
        if self._held_size > LONGEST_EVENT:
            self.fail(f"more than {LONGEST_EVENT} bytes before the first piece of output")
        return b""


def _begins(block: Any) -> bool:
    """Whether a block that begins is a piece of output by itself."""
    kind = fields_of(block).get("type")
    return type(kind) is str and kind not in _SILENT
