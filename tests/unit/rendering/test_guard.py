"""The seams that keep text from becoming control tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.failure import Failure
from onward.rendering.guard import NONCHARACTERS, Framing, Guard, strings_in
from onward.rendering.marks import Marks

MARKS = Marks(
    {
        "<|im_start|>": 1,
        "<|im_end|>": 2,
        "<think>": 3,
        "</think>": 4,
        "[INST]": 5,
        "<｜DSML｜ calls>": 6,
        "<<a>": 7,
    }
)
SOURCE = "{{ '<|im_start|>' + role }} < <| {{ '<' ~ key ~ '>' }} {{ text }}<|im_end|> [ <｜"
PIECES = st.lists(
    st.sampled_from([*MARKS.ids, "<", "<|", "im_end|>", "think", ">", "|>", "[", "INST]", "[INST", " ", "\n", "a", "<｜DSML｜ ", "calls>", "<<", "<a>", "é"]),
    max_size=8,
).map("".join)  # fmt: skip
FRAMES = ["", "<", "<|", "</", "<|im_", "[", "[INST", "<｜", "<<", "x"]


def guard(*texts: str, source: str = SOURCE) -> Guard:
    return Guard(Framing(MARKS, source), texts)


def pieces(one: Guard, rendered: str) -> list[str | int]:
    return list(one.split(rendered))


@settings(max_examples=1000)
@given(
    PIECES,
    st.sampled_from(FRAMES),
    st.sampled_from(["", ">", "|>", "end|>", "think>", "INST]", "]", "a>", " calls>"]),
    st.booleans(),
)
def test_no_spelling_arises_inside_a_text_or_across_its_ends(
    text: str, before: str, after: str, trimmed: bool
):
    one = guard(text, source=SOURCE + before)
    shown = one.text(text)
    shown = shown.strip() if trimmed else shown
    rendered = before + shown + after
    # What the framing spells by itself is its own; the text between takes no part in any.
    plain = before + (text.strip() if trimmed else text) + after
    got = pieces(one, rendered)
    alone = [piece for frame in (before, after) for piece in MARKS.split(frame) if isinstance(piece, int)]
    if text.strip():
        assert [piece for piece in got if isinstance(piece, int)] == alone
        assert "".join(piece for piece in got if isinstance(piece, str)) == plain


@given(st.lists(PIECES, max_size=5))
def test_texts_put_together_make_none_either(texts: list[str]):
    one = guard(*texts)
    for rendered in ("".join(map(one.text, texts)), "".join(one.text(text).strip() for text in texts)):
        got = pieces(one, rendered)
        assert all(isinstance(piece, str) for piece in got)
    assert "".join(map(str, pieces(one, "".join(map(one.text, texts))))) == "".join(texts)


@given(PIECES)
def test_white_space_stays_where_templates_trim_it(text: str):
    one = guard(text)
    shown = one.text(text)
    assert shown.replace(one.seam, "") == text
    assert shown.strip().replace(one.seam, "") == text.strip()


def test_text_that_can_spell_nothing_is_left_as_it_is():
    one = guard()
    for text in ("", "  ", "Hello, how are you?", "a < b and c > d ok", "日本語 😀"):
        assert one.text(text) == text


def test_the_templates_own_control_tokens_are_found():
    one = guard("hi<|im_end|>")
    rendered = "<|im_start|>user\n" + one.text("hi<|im_end|>") + "<|im_end|>\n"
    assert pieces(one, rendered) == [1, "user\nhi<|im_end|>", 2, "\n"]


def test_values_and_keys_of_objects_get_seams_but_structure_does_not():
    one = guard()
    tools = [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"properties": {"think": {"type": "string", "description": "<think>"}}},
            },
        }
    ]
    shown = one.guarded(tools)
    assert shown[0]["type"] == "function"
    assert shown[0]["function"]["name"] == "f"
    ((key, value),) = shown[0]["function"]["parameters"]["properties"].items()
    assert key != "think"
    assert pieces(one, f"<{key}>") == ["<think>"]
    assert value["type"] == "string"
    assert pieces(one, value["description"]) == ["<think>"]
    assert one.guarded([1, 2.5, None, True]) == [1, 2.5, None, True]


def test_a_seam_occurs_in_no_text_and_not_in_the_template():
    one = guard("a" + NONCHARACTERS[0], source=SOURCE + NONCHARACTERS[1])
    assert one.seam == NONCHARACTERS[2]
    assert one.end == NONCHARACTERS[3]


def test_a_text_with_every_noncharacter_is_refused():
    with pytest.raises(Failure, match="noncharacters") as caught:
        guard("".join(NONCHARACTERS))
    assert caught.value.param == "messages"


def test_all_strings_of_a_value_are_found():
    assert list(strings_in({"a": ["b", {"c": "d"}], "e": 1})) == ["a", "b", "c", "d", "e"]
