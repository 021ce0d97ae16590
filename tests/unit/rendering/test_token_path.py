"""The token path: text, stops, entries and IDs of one choice (wire semantics 1.5 to 1.8)."""

import math

import pytest

from onward.core.delta import ChoiceDelta, FinishReason, fold
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.token_path import TokenPath, prompt_delta
from onward.rendering.tokenizer import Tokenizer
from tests.unit.rendering.tiny import END, START, byte_level, letters, sentencepiece_metadata

TINY = byte_level()


def ids(*pieces: str | bytes) -> list[int]:
    """One token for each piece."""
    names = [letters(piece.encode() if isinstance(piece, str) else piece) for piece in pieces]
    return [TINY._vocabulary.tokens.index(name) for name in names]


def path(stops: list[str] | None = None, *, ends: tuple[int, ...] = (END,), offset: int = 0) -> TokenPath:
    return TokenPath(
        TINY, index=3, stops=stops or [], end_token_ids=ends, want_entries=True, want_ids=True, offset=offset
    )


def run(
    tokens: list[int], stops: list[str] | None = None, why: EngineFinish | None = EngineFinish.LENGTH
) -> list[ChoiceDelta]:
    one = path(stops)
    deltas = []
    for token in tokens:
        one.push(ScoredToken(token, -0.5, ((token, -0.5), (START, -2.0))))
        deltas.append(one.take())
    return [*deltas, one.finish(why)]


def whole(deltas: list[ChoiceDelta]) -> ChoiceDelta:
    return fold(deltas)[0]


def offsets(delta: ChoiceDelta) -> list[int]:
    return [entry.offset for entry in delta.entries]


def spellings(delta: ChoiceDelta) -> list[str]:
    return [entry.token.text for entry in delta.entries]


def test_text_comes_as_it_is_made():
    deltas = run(ids("hello", " wor", "ll"))
    assert [delta.text for delta in deltas] == ["hello", " wor", "ll", ""]
    assert [len(delta.entries) for delta in deltas] == [1, 1, 1, 0]
    assert deltas[-1].finish is FinishReason.LENGTH
    assert all(delta.index == 3 for delta in deltas)


@pytest.mark.fault("D11")
def test_a_character_over_several_tokens_comes_whole_and_once():
    deltas = run(ids(b"\xf0\x9f", b"\x98\x80", "abc"))
    assert [delta.text for delta in deltas] == ["", "😀", "abc", ""]
    joined = whole(deltas)
    assert offsets(joined) == [0, 0, 1]
    assert spellings(joined) == [r"bytes:\xf0\x9f", r"bytes:\x98\x80", "abc"]


def test_a_token_that_ends_a_character_and_goes_on_shares_the_character():
    tokens = ids("a", b"\xf0\x9f", b"\x98")
    tokens += ids(b"\x80b", "c")
    joined = whole(run(tokens))
    assert joined.text == "a😀bc"
    assert offsets(joined) == [0, 1, 1, 1, 3]


def test_a_token_after_a_broken_character_stands_behind_its_replacement():
    joined = whole(run(ids(b"\xe2\x82", "abc", b"\xf0\x9f", b"\xe2\x82", "é")))
    assert joined.text == "\ufffdabc\ufffd\ufffdé"
    assert offsets(joined) == [0, 1, 4, 5, 6]


def test_half_a_surrogate_is_two_replacements_and_the_next_token_stands_behind_both():
    whole_ = whole(run([*ids(b"\xed\xa0"), START, *ids("ab")]))
    assert whole_.text == "\ufffd\ufffd<|im_start|>ab"
    assert offsets(whole_) == [0, 2, 14]


def test_a_character_cut_short_at_the_end_becomes_one_replacement():
    deltas = run(ids("a", b"\xf0\x9f"))
    assert [delta.text for delta in deltas] == ["a", "", "\ufffd"]
    deltas = run([*ids("a", b"\xf0\x9f"), END])
    assert whole(deltas).text == "a\ufffd"
    assert offsets(whole(deltas)) == [0, 1, 2]


def test_an_end_token_is_spelled_but_is_no_text():
    deltas = run([*ids("abc"), END, *ids("hello")], why=EngineFinish.STOP_TOKEN)
    joined = whole(deltas)
    assert joined.text == "abc"
    assert spellings(joined) == ["abc", "<|im_end|>"]
    assert offsets(joined) == [0, 3]
    assert joined.entries[1].token.bytes is None
    assert joined.token_ids == [*ids("abc"), END]
    assert joined.finish is FinishReason.STOP


@pytest.mark.fault("D12")
def test_an_end_token_that_is_the_last_allowed_one_is_a_stop():
    assert whole(run([*ids("abc"), END], why=EngineFinish.LENGTH)).finish is FinishReason.STOP


def test_an_end_token_that_is_none_here_is_spelled_in_the_text():
    one = path(ends=())
    for token in [*ids("abc"), END, *ids("hello")]:
        one.push(ScoredToken(token, -0.5, ()))
    joined = one.finish(EngineFinish.LENGTH)
    assert joined.text == "abc<|im_end|>hello" == "".join(spellings(joined))


@pytest.mark.fault("D10")
@pytest.mark.parametrize(
    ("stop", "text"),
    [("l", "he"), ("o w", "hell"), ("hello wor", ""), ("ello", "h"), ("wor", "hello "), ("zz", "hello wor")],
)
def test_a_stop_may_begin_and_end_anywhere(stop: str, text: str):
    joined = whole(run(ids("hello", " wor"), [stop]))
    assert joined.text == text
    assert joined.finish is (FinishReason.LENGTH if stop == "zz" else FinishReason.STOP)


