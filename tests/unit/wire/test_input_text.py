"""Which texts of a body reach a model, and under which path."""

from typing import Any

import pytest

from onward.core.content_filter import ContentFilter
from onward.wire.input_text import blocked_text, unreadable_prompt

CONTENT = ContentFilter.of(["secret"], [])


def blocked(body: dict[str, Any], fields: Any = None) -> str | None:
    found = blocked_text(CONTENT, body, fields)
    return None if found is None else found[0]


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content, **more}]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"prompt": "a secret"}, "prompt"),
        ({"prompt": ["a", "a secret"]}, "prompt[1]"),
        ({"prompt": "a", "suffix": "secret"}, "suffix"),
        ({"system": [{"type": "text", "text": "secret"}]}, "system[0].text"),
        (user("secret"), "messages[0].content"),
        (user([{"type": "text", "text": "a sec"}, {"type": "text", "text": "ret"}]), "messages[0].content"),
        (user("a", name="secret"), "messages[0].name"),
        ({"messages": [{"role": "a secret role", "content": "a"}]}, "messages[0].role"),
        (user(None, reasoning_content="secret"), "messages[0].reasoning_content"),
        (
            user(None, tool_calls=[{"function": {"name": "f", "arguments": r'{"a": "s\u0065cret"}'}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            user(
                [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "secret"}]}]
            ),
            "messages[0].content[0].content[0].text",
        ),
        (
            user([{"type": "tool_use", "id": "t", "name": "f", "input": {"q": ["secret"]}}]),
            "messages[0].content[0].input.q[0]",
        ),
        (
            user([{"type": "document", "source": {"type": "text", "data": "secret"}}]),
            "messages[0].content[0].source.data",
        ),
        (
            user([{"type": "thinking", "thinking": "secret", "signature": "x"}]),
            "messages[0].content[0].thinking",
        ),
        ({"tools": [{"name": "f", "description": "secret"}]}, "tools[0].description"),
        ({"tools": [{"input_schema": {"properties": {"secret": {}}}}]}, "tools[0].input_schema.properties"),
        (
            {"tools": [{"input_schema": {"properties": {"type": {"enum": ["secret"]}}}}]},
            "tools[0].input_schema.properties.type.enum[0]",
        ),
        ({"response_format": {"json_schema": {"name": "secret"}}}, "response_format.json_schema.name"),
        ({"prediction": {"content": "secret"}}, "prediction.content"),
        ({"chat_template_kwargs": {"x": "secret"}}, "chat_template_kwargs.x"),
        ({"tools": [{"type": {"a": 1}, "x": "secret"}]}, "tools[0].x"),
        (user([{"type": {"a": []}, "text": "secret"}]), "messages[0].content[0].text"),
        (user([{"type": "file", "file": {"filename": "secret"}}]), "messages[0].content[0].file.filename"),
        ({"anything": {"new": [[["secret"]]]}}, "anything.new[0][0][0]"),
    ],
)
def test_a_text_that_reaches_the_model(body: dict[str, Any], path: str):
    assert blocked(body) == path


@pytest.mark.parametrize(
    "body",
    [
        {"model": "secret", "user": "secret", "stop": ["secret"], "metadata": {"a": "secret"}},
        user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,secret"}}]),
        user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "secret"}}]),
        user([{"type": "input_audio", "input_audio": {"data": "secret", "format": "wav"}}]),
        user([{"type": "file", "file": {"file_data": "data:application/pdf;base64,secret"}}]),
        user([{"type": "redacted_thinking", "data": "secret"}]),
        user([{"type": "thinking", "thinking": "a", "signature": "secret"}]),
        user("a", content_length=7),
        {"prompt": None, "messages": None, "tools": []},
        {"prompt": [1, 2, [3]]},
    ],
    ids=range(10),
)
def test_what_is_no_text_of_the_prompt(body: dict[str, Any]):
    assert blocked(body) is None


def test_only_fields_that_are_read_count_where_that_is_known():
    body = {"prompt": "fine", "unknown": "secret"}
    assert blocked(body) == "unknown"
    assert blocked(body, {"prompt"}) is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1], "a"]}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "prompt_token_ids"),
        ({"input_ids": [[1]]}, "input_ids"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"prompt_chunks": [{"type": "tokens", "tokens": [1]}]}, "prompt_chunks"),
        ({"prompt": "a"}, None),
        ({"prompt": ["a", "b"]}, None),
        ({"prompt": []}, None),
        ({"prompt": None}, None),
        ({"messages": [{"role": "user", "content": "a"}]}, None),
    ],
    ids=str,
)
def test_prompts_that_nobody_can_read(body: dict[str, Any], field: str | None):
    assert unreadable_prompt(body) == field
