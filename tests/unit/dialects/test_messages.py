"""What the `messages` surface reads, and what it refuses, with the path that it names."""

import base64
from typing import Any

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.request import ChatRequest, ImagePart, Message, TextPart, Thinking, Thought, ToolCall
from onward.dialects import DIALECTS
from onward.wire.errors import encode_failure
from onward.wire.requests import messages_request
from tests.pictures import png

pytestmark = pytest.mark.covers("P-12", "O-4")
USER = {"role": "user", "content": "hi"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
TEXT = {"type": "text", "text": "x"}


def read(dialect: str = "openai", **fields: Any) -> ChatRequest:
    return messages_request(DIALECTS[dialect], {"model": "m", "max_tokens": 5, "messages": [USER], **fields})


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_a_conversation_in_blocks():
    request = read(
        system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Rhyme."}],
        messages=[
            {"role": "user", "content": "Weather?"},
            {"role": "user", "content": [{"type": "text", "text": "In Paris.", "cache_control": {}}]},
            said(
                {"type": "thinking", "thinking": "Look.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "c2VhbA=="},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_use", "id": "b", "name": "now", "input": {}},
                role="assistant",
            ),
            said(
                {"type": "tool_result", "tool_use_id": "a", "content": [TEXT, TEXT]},
                {"type": "tool_result", "tool_use_id": "b", "is_error": True},
                {"type": "text", "text": "And?"},
            ),
        ],
    )
    assert request.messages == [
        Message(role="system", content="Be brief.\nRhyme."),
        Message(role="user", content="Weather?\nIn Paris."),
        Message(
            role="assistant",
            content="I look.",
            reasoning="Look.",
            tool_calls=[ToolCall("a", "weather", '{"city":"Paris"}'), ToolCall("b", "now", "{}")],
            thoughts=[Thought("Look.", "c2ln"), Thought(sealed="c2VhbA==")],
        ),
        Message(role="tool", content="x\nx", tool_call_id="a"),
        Message(role="tool", content="", tool_call_id="b", is_error=True),
        Message(role="user", content="And?"),
    ]
    assert (request.add_generation_prompt, request.continue_final_message) == (True, False)


def test_empty_texts_are_no_lines() -> None:
    empty = {"type": "text", "text": ""}
    request = read(
        system=[empty],
        messages=[
            said(empty, TEXT, empty, TEXT),
            said(CALL, role="assistant"),
            said({"type": "tool_result", "tool_use_id": "toolu_1", "content": [empty]}),
        ],
    )
    assert [message.content for message in request.messages] == ["x\nx", None, ""]


def test_images_know_what_messages_call_them():
    data = base64.b64encode(png(1, 1)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    linked = {"type": "url", "url": "https://example.com/a.png"}
    blocks = [TEXT, TEXT, {"type": "image", "source": source}, {"type": "image", "source": linked}]
    request = read(messages=[USER, {"role": "user", "content": blocks}])
    assert request.messages[0].content == [
        TextPart("hi"),
        TextPart("\nx"),
        TextPart("\nx"),
        ImagePart(f"data:image/png;base64,{data}", path="messages[1].content[2]"),
        ImagePart("https://example.com/a.png", path="messages[1].content[3]"),
    ]


@pytest.mark.parametrize(
    "content", ["Well", [{"type": "text", "text": "We"}, {"type": "text", "text": "ll"}]]
)
def test_what_the_assistant_has_begun_is_continued(content: Any):
    request = read(messages=[USER, {"role": "assistant", "content": content}])
    assert request.messages[-1] == Message(role="assistant", content="Well")
    assert (request.add_generation_prompt, request.continue_final_message) == (False, True)


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_message_of_the_assistant_begins_nothing(content: Any):
    request = read(messages=[USER, {"role": "assistant", "content": content}])
    assert request.messages == [Message(role="user", content="hi")]
    assert (request.add_generation_prompt, request.continue_final_message) == (True, False)


def test_settings():
    request = read(
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        stop_sequences=["a", "b"],
        metadata={"user_id": "u-1"},
        stream=True,
        service_tier="auto",
        container=None,
        betas=["unknown"],
    )
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 3)
    assert (request.stop, request.user, request.stream) == (["a", "b"], "u-1", True)
    assert (request.max_tokens, request.clip_to_context, request.tool_choice) == (5, True, None)


@pytest.mark.parametrize(
    ("sent", "choice", "parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, True),
    ],
)
def test_the_choice_among_tools(sent: Any, choice: Any, parallel: bool):
    request = read(tools=[{**TOOL, "type": "custom", "description": "d", "strict": True}], tool_choice=sent)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert request.tools == [{"type": "function", "function": function}]
    assert (request.tool_choice, request.parallel_tool_calls) == (choice, parallel)


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Thinking(on=True, budget=2048)),
        ({"thinking": {"type": "disabled"}}, Thinking(on=False)),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, Thinking(shown=False)),
        ({"output_config": {"effort": "max"}}, Thinking(effort="max")),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            Thinking(effort="low"),
        ),
    ],
)
def test_the_wish_for_reasoning(fields: dict[str, Any], thinking: Thinking | None):
    assert read(**fields).thinking == thinking


