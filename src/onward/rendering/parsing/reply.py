"""A reply: sampled tokens in, what a caller sees out, through the grammar of the model's family."""

from collections.abc import Collection, Sequence
from typing import Final

from onward.core.delta import ChoiceDelta, FinishReason, PlainReply
from onward.core.generate import EngineFinish, ScoredToken
from onward.core.ids import RandomIds
from onward.rendering.codecs.call import Mark, Tools
from onward.rendering.parsing.machine import Machine
from onward.rendering.parsing.order import parts
from onward.rendering.parsing.table import Table
from onward.rendering.renderer import ReplyOptions
from onward.rendering.token_path import TokenPath
from onward.rendering.tokenizer import Tokenizer

_IDS: Final = RandomIds()


class Reply:
    """One choice of a chat; a `renderer.ReplyParser`.

    Text, stop strings, IDs and log probabilities are `TokenPath`'s; what it gives goes through
    the machine, so a log probability may come before the text that it belongs to.
    """

    def __init__(
        self, table: Table, tokenizer: Tokenizer, own_end_ids: Collection[int], options: ReplyOptions
    ) -> None:
        """`own_end_ids`: those with which the model ends a reply; another one of the options'
        (the caller's) cuts it.
        """
        self._tokenizer: Final = tokenizer
        self._own_end_ids: Final = own_end_ids
        self._machine: Final = Machine(
            table,
            Tools(options.tools),
            _IDS,
            separate_reasoning=options.separate_reasoning,
            ordered=options.ordered,
        )
        if options.prefill:
            self._machine.begin(symbols(table, tokenizer, options.prefill))
        self._path: Final = TokenPath(
            tokenizer,
            index=options.index,
            stops=options.stops,
            end_token_ids=own_end_ids if options.end_token_ids is None else options.end_token_ids,
            want_entries=options.want_entries,
            want_ids=options.want_ids,
            marks=table.control,
        )
        self._given = 0

    @property
    def stopped(self) -> bool:
        return self._path.stopped

    @property
    def count(self) -> int:
        return self._path.count

    def push(self, token: ScoredToken) -> None:
        self._path.push(token)

    def take(self) -> ChoiceDelta:
        delta = self._path.take()
        if delta.text:
            self._read(delta.text)
        return self._filled(delta)

    def finish(self, why: EngineFinish | None) -> ChoiceDelta:
        path, machine = self._path, self._machine
        delta = path.finish(why)
        if delta.text:
            self._read(delta.text)
        end = path.end_token
        if end is not None:
            own = end in self._own_end_ids
        else:
            own = why is EngineFinish.STOP_TOKEN and not path.stopped
        machine.finish(None if end is None else self._tokenizer.spelling(end), cut=not own)
        if machine.broken:
            delta.plain = PlainReply("".join(machine.raw), delta.finish or FinishReason.STOP)
        if machine.count:
            delta.finish = FinishReason.TOOL_CALLS
        return self._filled(delta)

    def _read(self, text: str) -> None:
        """Give text to the machine, and the marks in it apart from it."""
        machine, spots, given = self._machine, self._path.spots, self._given
        self._given = end = given + len(text)
        if not spots or spots[0][0] >= end:
            machine.text(text)
            return
        at = 0
        used = 0
        for start, mark in spots:
            if start >= end:
                break
            if start - given > at:
                machine.text(text[at : start - given])
            machine.mark(mark)
            at = start - given + len(mark)
            used += 1
        del spots[:used]
        if at < len(text):
            machine.text(text[at:])

    def _filled(self, delta: ChoiceDelta) -> ChoiceDelta:
        machine = self._machine
        content = machine.content
        if machine.order:
            delta.parts = parts(
                delta.index,
                machine.order,
                reasoning=machine.reasoning,
                content=content,
                calls=machine.calls,
            )
        if content:
            delta.text = content[0] if len(content) == 1 else "".join(content)
            content.clear()
        else:
            delta.text = ""
        if machine.reasoning:
            delta.reasoning = "".join(machine.reasoning)
            machine.reasoning.clear()
        if machine.calls:
            delta.tool_calls = machine.calls[:]
            machine.calls.clear()
        return delta


def symbols(table: Table, tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Tokens as the machine reads them: marks, and the text between them."""
    found: list[str] = []
    run: list[int] = []
    for token in ids:
        mark = table.control.get(token)
        if mark is None:
            run.append(token)
            continue
        if run:
            found.append(tokenizer.decode(run))
            run.clear()
        found.append(Mark(mark))
    if run:
        found.append(tokenizer.decode(run))
    return found
