"""The bytes around the text of a stream's events, as they come and as they go on."""

import re
from typing import Final

import msgspec

from onward.wire.passing.events import text_place

_TEXTS: Final = re.compile(rb'(?:[^"\\]++|\\[^\n])*+', re.DOTALL)
"""Bodies of JSON strings, one on each line."""


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

    def texts(self, block: bytes) -> list[bytes] | None:
        """The texts of events that all have the frame, as JSON spells them; None: not all have it."""
        if not block.startswith(self.before) or not block.endswith(self.after):
            return None
        inner = block[len(self.before) : -len(self.after)]
        if b"\n" not in inner:
            if (b'"' in inner or b"\\" in inner) and not _TEXTS.fullmatch(inner):
                return None
            return [inner] if len(block) >= len(self.before) + len(self.after) else None
        texts = inner.split(self.joint)
        lines = b"\n".join(texts)
        if lines.count(b"\n") != len(texts) - 1:
            return None
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