REFUSED: list[tuple[dict[str, Any], str]] = [
    # body, path
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5.0}, "max_tokens"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": [said("x")]}, "messages[0].content[0]"),
    ({"messages": [said({})]}, "messages[0].content[0].type"),
    ({"messages": [said({"type": "text"})]}, "messages[0].content[0].text"),
    ({"messages": [said(TEXT, {"type": "text", "text": 5})]}, "messages[0].content[1].text"),
    ({"messages": [said(CALL)]}, "messages[0].content[0].type"),
    ({"messages": [said({"type": "document", "source": {}})]}, "messages[0].content[0].type"),
    ({"messages": [said({"type": "image"})]}, "messages[0].content[0].source"),
    ({"messages": [said({"type": "image", "source": {}})]}, "messages[0].content[0].source.type"),
    (
        {"messages": [said({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
        "messages[0].content[0].source.type",
    ),
    (
        {"messages": [said({"type": "image", "source": {"type": "base64", "data": "AA=="}})]},
        "messages[0].content[0].source.media_type",
    ),
    (
        {
            "messages": [
                said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}})
            ]
        },
        "messages[0].content[0].source",
    ),
    (
        {"messages": [said({"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}})]},
        "messages[0].content[0].source.url",
    ),
    ({"messages": [said({"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
    (
        {"messages": [said({"type": "tool_result", "tool_use_id": "a", "is_error": "yes"})]},
        "messages[0].content[0].is_error",
    ),
    (
        {"messages": [said({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]})]},
        "messages[0].content[0].content[0].type",
    ),
    ({"messages": [USER, said(CALL, role="assistant")]}, "messages[1].content"),
    (
        {"messages": [USER, said({"type": "thinking", "thinking": "x", "signature": ""}, role="assistant")]},
        "messages[1].content",
    ),
    (
        {"messages": [USER, said({**CALL, "input": "{}"}, role="assistant"), USER]},
        "messages[1].content[0].input",
    ),
    ({"messages": [USER, said({**CALL, "id": None}, role="assistant"), USER]}, "messages[1].content[0].id"),
    ({"messages": [USER, said({**CALL, "name": ""}, role="assistant"), USER]}, "messages[1].content[0].name"),
    (
        {"messages": [USER, said({"type": "redacted_thinking"}, role="assistant"), USER]},
        "messages[1].content[0].data",
    ),
    (
        {"messages": [USER, said({"type": "thinking", "signature": ""}, role="assistant"), USER]},
        "messages[1].content[0].thinking",
    ),
    (
        {"messages": [USER, said({"type": "server_tool_use"}, role="assistant"), USER]},
        "messages[1].content[0].type",
    ),
    ({"messages": [said({"type": "image"}, role="system"), USER]}, "messages[0].content[0].type"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"system": [{"type": "text"}]}, "system[0].text"),
    ({"temperature": 1.5}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": "5"}, "top_k"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"stop_sequences": [5]}, "stop_sequences[0]"),
    ({"stream": "yes"}, "stream"),
    ({"metadata": "u"}, "metadata"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [TOOL, TOOL]}, "tools[1].name"),
    ({"tools": [{**TOOL, "description": 5}]}, "tools[0].description"),
    ({"tools": [{**TOOL, "strict": 1}]}, "tools[0].strict"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{**TOOL, "type": 5}]}, "tools[0].type"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
        "tool_choice.disable_parallel_tool_use",
    ),
    ({"thinking": True}, "thinking"),
    ({"thinking": {}}, "thinking.type"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": "none"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format.type"),
]


@pytest.mark.parametrize(("fields", "path"), REFUSED, ids=str)
@pytest.mark.parametrize("dialect", ["openai", "prentis"])
def test_what_is_wrong_is_named(dialect: str, fields: dict[str, Any], path: str):
    with pytest.raises(Failure) as refused:
        read(dialect, **fields)
    failure = refused.value
    assert (failure.kind, failure.param) == (FailureKind.INVALID_REQUEST, path)
    surface = DIALECTS[dialect].surfaces["messages"]
    encoded = encode_failure(DIALECTS[dialect], failure, surface.failures, "r-1")
    assert encoded.status == 400
    assert path in encoded.body.decode()
    assert encoded.body.startswith(b'{"type":"error","error":{"type":"invalid_request_error","message":"')
    assert encoded.body.endswith(b'"},"request_id":"r-1"}')
