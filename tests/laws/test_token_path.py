"""Laws of the token path: a result does not depend on how it was cut, and means what it says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import ChoiceDelta, FinishReason, fold
from onward.core.generate import EngineFinish, ScoredToken
from onward.rendering.token_path import TokenPath, prompt_delta
from tests.unit.rendering.tiny import END, EOT, byte_level

TINY = byte_level()
ENDS = frozenset({END, EOT})
TOKENS = st.lists(
    st.integers(0, TINY.vocab_size - 1) | st.integers(-3, TINY.vocab_size + 3) | st.integers(0, 300),
    max_size=30,
)
STOPS = st.lists(
    st.text("helo wrabc\n😀\ufffd", min_size=1, max_size=4)
    | st.sampled_from(["<|im_start|>", "hello wor", "|>", "\ufffd"]),
    max_size=16,
)


def decoded(tokens: list[int]) -> str:
    return b"".join(TINY.token_bytes(token) for token in tokens).decode("utf-8", "replace")


def make(stops: list[str], entries: bool, want_ids: bool, offset: int = 0) -> TokenPath:
    return TokenPath(
        TINY, index=0, stops=stops, end_token_ids=ENDS, want_entries=entries, want_ids=want_ids, offset=offset
    )


def scored(token: int) -> ScoredToken:
    return ScoredToken(token, -0.25, ((token, -0.25), (7, -3.0)))


def whole(tokens: list[int], stops: list[str], *, entries: bool = True, want_ids: bool = True) -> ChoiceDelta:
    path = make(stops, entries, want_ids)
    for token in tokens:
        path.push(scored(token))
    return path.finish(EngineFinish.LENGTH)


@settings(max_examples=400)
@given(TOKENS, STOPS, st.booleans(), st.booleans(), st.data())
def test_any_cut_equals_the_whole(
    tokens: list[int], stops: list[str], entries: bool, want_ids: bool, data: st.DataObject
):
    path = make(stops, entries, want_ids)
    deltas = []
    for token in tokens:
        path.push(scored(token))
        for _ in range(data.draw(st.integers(0, 2))):
            empty = path.is_empty
            delta = path.take()
            assert empty == (not delta.text and not delta.entries and not delta.token_ids)
            deltas.append(delta)
    deltas.append(path.finish(EngineFinish.LENGTH))
    assert fold(deltas)[0] == whole(tokens, stops, entries=entries, want_ids=want_ids)
    assert all(delta.finish is None for delta in deltas[:-1])


@settings(max_examples=400)
@given(TOKENS, STOPS)
def test_the_text_is_the_decoded_tokens_up_to_the_first_stop(tokens: list[int], stops: list[str]):
    got = whole(tokens, stops)
    accepted: list[int] = []
    expected, finish = None, FinishReason.LENGTH
    for token in tokens:
        ended = token in ENDS
        if not ended:
            accepted.append(token)
        text = decoded(accepted)
        # A character that may still be completed is no text yet, save at the end.
        if not ended:
            text = TINY_prefix(accepted)
        places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
        if places:
            expected, finish = text[: min(places)], FinishReason.STOP
            break
        if ended:
            expected, finish = text, FinishReason.STOP
            break
    if expected is None:
        text = decoded(accepted)
        places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
        expected = text[: min(places)] if places else text
        finish = FinishReason.STOP if places else FinishReason.LENGTH
    assert got.text == expected
    assert got.finish is finish


def TINY_prefix(tokens: list[int]) -> str:  # noqa: N802 - beside TINY
    import codecs

    data = b"".join(TINY.token_bytes(token) for token in tokens)
    return codecs.utf_8_decode(data, "replace", False)[0]


@settings(max_examples=300)
@given(TOKENS, STOPS, st.integers(0, 50))
def test_there_is_an_id_and_an_entry_for_each_token_and_offsets_never_fall(
    tokens: list[int], stops: list[str], offset: int
):
    path = make(stops, True, True, offset)
    for token in tokens:
        path.push(scored(token))
    got = path.finish(EngineFinish.LENGTH)
    assert len(got.entries) == len(got.token_ids) == path.count <= len(tokens)
    assert got.token_ids == tokens[: path.count]
    places = [entry.offset for entry in got.entries]
    assert places == sorted(places)
    assert all(offset <= place <= offset + len(got.text) for place in places)


@settings(max_examples=300)
@given(st.lists(st.integers(0, TINY.vocab_size - 1), max_size=30), STOPS)
def test_whole_tokens_joined_are_the_text_and_their_lengths_the_offsets(tokens: list[int], stops: list[str]):
    tokens = [token for token in tokens if TINY.text_of(token) is not None and token not in ENDS]
    got = whole(tokens, [])
    assert "".join(entry.token.text for entry in got.entries) == got.text
    place = 0
    for entry in got.entries:
        assert entry.offset == place
        place += len(entry.token.text)
    cut = whole(tokens, stops)
    assert got.text.startswith(cut.text)
    for entry, other in zip(cut.entries, got.entries, strict=False):
        assert entry.offset == min(other.offset, len(cut.text))


@settings(max_examples=200)
@given(TOKENS)
def test_an_echo_is_the_decoded_prompt_with_an_entry_for_each_token(tokens: list[int]):
    delta = prompt_delta(TINY, 0, tokens, [scored(token) for token in tokens], want_entries=True)
    assert delta.text == decoded(tokens)
    assert [entry.token.id for entry in delta.entries] == tokens
    assert all(0 <= entry.offset <= len(delta.text) for entry in delta.entries)
