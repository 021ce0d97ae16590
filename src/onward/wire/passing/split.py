"""Where the events of a stream end, however the stream was cut."""

import re
from collections.abc import Iterator
from typing import Final

LONGEST_EVENT: Final = 1024 * 1024
"""Bytes."""
LONGEST_BLANK: Final = 4
"""Bytes of the longest end of an event."""
LINE_ENDS: Final = b"\r\n"
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r(?=[^\n])){2}", re.DOTALL)
"""The end of an event. A carriage return that ends what has come may be half of a line end."""


def last_end(data: bytes | bytearray, looked: int) -> int:
    """Where the last whole event ends; 0: there is none. None ends before `looked`."""
    if data.find(b"\r", looked) < 0:
        blank = data.rfind(b"\n\n", looked)
        return blank + 2 if blank >= 0 else 0
    end = 0
    for match in _BLANK_LINE.finditer(data, looked):
        end = match.end()
    return end


def event_end(block: bytes, start: int) -> int:
    """Where the event ends that begins at `start`, its blank line included; further blank lines are by
    themselves.
    """
    end = start
    while end < len(block) and block[end] in LINE_ENDS:
        end += 1
    if end > start:
        return end
    end = block.find(b"\n\n", start)
    if end >= 0 and block.find(b"\r", start, end) < 0:
        return end + 2
    match = _BLANK_LINE.search(block, start)
    return match.end() if match else len(block)


class EventTooLong(Exception):  # noqa: N818 - a finding, which the reader of the stream turns into a failure
    """An event of more than `LONGEST_EVENT` bytes."""


class Splitter:
    """Cuts what comes into whole events. Feed it a stream in pieces of any size."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The events that `data` completes, each with its blank line. Raises `EventTooLong`."""
        pending = self._pending
        looked = max(len(pending) - LONGEST_BLANK, 0)
        pending += data
        end = last_end(pending, looked)
        block = bytes(pending[:end])
        del pending[:end]
        if len(pending) > LONGEST_EVENT:
            raise EventTooLong
        return self._events(block)

    def rest(self) -> bytes:
        """The last event, where the stream ended without its blank line; b"" if there is nothing."""
        event = bytes(self._pending).rstrip(LINE_ENDS)
        self._pending.clear()
        return event + b"\n\n" if event else b""

    @staticmethod
    def _events(block: bytes) -> Iterator[bytes]:
        start = 0
        while start < len(block):
            end = event_end(block, start)
            yield block[start:end]
            start = end
