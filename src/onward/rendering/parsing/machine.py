"""The machine that reads a reply: marks and text in, however they are cut; parts out.

What is not decided yet is held: the beginning of a mark that is spelled, white space that may
belong to the framing, a label, a call until it closes. On an error all that is held comes out as
content, and so does everything after it. Nothing is lost then and nothing is given twice.
"""

from collections.abc import Callable, Sequence
from typing import Final

from onward.core.delta import ToolCallDelta
from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools
from onward.rendering.parsing.grammar import END, NOTHING, Edge, Says, Trim
from onward.rendering.parsing.order import Noted, Order
from onward.rendering.parsing.table import HOLDS, StateTable, Table

_LONGEST_OPENING: Final = 64


class Machine:
    """The state of one reply.

    `content`, `reasoning` and `calls` collect what is certain; the caller empties them. Where the order
    among them counts, so does `order`: which of them went on, and from which of its items.
    """

    def __init__(
        self,
        table: Table,
        tools: Tools,
        new_id: Callable[[], str],
        *,
        separate_reasoning: bool = True,
        ordered: bool = False,
    ) -> None:
        self._table: Final = table
        self._tools: Final = tools
        self._new_id: Final = new_id
        self._state: StateTable = table.start
        self.order: Final[Order] = []
        self.content: Final[list[str]] = Noted(self.order) if ordered else []
        reasoning: list[str] = Noted(self.order) if ordered else []
        self.reasoning: Final[list[str]] = reasoning if separate_reasoning else self.content
        self.calls: Final[list[ToolCallDelta]] = Noted(self.order) if ordered else []
        self.raw: Final[list[str]] = []
        """The whole reply as sampled, marks spelled out."""
        self.count = 0
        """Complete calls."""
        self.broken = False
        """The reply does not match the format: the rest of it is content."""
        self._pending = ""
        """Text whose meaning depends on what follows."""
        self._space = ""
        """White space behind it that a mark would make framing."""
        self._lead: Trim = NOTHING
        self._dropped = 0
        self._label: list[str] = []
        self._body: list[str] = []
        self._held: list[str] = []
        """All of a call or label, from its first mark on, as sampled."""

    def text(self, text: str) -> None:
        """Take text."""
        self.raw.append(text)
        if self.broken:
            self.content.append(text)
        else:
            self._scan(text)

    def mark(self, spelling: str) -> None:
        """Take a control token."""
        self.raw.append(spelling)
        if self.broken:
            self.content.append(spelling)
            return
        self._settle()
        if self.broken:
            self.content.append(spelling)
        else:
            self._cross(spelling)

    def begin(self, symbols: Sequence[str]) -> None:
        """Take what the prompt has begun of the reply: nothing of it comes out."""
        for symbol in symbols:
            if isinstance(symbol, Mark):
                self.mark(symbol)
            else:
                self.text(symbol)
        if self._state.says is not Says.SPACE:
            self._settle()
        if self.broken:
            self.broken, self._state, self._lead = False, self._table.start, NOTHING
        for taken in (self.content, self.reasoning, self.calls, self.raw, self._held, self.order):
            taken.clear()
        self._pending = self._space = ""
        self.count = 0

    def finish(self, end: str | None, *, cut: bool) -> None:
        """The reply is over: by the end token `end`, by the model (None), or `cut` from outside."""
        if self.broken:
            return
        if cut:
            self._cut()
            return
        self._settle()
        if self.broken:
            return
        edges = self._state.edges
        edge = edges.get(end) if end is not None else None
        edge = edge or edges.get(END)
        if edge is not None:
            self._leave(edge, "")
        elif not self._state.ends:
            self._break("")
        self._release_space()

    def _cut(self) -> None:
        state = self._state
        if state.says in HOLDS:
            self._body_text(self._pending)
            self._pending = ""
            edge = state.edges.get(END)
            if edge is None or not edge.close or edge.whole or not self._closed():
                self.content.extend(self._held)
            self._held.clear()
            return
        if state.says is Says.SPACE:
            self.content.extend(self._held)
            self._held.clear()
            if self._pending and (self._pending.strip() or state.holds or self._is_blank(state)):
                self.content.append(self._pending)
        else:
            self._plain(self._pending)
        self._pending = ""
        self._release_space()

    # Text.

    def _scan(self, text: str) -> None:
        text = self._pending + text
        self._pending = ""
        while text:
            state = self._state
            if state.says is Says.SPACE:
                text = self._scan_space(state, text)
                continue
            if state.marks is None:
                self._plain(text)
                return
            found = state.marks.search(text)
            if found is None:
                held = state.marks.dangling(text)
                if held:
                    self._pending = text[-held:]
                    text = text[:-held]
                self._plain(text)
                return
            self._plain(text[: found.start()])
            text = text[found.end() :]
            self._cross(found.group())
            if self.broken:
                self.content.append(text)
                return

    def _scan_space(self, state: StateTable, text: str) -> str:
        """Read text where white space is expected; what is left to be read."""
        body = text.lstrip()
        if not body:
            self._pending = text
            return ""
        if state.marks is not None:
            found = state.marks.match(body)
            if found is not None:
                self._pending = ""
                self._cross(found.group(), text[: len(text) - len(body)])
                rest = body[found.end() :]
                if self.broken:
                    self.content.append(rest)
                    return ""
                return rest
            if state.marks.begins(body):
                self._pending = text
                return ""
        if state.openings:
            into = self._opened(state, body)
            if into is None:
                self._pending = text
                return ""
            if into:
                self._enter(into, "")
                return text
        if state.otherwise is None:
            self._break(text)
            return ""
        self._enter(state.otherwise, "")
        return text

    @staticmethod
    def _opened(state: StateTable, body: str) -> str | None:
        """The state for a text with this beginning: "" for none, None while it is not certain."""
        compact = "".join(body[:_LONGEST_OPENING].split())
        for opening, into in state.openings.items():
            if compact.startswith(opening):
                return into
        if len(body) < _LONGEST_OPENING and any(opening.startswith(compact) for opening in state.openings):
            return None
        return ""

    def _plain(self, text: str) -> None:
        """Take text that certainly belongs to the state and holds no mark."""
        state = self._state
        if state.says in HOLDS:
            self._body_text(text)
            return
        if self._lead.most and text:
            text = self._without_lead(text)
        if not text:
            return
        out = self.content if state.says is Says.CONTENT else self.reasoning
        if state.trail:
            if self._space:
                text = self._space + text
                self._space = ""
            if text[-1] in state.trims:
                kept = max(len(text.rstrip(state.trims)), len(text) - state.trail)
                self._space = text[kept:]
                text = text[:kept]
                if not text:
                    return
        out.append(text)

    def _without_lead(self, text: str) -> str:
        most = self._lead.most - self._dropped
        rest = text.lstrip(self._lead.letters)
        dropped = len(text) - len(rest)
        if dropped > most:
            rest, dropped = text[most:], most
        self._dropped += dropped
        if rest or dropped == most:
            self._lead = NOTHING
        return rest

    def _body_text(self, text: str) -> None:
        if text:
            self._body.append(text)
            self._held.append(text)

    def _settle(self) -> None:
        """What is pending will not become a mark that is spelled: a token or the end follows."""
        text, self._pending = self._pending, ""
        state = self._state
        if not text:
            return
        if state.says is not Says.SPACE:
            self._plain(text)
        elif not text.strip():
            # White space: framing if a mark follows, and otherwise for `finish` to decide.
            self._space = text
        elif state.otherwise is None:
            self._break(text)
        else:
            self._enter(state.otherwise, "")
            self._plain(text)

    def _release_space(self) -> None:
        """The end: white space was no framing of a mark."""
        text, self._space = self._space, ""
        if not text:
            return
        if self._state.says is Says.REASONING:
            self.reasoning.append(text)
        elif self._state.says is Says.CONTENT or self._is_blank(self._state):
            self.content.append(text)

    def _is_blank(self, state: StateTable) -> bool:
        """Whether the reply was white space so far, which is all that it says then."""
        return state is self._table.start and not self.count

    # Marks.

    def _cross(self, spelling: str, space: str = "") -> None:
        """Go over the edge of a mark."""
        state = self._state
        if space:
            self._space = space
        if spelling in state.keeps:
            if state.says not in HOLDS:
                self._plain(spelling)
                return
            self._body.append(Mark(spelling))
            self._held.append(spelling)
            return
        edge = state.edges.get(spelling)
        if edge is None:
            self._break(spelling)
        else:
            self._leave(edge, spelling)

    def _leave(self, edge: Edge, spelling: str) -> None:
        state = self._state
        if edge.close and not self._closed():
            if not edge.lenient:
                self._break(spelling)
                return
            self.content.extend(self._held)
        into = edge.to
        if not isinstance(into, str):
            try:
                into = into(_joined(self._body))
            except CodecError:
                self._break(spelling)
                return
        space = self._space
        if space and state.says is not Says.SPACE:
            trim = edge.trail
            kept = max(len(space.rstrip(trim.letters)), len(space) - trim.most) if trim.most else len(space)
            if kept:
                (self.content if state.says is Says.CONTENT else self.reasoning).append(space[:kept])
                space = space[kept:]
        self._space = ""
        if edge.close:
            self._held.clear()
            self._body.clear()
        closed = edge.close and self._table.states[into].says is Says.SPACE
        self._enter(into, "" if closed else space + spelling)
        self._lead, self._dropped = edge.lead, 0

    def _enter(self, name: str, opening: str) -> None:
        before, self._state = self._state, self._table.states[name]
        if self._state.holds:
            if not before.holds:
                self._held.clear()
                self._body.clear()
            self._label = list(self._body)
            self._body.clear()
            self._held.append(opening)
        else:
            self._held.clear()
            self._body.clear()

    def _closed(self) -> bool:
        """Let the codec read what is held; whether it could."""
        body = Body(_joined(self._body), _joined(self._label), self._state.name)
        try:
            calls = self._table.codec(body, self._tools)
        except CodecError:
            return False
        for call in calls:
            self._emit(call)
        return True

    def _emit(self, call: Call) -> None:
        identity = call.id if call.id is not None else f"call_{self._new_id()}"
        self.calls.append(ToolCallDelta(self.count, identity, call.name, call.arguments))
        self.count += 1

    def _break(self, text: str) -> None:
        """The reply is not of the format: what is held, then `text`, is content."""
        self.broken = True
        for held in (*self._held, self._space, self._pending, text):
            if held:
                self.content.append(held)
        self._held.clear()
        self._space = self._pending = ""


def _joined(pieces: Sequence[str]) -> list[str]:
    """Texts that follow each other as one."""
    joined: list[str] = []
    run: list[str] = []
    for piece in pieces:
        if isinstance(piece, Mark):
            if run:
                joined.append("".join(run))
                run.clear()
            joined.append(piece)
        else:
            run.append(piece)
    if run:
        joined.append("".join(run))
    return joined
