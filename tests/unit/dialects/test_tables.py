"""The tables themselves: complete, documented, and true to what is read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward.core.failure import FailureKind
from onward.dialects import DIALECTS
from onward.dialects.describe import json_schema, words
from onward.dialects.document import document
from onward.dialects.interpreter import read
from onward.dialects.openapi import openapi
from onward.dialects.schema import Action, Dialect
from onward.dialects.values import AnyObject, Value

PAGE = Path(__file__).parents[3] / "docs" / "dialects.md"
EVERY = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
SURFACES = {
    "completions",
    "chat",
    "messages",
    "models",
    "model",
    "tokenize",
    "detokenize",
    "tokenizer_info",
    "render",
}


@EVERY
@pytest.mark.covers("O-5")
def test_every_kind_of_failure_has_a_row(dialect: Dialect) -> None:
    assert set(dialect.errors) == set(FailureKind)
    for row in dialect.errors.values():
        assert 400 <= row.status < 600
        assert row.type
        assert row.code


@EVERY
def test_every_field_is_described(dialect: Dialect) -> None:
    assert set(dialect.surfaces) <= SURFACES
    for name, surface in dialect.surfaces.items():
        assert name == surface.name
        for field in surface.fields:
            assert field.note.endswith("."), f"{name}.{field.name}"
            if field.action is Action.ACCEPT:
                assert words(field.value)
                assert json_schema(field.value)


@EVERY
def test_every_default_is_a_value_that_is_taken(dialect: Dialect) -> None:
    for surface in dialect.surfaces.values():
        for field in surface.fields:
            if field.default in (None, ""):
                continue
            alone = msgspec.structs.replace(surface, fields=(field,), rules=(), constants={})
            assert read(alone, {field.name: field.default}) == read(alone, {})


@EVERY
def test_only_known_types_of_values_are_described(dialect: Dialect) -> None:
    class Strange(Value, frozen=True, kw_only=True):
        """A type that nobody taught to the documentation."""

    assert words(AnyObject()) == "object"
    with pytest.raises(TypeError):
        words(Strange())
    with pytest.raises(TypeError):
        json_schema(Strange())


def test_the_page_is_what_the_tables_say() -> None:
    """To bring it up to date: python -m onward.dialects.document > docs/dialects.md."""
    assert PAGE.read_text("utf-8") == document(DIALECTS.values())


@EVERY
def test_openapi_lists_what_is_served(dialect: Dialect) -> None:
    made = openapi(dialect, "/v1", "1.0")
    assert made["openapi"] == "3.1.0"
    assert {(path, method) for path, operations in made["paths"].items() for method in operations} == {
        (surface.path, surface.method.lower()) for surface in dialect.surfaces.values()
    }
    references = _references(made)
    assert references
    for reference in references:
        found: Any = made
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
    msgspec.json.encode(made)


def test_openapi_says_what_a_completion_may_hold() -> None:
    paths = openapi(DIALECTS["openai"], "/v1", "1.0")["paths"]
    schema = paths["/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["model"]
    assert schema["properties"]["n"] == {
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": 128}, {"type": "null"}],
        "description": "Choices for each prompt.",
        "default": 1,
    }
    assert schema["properties"]["prompt_chunks"]["anyOf"][0]["type"] == "array"
    chat = paths["/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat["properties"]["max_tokens"] == chat["properties"]["max_completion_tokens"]


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*[_references(item) for item in value.values()])
    if isinstance(value, list):
        return set().union(*[_references(item) for item in value])
    return set()