@pytest.mark.fault("D12")
def test_a_stop_completed_by_the_last_allowed_token_is_a_stop():
    assert whole(run(ids("hello"), ["llo"], EngineFinish.LENGTH)).finish is FinishReason.STOP


def test_tokens_cut_away_keep_their_entries_at_the_texts_length():
    joined = whole(run(ids("abc", "he", "ll", "hello"), ["cheh", "ll"]))
    assert joined.text == "abche"
    assert joined.token_ids == ids("abc", "he", "ll")
    assert offsets(joined) == [0, 3, 5]
    joined = whole(run(ids("abc", "he", "ll"), ["bchel"]))
    assert joined.text == "a"
    assert offsets(joined) == [0, 1, 1]


def test_nothing_is_accepted_after_a_stop():
    one = path(["he"])
    for token in ids("abc", "hello", "abc"):
        one.push(ScoredToken(token))
    assert one.stopped
    assert one.count == 2
    assert one.finish(None).text == "abc"


@pytest.mark.parametrize(
    ("tokens", "stops", "stop"),
    [
        (ids("abc", "hello"), ["zzz", "he"], "he"),
        (ids("abc", "he", "ll", "hello"), ["cheh", "ll"], "ll"),
        (ids("abc", "he", "ll"), ["ell", "bchel"], "bchel"),
        (ids("abc"), ["zzz"], None),
        ([*ids("abc"), END], ["zzz"], None),
        ([*ids("abc"), END], ["zzz", TINY.spelling(END)], TINY.spelling(END)),
    ],
)
def test_the_stop_that_ended_a_text_is_told(tokens: list[int], stops: list[str], stop: str | None):
    assert [delta.stop for delta in run(tokens, stops)] == [None] * len(tokens) + [stop]


def test_only_what_may_become_a_stop_is_held_and_its_tokens_with_it():
    deltas = run(ids("abc", "he", "ll", "abc"), ["hello"])
    assert [delta.text for delta in deltas] == ["abc", "", "", "hellabc", ""]
    assert [len(delta.token_ids) for delta in deltas] == [1, 0, 0, 3, 0]
    assert [len(delta.entries) for delta in deltas] == [1, 0, 0, 3, 0]


def test_held_text_is_given_at_the_end():
    deltas = run(ids("abc", "hell"), ["hello"])
    assert [delta.text for delta in deltas] == ["abc", "", "hell"]
    assert deltas[-1].finish is FinishReason.LENGTH


def test_the_replacement_of_a_cut_character_can_be_a_stop():
    joined = whole(run(ids("abc", b"\xf0\x9f"), ["\ufffd"]))
    assert joined.text == "abc"
    assert joined.finish is FinishReason.STOP
    assert offsets(joined) == [0, 3]


def test_offsets_begin_behind_the_echoed_prompt():
    one = path(["llo"], offset=10)
    for token in ids("abc", "hello"):
        one.push(ScoredToken(token, -1.0, ()))
    joined = one.finish(None)
    assert offsets(joined) == [10, 13]
    assert joined.text == "abche"


def test_is_empty_says_what_take_would_give():
    one = path(["hello"])
    assert one.is_empty
    one.push(ScoredToken(ids("he")[0]))
    assert one.is_empty
    one.push(ScoredToken(ids("abc")[0]))
    assert not one.is_empty
    one.take()
    assert one.is_empty


def test_log_probabilities_are_floored_and_finite():
    one = path()
    one.push(ScoredToken(START + 20, -math.inf, ((START, -3.4e38), (END, math.nan))))
    (entry,) = one.finish(EngineFinish.LENGTH).entries
    assert entry.token.logprob == -9999.0
    assert entry.top is not None
    assert [other.logprob for other in entry.top] == [-9999.0, -9999.0]


def test_without_entries_or_ids_only_text_is_kept():
    one = TokenPath(TINY, index=0, stops=["zz"], end_token_ids=(), want_entries=False, want_ids=False)
    one.push(ScoredToken(ids("hello")[0]))
    delta = one.finish(EngineFinish.LENGTH)
    assert (delta.text, delta.token_ids, delta.entries) == ("hello", [], [])


@pytest.mark.parametrize("token", [-1, 10**9, 2**40])
def test_an_id_without_a_token_has_no_text(token: int):
    joined = whole(run([*ids("abc"), token, *ids("abc")]))
    assert joined.text == "abcabc"
    assert offsets(joined) == [0, 3, 3]


@pytest.mark.fault("D03")
def test_an_echoed_prompt_is_its_text_and_entries():
    prompt = [START, *ids("hello", " wor", b"\xf0\x9f", b"\x98\x80")]
    scored = [ScoredToken(prompt[0]), *(ScoredToken(token, -1.0, ((token, -1.0),)) for token in prompt[1:])]
    delta = prompt_delta(TINY, 2, prompt, scored, want_entries=True)
    assert delta.text == "<|im_start|>hello wor😀"
    assert offsets(delta) == [0, 12, 17, 21, 21]
    assert delta.entries[0].top is None
    assert delta.entries[0].token.logprob is None
    assert delta.index == 2
    assert not prompt_delta(TINY, 0, prompt, None, want_entries=False).entries
    assert len(prompt_delta(TINY, 0, prompt, None, want_entries=True).entries) == 5


def test_an_echoed_prompt_of_a_model_that_puts_a_space_in_front_has_none():
    from onward.rendering.tokenizer import from_gguf

    tokenizer: Tokenizer = from_gguf(sentencepiece_metadata())
    prompt = tokenizer.encode_prompt("hello world")
    delta = prompt_delta(tokenizer, 0, prompt, None, want_entries=True)
    assert delta.text == "<s>hello world" == "".join(spellings(delta))
    assert offsets(delta) == [0, 3, 8]
