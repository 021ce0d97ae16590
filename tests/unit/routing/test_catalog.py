"""Finding models."""

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.reference import ModelReference
from onward.dialects.openai import OPENAI
from onward.dialects.reference import parse
from onward.dialects.schema import Dialect
from onward.dialects.tinker import TINKER
from onward.routing.catalog import Catalog, Model

FIRST = Model(id="org/first", aliases=("gpt-x",), context_length=10)
SECOND = Model(id="second", context_length=10)
CATALOG = Catalog([FIRST, SECOND])


@pytest.mark.covers("O-3", "TC-1")
@pytest.mark.parametrize("dialect", [OPENAI, TINKER], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("text", "base", "checkpoint"),
    [
        ("org/first", "org/first", None),
        ("gpt-x", "gpt-x", None),
        ("org/first:peft:8192", "org/first", None),
        ("org/first:peft:x", "org/first:peft:x", None),
        (
            "tinker://run:train:0/sampler_weights/n:peft:1",
            None,
            "tinker://run:train:0/sampler_weights/n:peft:1",
        ),
        ("tinker://run/sampler_weights/name", None, "tinker://run/sampler_weights/name"),
        ("org/first;tinker://r/sampler_weights/n", "org/first", "tinker://r/sampler_weights/n"),
        ("org/first:peft:8192;tinker://r/sampler_weights/n", "org/first", "tinker://r/sampler_weights/n"),
    ],
)
def test_a_reference_is_taken_apart(
    dialect: Dialect, text: str, base: str | None, checkpoint: str | None
) -> None:
    assert parse(dialect, text) == ModelReference(text, base, checkpoint)


def test_a_model_is_found_by_any_of_its_names() -> None:
    for text in ("org/first", "gpt-x", "org/first:peft:8192"):
        assert CATALOG.find(parse(OPENAI, text)) is FIRST
    assert CATALOG.find(parse(OPENAI, "second")) is SECOND
    assert list(CATALOG) == [FIRST, SECOND]
    assert len(CATALOG) == 2


@pytest.mark.covers("O-4")
def test_where_none_is_named_the_first_one_answers() -> None:
    assert CATALOG.find_or_first(parse(OPENAI, "")) is FIRST
    assert CATALOG.find_or_first(parse(OPENAI, "second")) is SECOND
    with pytest.raises(Failure):
        CATALOG.find(parse(OPENAI, ""))


@pytest.mark.covers("O-5")
@pytest.mark.parametrize("text", ["nope", "x" * 5000, "tinker://r/sampler_weights/n", "second;x"])
def test_an_unknown_model_is_told_what_there_is(text: str) -> None:
    with pytest.raises(Failure) as caught:
        CATALOG.find(parse(OPENAI, text))
    failure = caught.value
    assert (failure.kind, failure.param) == (FailureKind.UNKNOWN_MODEL, "model")
    assert "'org/first', 'second'" in failure.message
    assert len(failure.message) < 300


def test_a_long_catalog_is_not_recited() -> None:
    many = Catalog([Model(id=f"m{number}", context_length=1) for number in range(50)])
    with pytest.raises(Failure) as caught:
        many.find(parse(OPENAI, "nope"))
    assert "and 45 more" in caught.value.message


@pytest.mark.covers("TC-1")
def test_a_public_repository_names_the_first_model_out_of_it() -> None:
    small = Model(id="small", repo="org/Public", context_length=1)
    large = Model(id="large", repo="org/Public", context_length=1)
    taken = Model(id="org/Taken", context_length=1)
    other = Model(id="other", repo="org/Taken", context_length=1)
    found = Catalog([small, large, other, taken])
    assert found.find(parse(TINKER, "org/Public")) is small
    assert found.find(parse(TINKER, "org/Public:peft:262144")) is small
    assert found.find(parse(TINKER, "org/Taken")) is taken


def test_a_name_belongs_to_one_model() -> None:
    with pytest.raises(ValueError, match="already names"):
        Catalog([FIRST, Model(id="third", aliases=("gpt-x",), context_length=1)])
    with pytest.raises(ValueError, match="already names"):
        Catalog([FIRST, Model(id="third", aliases=("org/first",), context_length=1)])
    with pytest.raises(ValueError, match="two models"):
        Catalog([FIRST, FIRST])
