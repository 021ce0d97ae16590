"""Tokenizers rebuilt from GGUF metadata."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.rendering.gguf import read_metadata
from onward.rendering.tokenizer import Tokenizer, from_gguf
from onward.rendering.vocabulary import TokenizerError
from tests.unit.rendering.libllama import LlamaVocabulary
from tests.unit.rendering.texts import texts
from tests.unit.rendering.tiny import (
    BOS,
    CONTROL,
    END,
    EOT,
    MARKUP,
    START,
    byte_level,
    byte_level_metadata,
    sentencepiece_metadata,
)

TINY = byte_level()


@pytest.fixture(scope="module")
def oracle(gguf: Path):
    vocabulary = LlamaVocabulary(gguf)
    yield vocabulary
    vocabulary.close()


@pytest.mark.parametrize("control", [True, False])
def test_ten_thousand_texts_are_tokenized_as_llama_cpp_does(
    tokenizer: Tokenizer, oracle: LlamaVocabulary, control: bool
):
    for text in texts(10_000, seed=1, marks=list(tokenizer.marks.ids)):
        assert tokenizer.encode(text, control=control) == oracle.tokenize(text, parse_special=control), text


def test_every_token_has_the_bytes_that_llama_cpp_gives_it(tokenizer: Tokenizer, oracle: LlamaVocabulary):
    assert tokenizer.vocab_size == oracle.size
    assert [tokenizer.token_bytes(token) for token in range(oracle.size)] == [
        oracle.piece(token) for token in range(oracle.size)
    ]


def test_the_end_tokens_and_bos_are_those_of_llama_cpp(tokenizer: Tokenizer, oracle: LlamaVocabulary):
    marks_of_files = {tokenizer.control_id("<reponame>")}
    assert tokenizer.end_token_ids == oracle.ends - marks_of_files
    assert tokenizer.add_bos == oracle.add_bos
    assert tokenizer.bos_id == oracle.bos


def test_text_comes_back_from_its_ids(tokenizer: Tokenizer):
    for text in texts(500, seed=2, marks=list(tokenizer.marks.ids)):
        for control in (True, False):
            assert tokenizer.decode(tokenizer.encode(text, control=control)) == text


@given(
    st.lists(st.sampled_from([*CONTROL, *MARKUP, "<", "|", ">", "im", "_end", "think", " ", "é"])).map(
        "".join
    )
)
def test_without_control_no_text_becomes_a_mark(text: str):
    ids = TINY.encode(text, control=False)
    assert not set(ids) & set(TINY.marks.ids.values())
    assert TINY.decode(ids) == text


def test_with_control_marks_are_read_and_the_text_between_is_one_run():
    ids = TINY.encode("hello<|im_start|>hello<think>", control=True)
    assert [TINY.spelling(token) for token in ids] == ["hello", "<|im_start|>", "hello", "<think>"]


def test_of_overlapping_marks_the_leftmost_then_the_longest_is_read():
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"][3] = "<|im_end|>>"
    tokenizer = from_gguf(metadata)
    assert tokenizer.encode("<|im_end|>>", control=True) == [3]
    assert tokenizer.encode("<|im_end|>", control=True) == [2]


@pytest.mark.fault("D19")
@pytest.mark.parametrize(
    ("text", "rest"), [("hello", ["hello"]), ("<|endoftext|>hello", ["hello"]), ("", [])]
)
def test_bos_stands_in_front_once_where_the_model_adds_it(text: str, rest: list[str]):
    adding = byte_level(**{"tokenizer.ggml.add_bos_token": True})
    assert [adding.spelling(token) for token in adding.encode_prompt(text)] == ["<|endoftext|>", *rest]


def test_bos_is_not_added_where_the_file_says_no_or_names_none():
    assert TINY.encode_prompt("hello") == TINY.encode("hello", control=False)
    without = byte_level(**{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 10**6})
    assert not without.add_bos
    assert without.encode_prompt("hello") == TINY.encode("hello", control=False)


def test_a_pre_tokenizer_decides_on_bos_where_the_file_does_not():
    metadata = byte_level_metadata(**{"tokenizer.ggml.pre": "llama-bpe"})
    del metadata["tokenizer.ggml.add_bos_token"]
    assert from_gguf(metadata).add_bos


def test_tokens_are_spelled_for_people():
    space, partial = TINY.encode(" wor", control=False)[0], TINY.encode("😀", control=False)[0]
    assert TINY.spell(space, -0.5).text == " wor"
    spelled = TINY.spell(partial, -0.5)
    assert spelled.text == r"bytes:\xf0\x9f"
    assert spelled.bytes == b"\xf0\x9f"
    assert TINY.spell(END, None).bytes is None
    assert TINY.spell(END, None).text == "<|im_end|>"
    think = TINY.control_id("<think>")
    assert think is not None
    assert TINY.spell(think, None).bytes == b"<think>"
    assert not TINY.is_control(think)


def test_a_printable_byte_of_a_broken_token_is_itself():
    token = TINY._vocabulary.tokens.index("aðŁĺ")
    assert TINY.spelling(token) == r"bytes:a\xf0\x9f\x98"


def test_only_a_whole_spelling_is_a_control_token():
    assert TINY.control_id("<|im_end|>") == END
    assert TINY.control_id("<|im_end|> ") is None
    assert TINY.control_id("hello") is None


def test_end_tokens_are_known_by_metadata_and_by_spelling():
    assert TINY.end_token_ids == {BOS, END, EOT}
    assert START not in TINY.end_token_ids
    named = byte_level(**{"tokenizer.ggml.eot_token_id": START})
    assert START in named.end_token_ids


def _with_tokens(*names: str, kind: int = 3) -> Tokenizer:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] += names
    metadata["tokenizer.ggml.token_type"] += [kind] * len(names)
    return from_gguf(metadata)


def _ends(tokenizer: Tokenizer) -> set[str]:
    return {tokenizer.spelling(token) for token in tokenizer.end_token_ids}


def test_the_end_of_a_message_of_many_does_not_end_the_reply():
    many = _ends(_with_tokens("<|end|>", "<|return|>", "<|call|>"))
    assert {"<|return|>", "<|call|>"} <= many
    assert "<|end|>" not in many
    assert "<|end|>" in _ends(_with_tokens("<|end|>"))


def test_a_piece_of_html_that_merges_make_does_not_end_the_reply():
    assert "</s>" not in _ends(_with_tokens("</s>", kind=1))
    assert "</s>" in _ends(_with_tokens("</s>", kind=3))


def test_runs_of_spaces_that_were_added_by_hand_are_ordinary_text():
    tokenizer = _with_tokens("      ", kind=4)
    ids = tokenizer.encode("a      b", control=False)
    assert [tokenizer.spelling(token) for token in ids] == ["a", "      ", "b"]


def test_marks_of_phi_3_swallow_the_white_space_behind_them():
    phi = byte_level(**{"general.name": "Phi-3 mini"})
    assert phi.encode("<|im_start|> \n hello", control=True) == [START, *phi.encode("hello", control=False)]
    assert TINY.encode("<|im_start|> \n hello", control=True) != [START, *TINY.encode("hello", control=False)]


def test_sentencepiece_falls_back_to_bytes_and_puts_a_space_in_front():
    tokenizer = from_gguf(sentencepiece_metadata())
    ids = tokenizer.encode("hello world é", control=False)
    assert [tokenizer.spelling(token) for token in ids] == [
        " hello",
        " world",
        " ",
        r"bytes:\xc3",
        r"bytes:\xa9",
    ]
    assert tokenizer.decode(ids) == "hello world é"
    assert tokenizer.encode_prompt("hello")[0] == tokenizer.bos_id == 1
    bare = from_gguf(sentencepiece_metadata(**{"tokenizer.ggml.add_space_prefix": False}))
    assert bare.decode(bare.encode("hello", control=False)) == "hello"
    assert bare.encode("hello", control=False) != ids[:1]


@given(st.text(max_size=200))
def test_the_least_count_is_never_above_the_real_one(text: str):
    assert TINY.least_tokens(text, 10) <= len(TINY.encode(text, control=True))


def test_the_least_count_of_a_long_text_is_found_without_reading_it_all(tokenizer: Tokenizer):
    assert tokenizer.least_tokens("a " * 4_000_000, 8192) > 8192
    text = "The cat sat on the mat. " * 20_000
    assert 8192 < tokenizer.least_tokens(text, 8192) <= len(tokenizer.encode(text, control=True))
    assert tokenizer.least_tokens(text, 10**6) <= len(tokenizer.encode(text, control=True))


def _changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in byte_level_metadata(**changes).items() if value is not None}


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "names no tokenizer"),
        (_changed(**{"tokenizer.ggml.model": "bert"}), "'bert' are not supported"),
        (_changed(**{"tokenizer.ggml.pre": "novel"}), "'novel'.*not known"),
        (_changed(**{"tokenizer.ggml.tokens": None}), "no vocabulary"),
        (_changed(**{"tokenizer.ggml.tokens": 5}), "wrong type"),
        (_changed(**{"tokenizer.ggml.merges": None}), "merges"),
        (_changed(**{"tokenizer.ggml.token_type": [1]}), "1 entries"),
        ({**sentencepiece_metadata(), "tokenizer.ggml.scores": [0.5]}, "entry for each"),
    ],
)
def test_what_cannot_be_built_says_why(metadata: dict[str, Any], says: str):
    with pytest.raises(TokenizerError, match=says):
        from_gguf(metadata)


def test_broken_and_repeated_tokens_do_no_harm():
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] += ["", "hello", "\udcff", "日本"]
    metadata["tokenizer.ggml.token_type"] += [5, 1, 1, 1]
    tokenizer = from_gguf(metadata)
    assert tokenizer.encode("hello", control=False) == TINY.encode("hello", control=False)
    last = tokenizer.vocab_size
    assert [tokenizer.token_bytes(token) for token in range(last - 4, last)] == [
        b"",
        b"hello",
        b"\xff",
        "日本".encode(),
    ]


def test_metadata_of_the_real_file(gguf: Path):
    tokenizer = from_gguf(read_metadata(gguf.read_bytes()))
    assert [tokenizer.spelling(token) for token in sorted(tokenizer.end_token_ids)] == [
        "<|endoftext|>",
        "<|im_end|>",
    ]
