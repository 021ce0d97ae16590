"""The machine by itself: what is held, what is framing, what an error lets out."""

from collections.abc import Sequence

import pytest

from onward.core.delta import fold
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools
from onward.rendering.parsing.grammar import END, NEWLINE, NEWLINES, Edge, Grammar, Says, State
from onward.rendering.parsing.machine import Machine
from onward.rendering.parsing.reply import Reply
from onward.rendering.parsing.table import Table, TextMarks
from onward.rendering.renderer import ReplyOptions
from tests.unit.rendering.tiny import END as IM_END
from tests.unit.rendering.tiny import byte_level

TINY = byte_level()
NO_TOOLS = Tools()


def codec(body: Body, _: Tools) -> list[Call]:
    """A call is a name, or several behind each other."""
    if "!" in body.text:
        raise CodecError("loud")
    return [Call(name, "{}") for name in body.text.split()]


def channel(label: Sequence[str]) -> str:
    states = {"think": "reasoning", "say": "content", "do": "call"}
    found = states.get("".join(label))
    if found is None:
        raise CodecError("no such channel")
    return found


CALLS = Grammar(
    start="start",
    codec=codec,
    states={
        "start": State(says=Says.SPACE, edges={"[c]": Edge(to="call")}, otherwise="content", ends=True),
        "content": State(
            says=Says.CONTENT,
            edges={
                "[c]": Edge(to="call", trail=NEWLINE),
                "[t]": Edge(to="reasoning", trail=NEWLINES, lead=NEWLINE),
            },
            ends=True,
        ),
        "reasoning": State(
            says=Says.REASONING, edges={"[/t]": Edge(to="content", trail=NEWLINES, lead=NEWLINES)}
        ),
        "call": State(says=Says.CALL, edges={"[/c]": Edge(to="start", close=True)}),
    },
)
CHANNELS = Grammar(
    start="role",
    codec=codec,
    states={
        "role": State(says=Says.LABEL, edges={"[m]": Edge(to=channel)}),
        "content": State(says=Says.CONTENT, edges={"[e]": Edge(to="between")}),
        "reasoning": State(says=Says.REASONING, edges={"[e]": Edge(to="between")}),
        "call": State(
            says=Says.CALL, edges={"[x]": Edge(to="between", close=True), END: Edge(to="between", close=True)}
        ),
        "between": State(says=Says.SPACE, edges={"[s]": Edge(to="role")}, ends=True),
    },
)
BARE = Grammar(
    start="start",
    codec=codec,
    states={
        "start": State(says=Says.SPACE, openings={'{"name"': "bare"}, otherwise="content", ends=True),
        "content": State(says=Says.CONTENT, ends=True),
        "bare": State(says=Says.CALL, edges={END: Edge(to="content", close=True, lenient=True)}),
    },
)


def read(grammar: Grammar, text: str, *, cut: bool = False, size: int = 1, prefill: Sequence[str] = ()):
    """Content, reasoning, names of calls, and whether it is well-formed; every cut must give the same."""
    machine = Machine(Table(grammar, None), NO_TOOLS, iter(map(str, range(99))).__next__)
    if prefill:
        machine.begin(prefill)
    for at in range(0, len(text), size):
        machine.text(text[at : at + size])
    machine.finish(None, cut=cut)
    assert "".join(machine.raw) == text
    said = "".join(machine.content), "".join(machine.reasoning), [call.name for call in machine.calls]
    return (*said, not machine.broken)


