"""A provider's answer as deltas, whichever API it speaks."""

from abc import abstractmethod

from msgspec.structs import replace

from onward.core.delta import ChoiceDelta
from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent
from onward.wire.passing.reader import StreamReader, lines_of
from onward.wire.translating.surrogates import Halves, may_hold_halves


class DeltaReader(StreamReader):
    """Reads one answer. Feed it a stream as it comes, or the whole body at once.

    However a stream was cut, its deltas are the same. The last one, with the reason of the end, comes out of
    `close` alone, when `usage` is known.
    """

    __slots__ = ("_called", "_halves", "_said")

    def __init__(self) -> None:
        super().__init__()
        self._halves = Halves()
        self._said = 0
        """Code points of text so far."""
        self._called = 0
        """Calls so far."""

    @property
    def prompt_usage(self) -> Usage | None:
        """What was reported of the prompt before the output; None: nothing that can be believed."""
        return None

    def feed(self, data: bytes) -> list[ChoiceDelta]:
        """The deltas that `data` completes."""
        deltas: list[ChoiceDelta] = []
        for event in self.events(data):
            deltas += self._event(event)
        return deltas

    def close(self) -> list[ChoiceDelta]:
        """The last deltas, now that the provider's body has ended well. Sets `failure` where the stream had
        not come to its end.
        """
        deltas: list[ChoiceDelta] = []
        for event in self.last_event():
            deltas += self._event(event)
        if self.failure is None:
            last: list[ChoiceDelta] = []
            self._end(last)
            deltas += self._placed(self._halves.mend(last) if self._halves.waits else last)
        return [] if self.failure is not None else deltas

    def whole(self, body: bytes) -> list[ChoiceDelta]:
        """The deltas of an unstreamed answer. Raises `Failure` for what is none."""
        deltas = self._whole(body)
        return self._placed(self._halves.mend(deltas) if may_hold_halves(body) else deltas)

    @abstractmethod
    def _whole(self, body: bytes) -> list[ChoiceDelta]:
        """`whole`, as it was written."""

    @abstractmethod
    def _data(self, data: bytes, name: bytes, deltas: list[ChoiceDelta]) -> None:
        """Read one event's data. Raises `NoEvent`."""

    @abstractmethod
    def _end(self, deltas: list[ChoiceDelta]) -> None:
        """The stream has ended: add what was held back, or say that it broke off."""

    def _event(self, event: bytes) -> list[ChoiceDelta]:
        deltas: list[ChoiceDelta] = []
        try:
            lines = lines_of(event)
            if lines.data:
                self._heard = True
                self._data(lines.data, lines.name, deltas)
        except NoEvent:
            self.no_event(event)
        mends = may_hold_halves(event) or self._halves.waits
        return self._placed(self._halves.mend(deltas) if mends else deltas)

    def _placed(self, deltas: list[ChoiceDelta]) -> list[ChoiceDelta]:
        """Deltas whose thoughts know what stands in front of them."""
        for delta in deltas:
            if delta.thoughts:
                delta.thoughts = [
                    replace(thought, text_before=self._said, calls_before=self._called)
                    for thought in delta.thoughts
                ]
            self._said += len(delta.text)
            for call in delta.tool_calls:
                self._called = max(self._called, call.index + 1)
        return deltas
