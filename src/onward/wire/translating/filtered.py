"""A provider's stream as deltas, held against the patterns of its model's output."""

from onward.core.delta import ChoiceDelta
from onward.core.failure import Failure
from onward.core.filtered_deltas import FilteredDeltas
from onward.core.usage import Usage
from onward.wire.translating.reading import DeltaReader


class FilteredReader:
    """A reader of a stream whose deltas are those that may go on. A choice that is blocked ends the answer,
    and well.
    """

    def __init__(self, reader: DeltaReader, output: FilteredDeltas) -> None:
        self._reader = reader
        self._output = output
        self.failure_text = ""
        """See `StreamReader`."""

    @property
    def done(self) -> bool:
        """Whether nothing more is read."""
        return self._reader.done or bool(self._output.blocked)

    @property
    def failure(self) -> Failure | None:
        """See `StreamReader`."""
        self.failure_text = self._reader.failure_text
        return None if self._output.blocked else self._reader.failure

    @property
    def usage(self) -> Usage | None:
        """What was reported; of an answer that was not read to its end nothing."""
        return self._reader.usage

    @property
    def prompt_usage(self) -> Usage | None:
        """See `DeltaReader`."""
        return self._reader.prompt_usage

    @property
    def completion_tokens(self) -> int:
        """See `StreamReader`."""
        return self._reader.completion_tokens

    def heard(self) -> bool:
        """See `StreamReader`."""
        return self._reader.heard()

    def feed(self, data: bytes) -> list[ChoiceDelta]:
        """The deltas that may go on now. Raises `Failure` (CONTENT_BLOCKED_OUTPUT)."""
        return self._passed(self._reader.feed(data))

    def close(self) -> list[ChoiceDelta]:
        """The last ones. Raises `Failure` (CONTENT_BLOCKED_OUTPUT)."""
        return [] if self._output.blocked else self._passed(self._reader.close())

    def _passed(self, deltas: list[ChoiceDelta]) -> list[ChoiceDelta]:
        return [passed for delta in deltas for passed in self._output.push(delta)]
