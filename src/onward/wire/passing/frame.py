"""The bytes around the text of a stream's events, as they come and as they go on."""

import re
from typing import Final

import msgspec

from onward.wire.passing.events import text_place

_TEXTS: Final = re.compile(rb'(?:[^"\\]++|\\[^\n])*+', re.DOTALL)
"""Bodies of JSON strings, one on each line."""
_BLANK: Final = b"\n\n"


class Frame(msgspec.Struct, frozen=True):
    """What every event of a stream has alike, for a while.

    An event that has these bytes before and after one JSON string is the event that the frame was
    learnt from with another text: nothing else about it can be different.
    """

    before: bytes
    after: bytes
    joint: bytes
    """The end of an event and the beginning of the next."""
    shown_before: bytes
    shown_after: bytes
    shown_joint: bytes
    same: bool
    """Whether events go on as they come."""

    def text(self, event: bytes) -> bytes | None:
        """The text of one event, as JSON spells it; None: the event has not this frame."""
        start, end = len(self.before), len(event) - len(self.after)
        if not event.startswith(self.before) or not event.endswith(self.after):
            return None
        if end < start or event.find(b"\n", start, end) >= 0:
            return None
        text = event[start:end]
        if (b'"' in text or b"\\" in text) and not _TEXTS.fullmatch(text):
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
        if b"%b%b%b" % (before, self.joint.join(texts), after) != run:
            return None
        lines = b"\n".join(texts)
        if (b'"' in lines or b"\\" in lines) and not _TEXTS.fullmatch(lines):
            return None
        return texts

    def shown(self, texts: list[bytes]) -> bytes:
        """The events of these texts as they go on."""
        return b"%b%b%b" % (self.shown_before, self.shown_joint.join(texts), self.shown_after)


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
    return Frame(
        before,
        after,
        after + before,
        shown_before,
        shown_after,
        shown_after + shown_before,
        same=shown == event,
    )
