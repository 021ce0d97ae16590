"""The answer of a provider that speaks another API than the caller: deltas, encoded as the dialect has it."""

from onward.core.delta import ChoiceDelta
from onward.core.filtered_deltas import FilteredDeltas
from onward.core.usage import Usage
from onward.http.event_stream import Out
from onward.http.provider_answer import ProviderAnswer
from onward.http.record import Record
from onward.serve.model import ProxiedModel
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.messages import MessagesEncoder
from onward.wire.translating.filtered import FilteredReader
from onward.wire.translating.reading import DeltaReader


class TranslatedAnswer(ProviderAnswer):
    """One try at a provider. An unstreamed answer is asked for whole, and read by the same reader."""

    def __init__(
        self,
        deployment: ProxiedModel,
        *,
        path: str,
        body: bytes,
        reader: DeltaReader,
        encoder: ChatEncoder | CompletionEncoder | MessagesEncoder,
        usage: Usage,
        record: Record,
        output: FilteredDeltas | None = None,
    ) -> None:
        """`body`: of the translated request; `usage`: what is assumed of it; `output`: what holds its answer
        against the patterns of the model.
        """
        super().__init__(deployment, record, usage)
        self._path = path
        self._body = body
        self._reader = reader
        self._encoder = encoder
        self._output = output

    async def stream(self, out: Out) -> None:
        """The events of its output, each sent as it comes. Cancelling it tells the provider to stop."""
        encoder, usage = self._encoder, self.usage

        def encoded(deltas: list[ChoiceDelta]) -> bytes:
            self._note(deltas)
            return b"".join([encoder.events(delta, usage) for delta in deltas])

        reader = self._reader if self._output is None else FilteredReader(self._reader, self._output)
        await self._streamed(await self._open(self._path, self._body, []), reader, encoded, out)

    def end(self) -> bytes:
        """What ends a stream that is whole."""
        return self._encoder.end(self.usage)

    async def whole(self) -> bytes:
        """The body of the unstreamed answer."""
        reader = self._reader
        deltas = await self._read(await self._open(self._path, self._body, []), reader.whole)
        self.usage.completion_tokens = reader.completion_tokens
        self._reported(reader.usage)
        if self._output is not None:
            deltas = [passed for delta in deltas for passed in self._output.push(delta)]
        self._piece()
        self._note(deltas)
        return self._encoder.whole(deltas, self.usage)

    def _note(self, deltas: list[ChoiceDelta]) -> None:
        self._record.finish.extend(one.finish.value for one in deltas if one.finish is not None)
