"""What the streams of completions and chat have in common: the frame of an event, usage, the end."""

from typing import Final

import msgspec

from onward.core.failure import Failure
from onward.core.request import OutputOptions
from onward.core.usage import Usage
from onward.dialects.schema import Dialect, UsageWhen
from onward.wire.errors import failure_event
from onward.wire.usage import usage_json

encode: Final = msgspec.json.Encoder().encode


class Frames:
    """The constant bytes around the choices of one stream.

    An event is ``data: {"id", "object", "created", "model", "choices": [...], "usage"?}``; all but
    the choice is made once, so that an event costs little more than its text.
    """

    __slots__ = ("_close", "_continuous", "_dialect", "_usage_due", "begin")

    def __init__(
        self, dialect: Dialect, request: OutputOptions, object_name: str, identity: str, created: int
    ) -> None:
        head = {"id": identity, "object": object_name, "created": created, "model": request.model}
        stream = dialect.stream
        self._dialect = dialect
        self._usage_due = request.include_usage or stream.usage is UsageWhen.ALWAYS
        self._continuous = request.continuous_usage
        self.begin = b"data: " + encode(head)[:-1] + b',"choices":['
        null_usage = request.include_usage and stream.null_usage
        self._close = b'],"usage":null}\n\n' if null_usage else b"]}\n\n"

    def close(self, usage: Usage) -> bytes:
        """The end of an event with a choice."""
        if self._continuous:
            return b'],"usage":' + usage_json(usage) + b"}\n\n"
        return self._close

    def end(self, usage: Usage) -> bytes:
        """The usage event, if it is due, and the end of the stream."""
        done = self._dialect.stream.done
        if not self._usage_due:
            return done
        return self.begin + b'],"usage":' + usage_json(usage) + b"}\n\n" + done

    def failure(self, failure: Failure) -> bytes:
        """The event that ends a stream that failed."""
        return failure_event(self._dialect, failure)
