"""Patterns that are taken and those that are not; texts that are held against them."""

import pytest

from onward.core.content_filter import ContentFilter, HeldText
from onward.core.patterns import PatternError, input_pattern, output_pattern


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("", "is empty"),
        ("(", "is no regular expression: missing )"),
        ("[", "is no regular expression"),
        ("\\", "is no regular expression"),
        ("a*", "matches where there is nothing"),
        (r"\b", "matches where there is nothing"),
        (r"(?:.|\b)", "matches where there is nothing"),
        ("(?R)a", "calls itself"),
        ("(a)(?1)", "calls itself"),
        (r"\L<words>", "is no regular expression"),
    ],
)
def test_no_pattern_of_anything(pattern: str, fault: str):
    with pytest.raises(PatternError, match=fault.replace("(", r"\(").replace(")", r"\)")):
        input_pattern("p", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a$",
        r"a\Z",
        "a(?=b)",
        "a(?!b)",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)b",
        "a++b",
        "a{2,3}+",
        "a*+b",
        "(?|a|b)",
        "(?x)a b",
        "(?r)ab",
        "(a)?(?(1)b|c)",
        "a{e<=1}bcd",
        "(*FAIL)|a",
        r"\Xa",
        r"\Ka",
        r"\Ga",
    ],
)
def test_no_pattern_of_text_that_grows(pattern: str):
    with pytest.raises(PatternError, match=r"holds |calls itself|is no regular"):
        output_pattern("p", pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"[$()*+?]{2}", "a $( b"),
        (r"\$\d+", "it is $17"),
        (r"\(?!\)", "(!)"),
        (r"(?<n>a)(?P=n)", "xaax"),
        (r"\p{Lu}{3}", "an ABC"),
        (r"(?i:STRASSE)|weg", "strasse"),
        (r"(?#a comment)abc", "abc"),
        (r"[]a]b", "]b"),
        (r"a\{2\}", "a{2}"),
        (r"[[:alpha:]]{3}\d", "abc1"),
        (r"\bword\b", "a word"),
        (r"(?i)\mword\M", "a WORD."),
        (r"x\By", "xy"),
    ],
)
def test_patterns_of_text_that_grows(pattern: str, text: str):
    held = HeldText([output_pattern("p", pattern)])
    for letter in text:
        held.push(letter)
    held.finish()
    assert held.found is not None
    assert ContentFilter.of([pattern], []).input_blocked(text) is not None


def test_letters_match_as_they_are_written():
    content = ContentFilter.of(["Secret", "(?i)quiet"], [])
    assert content.input_blocked("a secret") is None
    assert content.input_blocked("a Secret") is not None
    assert content.input_blocked("QUIET") is not None


def test_what_takes_too_long_blocks():
    content = ContentFilter.of(["fine", "(a+)+b"], ["fine", "(a+)+b"])
    text = "a" * 5000 + "c"
    for found in (content.input_blocked(text), content.output_blocked(text)):
        assert found is not None
        assert found.slow
    assert content.input_blocked("a b") is None


def test_half_of_a_character_is_held_against_patterns_too():
    """What a provider's JSON can hold: half of a surrogate pair."""
    held = HeldText([output_pattern("p", r"ab\b")])
    held.push("\ud83d a")
    assert held.clear == 2
    held.push("\udcff")
    held.finish()
    assert (held.found, held.clear) == (None, 4)
