"""Answers of the dialects that OpenAI's SDK talks to, validated by the SDK's own types."""

import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from onward.dialects.openai import OPENAI
from onward.dialects.tinker import TINKER
from onward.routing.catalog import Model as CatalogModel
from onward.wire.models import model_body
from tests.golden.test_transcripts import CASES, transcript
from tests.unit.wire.encoders import events

DIALECTS = pytest.mark.parametrize("dialect", [OPENAI.name, TINKER.name])


def parts(dialect: str, case: str) -> tuple[bytes, bytes]:
    """The unstreamed answer and the stream of a transcript."""
    text = transcript(dialect, case)
    whole, _, rest = text.removeprefix(b"# unstreamed\n").partition(b"\n\n# streamed\n")
    return whole, rest.partition(b"\n# broken off")[0]


@DIALECTS
@pytest.mark.covers("O-1")
def test_completions_are_what_the_sdk_expects(dialect: str) -> None:
    whole, stream = parts(dialect, "completions-plain")
    assert Completion.model_validate_json(whole).choices[0].finish_reason == "stop"
    # a stream's pieces have no finish reason yet, which the SDK's type does not know
    for event in events(stream)[-2:-1]:
        assert Completion.model_validate(event).object == "text_completion"


@DIALECTS
@pytest.mark.covers("O-2")
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("chat")])
def test_chats_are_what_the_sdk_expects(dialect: str, case: str) -> None:
    whole, stream = parts(dialect, case)
    assert ChatCompletion.model_validate_json(whole).object == "chat.completion"
    found = events(stream)
    assert found.pop() == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(event) for event in found]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.id for chunk in chunks} == {"chatcmpl-0001"}


@pytest.mark.covers("O-4")
def test_a_model_is_what_the_sdk_expects() -> None:
    model = Model.model_validate_json(model_body(CatalogModel(id="org/m", context_length=10, created=5)))
    assert (model.id, model.created, model.object) == ("org/m", 5, "model")
