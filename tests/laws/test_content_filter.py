"""Laws of texts that are held against patterns: no match goes out, all else does, whatever the pieces.

What matches is found anew here, by trying every end of every part of a pattern.
"""

from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from onward.core.content_filter import HeldText
from onward.core.patterns import PatternError, output_pattern

LETTERS = "abé "
EXTENSIONS = 4


@dataclass(frozen=True)
class Node:
    """A part of a pattern."""

    kind: str
    parts: tuple["Node", ...] = ()
    letter: str = ""

    def spelled(self) -> str:
        inside = [part.spelled() for part in self.parts]
        match self.kind:
            case "letter":
                return self.letter
            case "any":
                return "."
            case "border":
                return r"\b"
            case "then":
                return "".join(inside)
            case "or":
                return f"(?:{'|'.join(inside)})"
            case "maybe":
                return f"(?:{inside[0]})?"
            case _:
                return f"(?:{inside[0]})+"

    def ends(self, text: str, start: int) -> frozenset[int]:
        """Where matches end that begin at `start`."""
        here = text[start : start + 1]
        match self.kind:
            case "letter":
                return frozenset({start + 1} if here == self.letter else ())
            case "any":
                return frozenset({start + 1} if here else ())
            case "border":
                before = text[start - 1 : start] if start else ""
                return frozenset({start} if before.isalnum() != here.isalnum() else ())
            case "then":
                found = frozenset({start})
                for part in self.parts:
                    found = frozenset(end for at in found for end in part.ends(text, at))
                return found
            case "or":
                return frozenset(end for part in self.parts for end in part.ends(text, start))
            case "maybe":
                return self.parts[0].ends(text, start) | {start}
            case _:
                found, new = frozenset(), self.parts[0].ends(text, start)
                while new - found:
                    found |= new
                    new = frozenset(end for at in new for end in self.parts[0].ends(text, at))
                return found


LEAVES = st.builds(Node, st.just("letter"), letter=st.sampled_from(LETTERS)) | st.sampled_from(
    [Node("any"), Node("border"), Node("letter", letter="a")]
)


def nodes(most: int) -> st.SearchStrategy[Node]:
    return st.recursive(
        LEAVES,
        lambda inner: (
            st.builds(Node, st.just("then"), st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(Node, st.just("or"), st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(Node, st.sampled_from(["maybe", "many"]), st.tuples(inner))
        ),
        max_leaves=most,
    )


TEXTS = st.text(LETTERS, max_size=12)
LONGEST = st.sampled_from([1, 2, 3, 5, 100])


@cache
def compiled(spelled: str):
    return output_pattern(spelled, spelled)


def pattern_of(node: Node):
    try:
        return compiled(node.spelled())
    except PatternError:
        assume(False)
        raise


def expected(nodes: list[Node], text: str, longest: int) -> int | None:
    """Where the match begins that blocks: that ends first, of those the longest. None: there is none."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        border = pattern_of(node).border
        for start in range(len(text)):
            for end in node.ends(text, start):
                # with borders it takes a character more to be sure, but at the text's end
                seen = end + (border and end < len(text))
                late = border and end == len(text)
                if end > start and seen - start <= longest:
                    found.append((seen + late, start))
    return min(found)[1] if found else None


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {len(text)})
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def run(patterns, pieces: list[str], longest: int) -> tuple[HeldText, list[int]]:
    held = HeldText(patterns, longest)
    clears = []
    for piece in pieces:
        held.push(piece)
        clears.append(held.clear)
    held.finish()
    return held, clears


@given(st.lists(nodes(6), min_size=1, max_size=2), TEXTS, st.lists(st.integers(0, 12), max_size=12), LONGEST)
@example([Node("then", (Node("letter", letter="a"), Node("many", (Node("any"),))))], "a" * 9, [1, 2, 3], 3)
def test_any_pieces_find_what_the_whole_holds(
    parts: list[Node], text: str, places: list[int], longest: int
) -> None:
    patterns = [pattern_of(node) for node in parts]
    held, clears = run(patterns, cut(text, places), longest)
    begins = expected(parts, text, longest)
    assert (held.found is not None) == (begins is not None)
    assert held.clear == (len(text) if begins is None else begins)
    assert clears == sorted(clears)


@given(nodes(4), TEXTS)
def test_nothing_is_held_that_cannot_become_a_match(node: Node, text: str) -> None:
    pattern = pattern_of(node)
    held = HeldText([pattern])
    held.push(text)
    if pattern.border or held.found is not None or held.clear == len(text):
        return  # at a border more is held than need be: `é\\ba` begins with every é
    more = [""]
    for _ in range(EXTENSIONS):
        more += [one + letter for one in more for letter in LETTERS]
    assert any(end > len(text) for one in set(more) for end in node.ends(text + one, held.clear))


@pytest.mark.parametrize("longest", [8, 50])
def test_a_match_without_an_end_is_not_waited_for(longest: int) -> None:
    held = HeldText([output_pattern("p", "a.*b")], longest)
    for n in range(1, 200):
        held.push("a")
        assert held.clear == max(0, n - longest)
    held.push("b")
    assert held.found is not None
    assert held.clear == 200 - longest
