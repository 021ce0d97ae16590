"""An assistant's message cut where reasoning stands in it."""

from collections.abc import Sequence

import msgspec

from onward.core.request import ContentPart, TextPart, Thought

Content = str | list[ContentPart] | None


class Stretch(msgspec.Struct, frozen=True):
    """Thoughts, and what was said behind them before the next ones: text, then calls."""

    thoughts: list[Thought]
    content: Content
    calls: slice
    """Which of the message's."""

    @property
    def reasoning(self) -> str | None:
        """All readable text of the thoughts; None: there are no such."""
        readable = [thought.text for thought in self.thoughts if thought.sealed is None]
        return "".join(readable) if readable else None


def stretches(content: Content, calls: int, thoughts: Sequence[Thought]) -> list[Stretch]:
    """A message of this content and so many calls, in the order in which it was made: `thoughts` tell it.

    At least one, and none but the last without text and calls. A place behind the message's end, which a
    caller that shortened it may send, is its end.
    """
    size = text_size(content)
    made: list[Stretch] = []
    waiting: list[Thought] = []
    said = called = 0
    for thought in thoughts:
        to, last = min(max(thought.text_before, said), size), min(max(thought.calls_before, called), calls)
        if (to, last) != (said, called):
            made.append(Stretch(waiting, _between(content, said, to), slice(called, last)))
            waiting = []
            said, called = to, last
        waiting.append(thought)
    rest = _between(content, said, None) if said else content
    made.append(Stretch(waiting, rest, slice(called, calls)))
    return made


def text_of(content: Content) -> str:
    """A message's text."""
    if isinstance(content, list):
        return "".join([part.text for part in content if isinstance(part, TextPart)])
    return content or ""


def text_size(content: Content) -> int:
    """Its code points."""
    return len(text_of(content))


def _between(content: Content, start: int, end: int | None) -> Content:
    """The content from one code point of its text to another (None: to its end)."""
    if not isinstance(content, list):
        return content and content[start:end]
    found: list[ContentPart] = []
    place = 0
    for part in content:
        if not isinstance(part, TextPart):
            if place >= start and (end is None or place < end):
                found.append(part)
            continue
        piece = part.text[max(start - place, 0) : None if end is None else max(end - place, 0)]
        if piece:
            found.append(TextPart(piece))
        place += len(part.text)
    return found
