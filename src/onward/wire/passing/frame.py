"""The bytes around the text of a stream's events, as they come and as they go on."""

import re
from typing import Final

from onward.wire.passing.events import text_place

_TEXTS: Final = re.compile(rb'(?:[^"\\]++|\\[^\n])*+', re.DOTALL)
"""Bodies of JSON strings, one on each line."""
_BLANK: Final = b"\n\n"
# As numbers: to look for a byte takes a fraction of what it takes to look for bytes.
_LINE_FEED: Final = 0x0A
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C


class Frame:
    """What every event of a stream has alike, for a while.

    An event that has these bytes before and after one JSON string is the event that the frame was
    learnt from with another text: nothing else about it can be different.
    """

    __slots__ = ("after", "around", "before", "joint", "same", "shown_after", "shown_before", "shown_joint")

    def __init__(self, before: bytes, after: bytes, shown_before: bytes, shown_after: bytes) -> None:
        self.before = before
        self.after = after
        self.around = len(before) + len(after)
        """Bytes of an event that has no text."""
        self.joint = after + before
        """The end of an event and the beginning of the next."""
        self.shown_before = shown_before
        self.shown_after = shown_after
        self.shown_joint = shown_after + shown_before
        self.same = shown_before == before and shown_after == after
        """Whether events go on as they come."""

    def text(self, event: bytes) -> bytes | None:
        """The text of one event, as JSON spells it; None: the event has not this frame."""
        text = event.removeprefix(self.before).removesuffix(self.after)
        if len(text) + self.around != len(event) or _LINE_FEED in text:
            return None
        if (_QUOTE in text or _BACKSLASH in text) and not _TEXTS.fullmatch(text):
            return None
        return text

    def end(self, block: bytes, start: int) -> int:
        """Where a run of events of this frame may end that begins at `start`; 0: none begins there."""
        if not block.startswith(self.before, start):
            return 0
        last = block.rfind(self.after, start + len(self.before))
        return last + len(self.after) if last >= 0 else 0

    def texts(self, run: bytes) -> list[bytes] | None:
        """The texts of one or more events; None: not all of them have this frame."""
        before, after = self.before, self.after
        start, end = len(before), len(_BLANK) - len(after)
        texts = [event[start:end] for event in run.split(b"\n")[:-1:2]]
        if before + self.joint.join(texts) + after != run:
            return None
        lines = b"\n".join(texts)
        if (_QUOTE in lines or _BACKSLASH in lines) and not _TEXTS.fullmatch(lines):
            return None
        return texts

    def shown(self, texts: list[bytes]) -> bytes:
        """The events of these texts as they go on."""
        return self.shown_before + self.shown_joint.join(texts) + self.shown_after


def learn(event: bytes, shown: bytes, text: str) -> Frame | None:
    """The frame of an event that is shown as `shown` and has one text; None where it cannot be told."""
    if not event.startswith(b"data: ") or not event.endswith(b"\n\n") or event.count(b"\n") != 2:
        return None
    place = text_place(event, text)
    if place is None:
        return None
    start, end = place
    before, after = event[:start], event[end:]
    if shown.startswith(before):  # what was changed stands behind the text
        shown_before, shown_after = before, shown[end:]
    elif shown.endswith(after):
        shown_before, shown_after = shown[: start + len(shown) - len(event)], after
    elif (other := text_place(shown, text)) is not None:
        shown_before, shown_after = shown[: other[0]], shown[other[1] :]
    else:
        return None
    return Frame(before, after, shown_before, shown_after)
