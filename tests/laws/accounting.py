"""Where every letter of a reply went: given out, or one of the few things that are dropped.

A reply is cut into its marks and the text between. A mark may be dropped, and white space beside
one. All between a mark that leads to a label and one that ends it may be dropped, and between those
of a call if calls came out, as long as no other control token stands there. All else must come out
once, in its order.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from onward.core.delta import ChoiceDelta, FinishReason, fold, settled
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.codecs.call import Mark
from onward.rendering.families.native import NativeRenderer
from onward.rendering.parsing.grammar import Edge, Says
from onward.rendering.renderer import ReplyOptions
from onward.rendering.token_path import TokenPath

HOLDS = {Says.LABEL, Says.CALL}
EDGE = ""
"""What stands before and behind a reply."""


class Around(msgspec.Struct, frozen=True):
    """Marks that may stand around text which does not come out as text."""

    before: frozenset[str]
    kept: frozenset[str]
    """Those that may stand within."""
    behind: frozenset[str]


def deltas(
    renderer: NativeRenderer, ids: Sequence[int], cuts: Sequence[int], **options: Any
) -> list[ChoiceDelta]:
    """A reply in steps of these sizes, and all the rest in one."""
    reply = renderer.reply(ReplyOptions(**options))
    found: list[ChoiceDelta] = []
    at = 0
    for size in cuts:
        for token in ids[at : at + size]:
            reply.push(ScoredToken(token, -0.5, ((token, -0.5),)))
        at += size
        found.append(reply.take())
        if at >= len(ids):
            break
    for token in ids[at:]:
        reply.push(ScoredToken(token, -0.5, ((token, -0.5),)))
    return [*found, reply.finish(EngineFinish.LENGTH)]


def plain(choice: ChoiceDelta) -> tuple[Any, ...]:
    """A choice without the IDs of its calls, which are new each time."""
    calls = [(call.index, call.name, call.arguments) for call in choice.tool_calls]
    said = (choice.text, choice.reasoning, calls, choice.finish, choice.plain)
    return (*said, choice.token_ids, choice.entries)


def check_reply(
    renderer: NativeRenderer, ids: Sequence[int], cuts: Sequence[int], **options: Any
) -> ChoiceDelta:
    """TH-11 for one reply: streamed is unstreamed, and every letter is accounted for."""
    wanted = {"want_ids": True, "want_entries": True, **options}
    pieces = deltas(renderer, ids, cuts, **wanted)
    streamed = fold(pieces)[0]
    whole = fold(deltas(renderer, ids, (), **wanted))[0]
    assert plain(streamed) == plain(whole), "streamed and unstreamed differ"
    assert all(piece.finish is None and piece.plain is None for piece in pieces[:-1])
    assert len(whole.token_ids) == len(whole.entries) <= len(ids)
    joined = fold(deltas(renderer, ids, (1,) * len(ids), **options, separate_reasoning=False))[0]
    assert not joined.reasoning
    assert len(joined.text) == len(whole.text) + len(whole.reasoning)
    assert [call.arguments for call in joined.tool_calls] == [call.arguments for call in whole.tool_calls]
    raw, cut = symbols(renderer, ids, options.get("stops", ()))
    assert accounts(renderer, cut, joined), "a letter is lost or doubled"
    said = settled(whole)
    if whole.plain is None:
        assert (said.finish is FinishReason.TOOL_CALLS) == bool(said.tool_calls)
    else:
        assert (said.text, said.reasoning, said.tool_calls) == (raw, "", [])
        assert said.finish is not FinishReason.TOOL_CALLS
    return whole


def accounts(renderer: NativeRenderer, cut: Sequence[str], choice: ChoiceDelta) -> bool:
    """Whether what came out is `cut` (text and marks in turn, text first) but for what is dropped."""
    arounds = _around(renderer)[: 1 + bool(choice.tool_calls)]
    said, places = choice.text, {0}
    # How much came out before a label or a call that goes on.
    within = [places if EDGE in around.before else set[int]() for around in arounds]
    for at, symbol in enumerate(cut):
        is_text = at % 2 == 0
        ended: set[int] = set()
        for number, around in enumerate(arounds):
            if not is_text and symbol in around.behind:
                ended |= within[number]
            if not is_text and isinstance(symbol, Mark) and symbol not in around.kept:
                within[number] = set()
        if not symbol:
            continue
        dropped = set[int]() if is_text and symbol.strip() else places
        forms = _forms(symbol) if is_text else {symbol}
        given = {place + len(form) for place in places for form in forms if said.startswith(form, place)}
        places = dropped | given if is_text else dropped | given | ended
        for number, around in enumerate(arounds):
            if not is_text and symbol in around.before:
                within[number] = within[number] | places
    closed = [some for some, around in zip(within, arounds, strict=True) if EDGE in around.behind]
    return len(said) in places.union(*closed)


def _forms(text: str) -> set[str]:
    """A text without some of the white space around it."""
    body = text.strip()
    if not body:
        return {text[:size] for size in range(len(text) + 1)} | {text[size:] for size in range(len(text))}
    left, right = len(text) - len(text.lstrip()), len(text.rstrip())
    return {text[start:end] for start in range(left + 1) for end in range(right, len(text) + 1)}


def symbols(renderer: NativeRenderer, ids: Sequence[int], stops: Sequence[str]) -> tuple[str, list[str]]:
    """The text of a reply, and the same as text and marks in turn, text first and last."""
    table, spelled = renderer._table, _spelled(renderer)
    path = TokenPath(
        renderer.tokenizer,
        index=0,
        stops=stops,
        end_token_ids=renderer._stops,
        want_entries=False,
        want_ids=False,
        marks=table.control,
    )
    for token in ids:
        path.push(ScoredToken(token))
    text = path.finish(None).text
    found: list[str] = []
    at = 0
    for start, mark in [*path.spots, (len(text), "")]:
        pieces = spelled.split(text[at:start]) if spelled is not None else [text[at:start]]
        found += [*pieces, Mark(mark)]
        at = start + len(mark)
    return text, found[:-1]


@cache
def _spelled(renderer: NativeRenderer) -> re.Pattern[str] | None:
    """The marks that are looked for in text."""
    table, grammar = renderer._table, renderer.family.grammar
    states = grammar.states.values()
    marks = {mark for state in states for mark in (*state.edges, *state.keeps) if mark}
    words = sorted(marks - set(table.marks.values()), key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, words)) + ")") if words else None


@cache
def _around(renderer: NativeRenderer) -> tuple[Around, Around]:
    """Of labels, and of calls."""
    grammar = renderer.family.grammar

    def leads(edge: Edge, says: Says) -> bool:
        return not isinstance(edge.to, str) or grammar.states[edge.to].says is says

    found: list[Around] = []
    for says in (Says.LABEL, Says.CALL):
        states = [state for state in grammar.states.values() if state.says is says]
        before = {
            mark
            for state in grammar.states.values()
            for mark, edge in state.edges.items()
            if states and leads(edge, says)
        }
        behind = {mark for state in states for mark in state.edges}
        kept = {mark for state in states for mark in state.keeps}
        begins = {EDGE} if states else set[str]()
        found.append(Around(frozenset(before | begins), frozenset(kept), frozenset(behind)))
    return found[0], found[1]
