"""What readers of a provider's stream have in common: whole events, counts of output, the way it ended."""

from collections.abc import Iterator
from typing import Final

from onward.core.failure import Failure, FailureKind, excerpt
from onward.core.usage import Usage
from onward.wire.passing.events import Lines, read_lines
from onward.wire.passing.split import LONGEST_EVENT, EventTooLong, Splitter
from onward.wire.passing.usage import likely_tokens, outside_ascii

_SHOWN: Final = 2000


class StreamReader:
    """Reads one stream. Once `done` or `failure` is set the rest of it is ignored."""

    __slots__ = (
        "_heard",
        "_other_size",
        "_size",
        "_splitter",
        "done",
        "failure",
        "failure_text",
        "finish",
        "output_events",
    )

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._size = 0
        self._other_size = 0
        self._heard = False
        self.finish: dict[int, str] = {}
        """Why each choice finished, by its index."""
        self.done = False
        """Whether the event that ends a stream has come."""
        self.failure: Failure | None = None
        """What broke the stream off."""
        self.failure_text = ""
        """What the provider said then, for the log."""
        self.output_events = 0
        """Pieces of output so far."""

    @property
    def usage(self) -> Usage | None:
        """What the provider reported; None: nothing that can be believed, or only of less output than has
        come.
        """
        raise NotImplementedError

    @property
    def completion_tokens(self) -> int:
        """Tokens of output so far, as far as can be told from outside: at least one for each piece, and
        at least what its bytes make likely (K-9).
        """
        return max(self.output_events, likely_tokens(self._size, self._other_size))

    def heard(self) -> bool:
        """See `Reading.heard`."""
        heard, self._heard = self._heard, False
        return heard

    def count(self, text: str) -> None:
        """A piece of output that is new."""
        encoded = text.encode("utf-8", "replace")
        self.output_events += 1
        self._size += len(encoded)
        self._other_size += outside_ascii(encoded)

    def fail(self, said: str, failure: Failure | None = None) -> None:
        """Broken off: by `failure`, or by what is no stream of events."""
        self.failure_text = excerpt(said, _SHOWN)
        self.failure = failure or Failure(
            FailureKind.UPSTREAM_UNAVAILABLE,
            "The model's provider answered with something that is no stream of events. Send the request"
            " again.",
        )

    def no_event(self, event: bytes) -> None:
        """Bytes came that are no event."""
        self.fail(event.decode("utf-8", "replace").strip())

    def broke_off(self) -> None:
        """The stream ended before its end."""
        self.fail(
            "",
            Failure(
                FailureKind.UPSTREAM_UNAVAILABLE,
                "The model's provider broke its answer off. Send the request again.",
            ),
        )

    def events(self, data: bytes) -> Iterator[bytes]:
        """The events that `data` completes, as long as there is something to read them for."""
        if self.done or self.failure is not None:
            return
        try:
            for event in self._splitter.feed(data):
                yield event
                if self.done or self.failure is not None:
                    return
        except EventTooLong:
            self.fail(f"more than {LONGEST_EVENT} bytes without the end of an event")

    def last_event(self) -> Iterator[bytes]:
        """An event whose blank line did not come."""
        rest = self._splitter.rest()
        if rest and not self.done and self.failure is None:
            yield rest


def lines_of(event: bytes) -> Lines:
    """`read_lines`, faster for an event of one line of data, with its name in front or without."""
    if event.endswith(b"\n\n"):
        if event.startswith(b"event: ") and event.count(b"\n") == 3:
            line, _, data = event.partition(b"\n")
            if data.startswith(b"data: ") and b"\r" not in line:
                return Lines(data[6:-2], line[7:].strip(), [line])
        elif event.startswith(b"data: ") and event.count(b"\n") == 2:
            return Lines(event[6:-2], b"", [])
    return read_lines(event)
