"""A provider's answer as deltas, whichever API it speaks."""

from abc import abstractmethod

from onward.core.delta import ChoiceDelta
from onward.core.usage import Usage
from onward.wire.passing.events import NoEvent
from onward.wire.passing.reader import StreamReader, lines_of


class DeltaReader(StreamReader):
    """Reads one answer. Feed it a stream as it comes, or the whole body at once.

    However a stream was cut, its deltas are the same. The last one, with the reason of the end, comes out of
    `close` alone, when `usage` is known.
    """

    __slots__ = ()

    @property
    def prompt_usage(self) -> Usage | None:
        """What was reported of the prompt before the output; None: nothing that can be believed."""
        return None

    def feed(self, data: bytes) -> list[ChoiceDelta]:
        """The deltas that `data` completes."""
        deltas: list[ChoiceDelta] = []
        for event in self.events(data):
            self._event(event, deltas)
        return deltas

    def close(self) -> list[ChoiceDelta]:
        """The last deltas, now that the provider's body has ended well. Sets `failure` where the stream had
        not come to its end.
        """
        deltas: list[ChoiceDelta] = []
        for event in self.last_event():
            self._event(event, deltas)
        if self.failure is None:
            self._end(deltas)
        return [] if self.failure is not None else deltas

    @abstractmethod
    def whole(self, body: bytes) -> list[ChoiceDelta]:
        """The deltas of an unstreamed answer. Raises `Failure` for what is none."""

    @abstractmethod
    def _data(self, data: bytes, name: bytes, deltas: list[ChoiceDelta]) -> None:
        """Read one event's data. Raises `NoEvent`."""

    @abstractmethod
    def _end(self, deltas: list[ChoiceDelta]) -> None:
        """The stream has ended: add what was held back, or say that it broke off."""

    def _event(self, event: bytes, deltas: list[ChoiceDelta]) -> None:
        try:
            lines = lines_of(event)
            if lines.data:
                self._data(lines.data, lines.name, deltas)
        except NoEvent:
            self.no_event(event)