def agreed(grammar: Grammar, text: str, **options):
    found = [read(grammar, text, size=size, **options) for size in (1, 2, 3, len(text) or 1)]
    assert all(one == found[0] for one in found), found
    return found[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("", "", [], True)),
        (" \n", (" \n", "", [], True)),
        (" a", (" a", "", [], True)),
        ("a\n\n[c]f[/c]", ("a\n", "", ["f"], True)),
        ("[c]f g[/c]\n[c]h[/c]\n", ("", "", ["f", "g", "h"], True)),
        ("[c]f[/c]\n a\n", ("\n a\n", "", ["f"], True)),
        ("a\n\n[t]\n\nb\n\n[/t]\n\nc\n", ("ac\n", "\nb", [], True)),
        ("a[c", ("a[c", "", [], True)),
        ("[t", ("[t", "", [], True)),
        ("a[t]b", ("a", "b", [], False)),
        ("a\n[/c]b", ("a\n[/c]b", "", [], True)),
        ("a\n[c]f![/c]b[c]g[/c]", ("a\n[c]f![/c]b[c]g[/c]", "", [], False)),
        ("a\n[c]f", ("a\n[c]f", "", [], False)),
        ("[c]f[/c]  [c]g!", ("  [c]g!", "", ["f"], False)),
    ],
)
def test_marks_that_are_spelled(text: str, expected):
    assert agreed(CALLS, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n[t]b\n\n", ("a", "b\n\n", [], True)),
        ("a\n", ("a\n", "", [], True)),
        ("a\n[c]f", ("a\n[c]f", "", [], True)),
        ("a\n[c]f[/", ("a\n[c]f[/", "", [], True)),
        ("[c]f[/c]\n [", ("\n [", "", ["f"], True)),
    ],
)
def test_a_reply_cut_short_keeps_its_parts_and_a_call_is_text(text: str, expected):
    assert agreed(CALLS, text, cut=True) == expected


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("think[m]a[e][s]say[m]b[e]", False, ("b", "a", [], True)),
        ("think[m]a[e]\n[s]think[m]b[e][s]do[m]f[x]", False, ("", "ab", ["f"], True)),
        ("do[m]f g", False, ("", "", ["f", "g"], True)),
        ("do[m]f g", True, ("", "", ["f", "g"], True)),
        ("do[m]f!", True, ("do[m]f!", "", [], True)),
        ("do[m]f!", False, ("do[m]f!", "", [], False)),
        ("sing[m]a[e]", False, ("sing[m]a[e]", "", [], False)),
        ("say[m]a[e]b", False, ("ab", "", [], False)),
        ("say[m]a", False, ("a", "", [], False)),
        ("say", True, ("say", "", [], True)),
    ],
)
def test_labels_are_held_and_lead_on(text: str, cut: bool, expected):
    assert agreed(CHANNELS, text, cut=cut) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ "name" f', ("", "", ["{", '"name"', "f"], True)),
        ('{"name!', ('{"name!', "", [], True)),
        ('{"name"!', ('{"name"!', "", [], True)),
        ('  {"na', ('  {"na', "", [], True)),
        ('{"other"', ('{"other"', "", [], True)),
        ('x{"name"', ('x{"name"', "", [], True)),
        ("{" + " " * 100 + '"name"', ("{" + " " * 100 + '"name"', "", [], True)),
    ],
)
def test_a_text_that_begins_like_a_call(text: str, expected):
    assert agreed(BARE, text) == expected


def test_what_the_prompt_has_begun_does_not_come_out():
    assert agreed(CALLS, "\nb[/t]c", prefill=["a", "[t]"]) == ("c", "b", [], True)
    assert agreed(CALLS, "b", prefill=["a\n"]) == ("b", "", [], True)
    assert agreed(CALLS, "b[/c]", prefill=["[c]a"]) == ("", "", ["ab"], True)
    assert agreed(CALLS, "b", prefill=["[c]a![/c]"]) == ("b", "", [], True)


def test_marks_must_not_lie_in_each_other():
    with pytest.raises(ValueError, match="holds another"):
        TextMarks(["<a>", "<a><b>"])


def reply(tokens: list[int], stops: list[str], step: int):
    """A choice over a tokenizer that has ``<think>`` as a token."""
    grammar = Grammar(
        start="content",
        states={
            "content": State(says=Says.CONTENT, edges={"<think>": Edge(to="reasoning")}, ends=True),
            "reasoning": State(says=Says.REASONING, edges={"</think>": Edge(to="content")}),
        },
    )
    options = ReplyOptions(stops=stops, want_entries=True, want_ids=True)
    one = Reply(Table(grammar, TINY), TINY, [IM_END], options)
    deltas = []
    for at in range(0, len(tokens), step):
        for token in tokens[at : at + step]:
            one.push(ScoredToken(token, -1.0, ()))
        deltas.append(one.take())
    return fold([*deltas, one.finish(EngineFinish.LENGTH)])[0]


@pytest.mark.parametrize("step", [1, 2, 5, 99])
@pytest.mark.parametrize(
    ("stops", "content", "reasoning"),
    [
        (["b<th"], "a", ""),
        (["<think>c"], "ab", ""),
        (["think>"], "ab", ""),
        (["k>cd</th"], "ab", ""),
        (["d</think>e"], "ab", "c"),
        (["</"], "ab", "cd"),
        (["nothing"], "abef", "cd"),
    ],
)
def test_a_stop_string_that_reaches_into_a_mark(stops: list[str], content: str, reasoning: str, step: int):
    """The raw text counts; no part of a mark is ever text."""
    tokens = TINY.encode("ab<think>cd</think>ef", control=True)
    choice = reply(tokens, stops, step)
    assert (choice.text, choice.reasoning, choice.plain) == (content, reasoning, None)
    assert len(choice.token_ids) == len(choice.entries)


def test_a_mark_in_a_body_is_no_text():
    with pytest.raises(CodecError):
        _ = Body(["a", Mark("<x>")]).text
    assert Body(["a", "b"]).text == "ab"
