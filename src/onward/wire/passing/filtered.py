"""A provider's answer as it passes, held against the patterns of its model's output.

Events wait, whole, until all their text is clear; those of other choices do not wait for them. A choice in
which something is found ends in front of the event that holds the beginning of it; the others go on. All
text that a provider adds to an answer counts, in fields that we know or not.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from onward.core.content_filter import ContentFilter, Found, HeldText, output_refused
from onward.core.failure import Failure
from onward.core.json_text import JSON_FIELDS
from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent, with_data
from onward.wire.passing.kinds import Watching
from onward.wire.passing.reader import lines_of
from onward.wire.passing.shapes import Part, Path, Shape
from onward.wire.passing.split import event_end

_encode: Final = msgspec.json.Encoder().encode


class _Event(msgspec.Struct):
    """An event that waits for some of its choices."""

    raw: bytes
    fields: dict[str, Any]
    waits_for: set[int]
    brings: bool
    """Whether a caller sees it as output."""
    dropped: set[int] = msgspec.field(default_factory=set)


class _Choice:
    """One choice of the stream."""

    def __init__(self) -> None:
        self.texts: dict[Path, HeldText] = {}
        self.going_on: list[HeldText] = []
        self.held: list[tuple[_Event, list[tuple[HeldText, int]]]] = []
        self.shown: dict[str, Any] | None = None
        self.finished = False
        self.found: Found | None = None

    def push(self, event: _Event, part: Part, content: ContentFilter) -> None:
        texts = [self._text(path, content) for path, _ in part.texts]
        if texts:
            for before in self.going_on:
                if before not in texts:
                    self._finish(before)
            self.going_on = texts
        needs: list[tuple[HeldText, int]] = []
        for text, (_, piece) in zip(texts, part.texts, strict=True):
            text.push(piece)
            self.found = self.found or text.found
            needs.append((text, text.length))
        self.held.append((event, needs))
        if part.finished:
            self.finish()

    def finish(self) -> None:
        self.finished = True
        for text in self.texts.values():
            self._finish(text)

    def _finish(self, text: HeldText) -> None:
        text.finish()
        self.found = self.found or text.found

    def clear(self) -> Iterator[_Event]:
        """The events at the front that need not wait for this choice any more."""
        while self.held and all(text.clear >= end for text, end in self.held[0][1]):
            yield self.held.pop(0)[0]

    def _text(self, path: Path, content: ContentFilter) -> HeldText:
        text = self.texts.get(path)
        if text is None:
            text = self.texts[path] = HeldText(content.output, json=path[-1] in JSON_FIELDS)
        return text


class FilteredWatch:
    """A `kinds.Watching` around another one. What that one lets pass goes on once it is clear."""

    def __init__(
        self,
        watch: Watching,
        content: ContentFilter,
        shape: Shape,
        *,
        choices: int,
        found: Callable[[Found], None],
    ) -> None:
        """`choices`: how many the stream will have. `found` is told of what is found, for the log."""
        self._watch = watch
        self._content = content
        self._shape = shape
        self._count = choices
        self._tell = found
        self._choices: dict[int, _Choice] = {}
        self._blocked: set[int] = set()
        self._waiting: list[bytes] = []
        """Events without output that come before the first of it: until that one is clear, the answer can
        still be a failure."""
        self._began = False
        """Whether output was passed on."""
        self.failure_text = ""

    @property
    def done(self) -> bool:
        """Whether nothing more is read: the rest is not wanted where every choice has ended."""
        return self._watch.done or self._over

    @property
    def failure(self) -> Failure | None:
        return None if self._over else self._watch.failure

    @property
    def usage(self) -> Usage | None:
        return self._watch.usage

    @property
    def prompt_usage(self) -> Usage | None:
        return self._watch.prompt_usage

    @property
    def completion_tokens(self) -> int:
        return self._watch.completion_tokens

    @property
    def finish(self) -> dict[int, str]:
        """Why each choice finished, by its index."""
        return {**self._watch.finish, **dict.fromkeys(self._blocked, "content_filter")}

    def heard(self) -> bool:
        """See `Reading.heard`."""
        return self._watch.heard()

    def feed(self, data: bytes) -> bytes:
        """The events that may go on. Raises `Failure` (CONTENT_BLOCKED_OUTPUT) where there is no output in
        front of what is blocked.
        """
        if self._over:
            return b""
        events = self._watch.feed(data)
        self.failure_text = self._watch.failure_text
        return self._passed(events) if events else b""

    def close(self) -> bytes:
        """As `feed`, now that the provider's body has ended."""
        if self._over:
            return b""
        events = self._watch.close()
        self.failure_text = self._watch.failure_text
        out = [self._passed(events)] if events else []
        if self._watch.failure is None:
            for index, choice in self._choices.items():
                if index not in self._blocked:
                    choice.finish()
                    self._let_go(index, choice, out)
        return b"".join(out)

    def end(self, usage: Usage) -> bytes:
        """The last bytes of a whole stream."""
        ours = self._shape.end(usage, ended=self._watch.done) if self._over else b""
        return ours + self._watch.end(usage)

    @property
    def _over(self) -> bool:
        """Whether every choice has ended, and one of them here."""
        if not self._blocked:
            return False
        ended = sum(one.finished or index in self._blocked for index, one in self._choices.items())
        return ended >= self._count

    def _passed(self, events: bytes) -> bytes:
        out: list[bytes] = []
        start = 0
        while start < len(events) and not self._over:
            end = event_end(events, start)
            self._event(events[start:end], out)
            start = end
        return b"".join(out)

    def _event(self, raw: bytes, out: list[bytes]) -> None:
        fields = _fields(raw)
        parts = [] if fields is None else _by_choice(self._shape.parts(fields))
        live = [part for part in parts if part.index not in self._blocked]
        if fields is None or not parts:
            self._give(raw, out, brings=False)
            return
        if not live:
            return
        event = _Event(
            raw,
            fields,
            {part.index for part in live},
            brings=any(text for part in live for _, text in part.texts)
            or any(part.finished for part in live),
            dropped={part.index for part in parts} & self._blocked,
        )
        for part in live:
            choice = self._choices.setdefault(part.index, _Choice())
            choice.push(event, part, self._content)
        for part in live:
            self._let_go(part.index, self._choices[part.index], out)

    def _let_go(self, index: int, choice: _Choice, out: list[bytes]) -> None:
        for event in choice.clear():
            choice.shown = event.fields
            event.waits_for.discard(index)
            self._give_event(event, out)
        if choice.found is None or index in self._blocked:
            return
        self._tell(choice.found)
        self._blocked.add(index)
        if not self._began:
            raise output_refused()
        last = choice.held[0][0].fields if choice.held else choice.shown or {}
        for event, _ in choice.held:
            event.waits_for.discard(index)
            event.dropped.add(index)
            self._give_event(event, out)
        choice.held.clear()
        self._give(self._shape.closing(last, index, choice.shown), out, brings=True)

    def _give_event(self, event: _Event, out: list[bytes]) -> None:
        if event.waits_for:
            return
        if not event.dropped:
            self._give(event.raw, out, brings=event.brings)
        elif {part.index for part in self._shape.parts(event.fields)} - event.dropped:
            data = _encode(self._shape.without(event.fields, event.dropped))
            self._give(with_data(event.raw, data), out, brings=event.brings)

    def _give(self, event: bytes, out: list[bytes], *, brings: bool) -> None:
        self._began = self._began or brings
        if not self._began:
            self._waiting.append(event)
            return
        if self._waiting:
            out += self._waiting
            self._waiting.clear()
        out.append(event)


def _by_choice(parts: list[Part]) -> list[Part]:
    """One part for each choice, also where an event tells twice of one."""
    if len({part.index for part in parts}) == len(parts):
        return parts
    joined: dict[int, Part] = {}
    for part in parts:
        known = joined.get(part.index)
        if known is not None:
            part = Part(part.index, known.texts + part.texts, finished=known.finished or part.finished)  # noqa: PLW2901
        joined[part.index] = part
    return list(joined.values())


def check_whole(content: ContentFilter, shape: Shape, body: bytes) -> Found | None:
    """What blocks an unstreamed answer."""
    answer = _decoded(body)
    for text in shape.whole(answer or {}):
        found = content.output_blocked(text)
        if found is not None:
            return found
    return None


def _fields(event: bytes) -> dict[str, Any] | None:
    try:
        data = lines_of(event).data
    except NoEvent:
        return None
    return _decoded(data) if data else None


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, Any]", value) if type(value) is dict else None
