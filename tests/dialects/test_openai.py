"""The `openai` dialect, a row for each statement: bodies that are taken, and bodies that are not.

A refused body is a 400 in OpenAI's shape whose `param` names the field (O-5), and its message
says what to change.
"""

import json
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.generate import Sampling
from onward.core.request import (
    ChatRequest,
    CompletionRequest,
    ImagePart,
    Message,
    TextPart,
    TokensPart,
    ToolCall,
)
from onward.dialects.openai import OPENAI
from onward.wire.body import decode_body
from onward.wire.errors import encode_failure
from onward.wire.requests import (
    chat_request,
    completion_request,
    detokenize_request,
    render_request,
    tokenize_request,
)
from tests.dialects.openai_refusals import CALL, REFUSED_CHATS, REFUSED_COMPLETIONS, TOOL, USER

PIXELS = "data:image/png;base64,iVBORw0KGgo="


def completion(**body: Any) -> CompletionRequest:
    return completion_request(OPENAI, {"model": "m", "prompt": "p", **body})


def chat(**body: Any) -> ChatRequest:
    return chat_request(OPENAI, {"model": "m", "messages": [USER], **body})


READ_COMPLETIONS = [
    # statement, body, what the request then holds
    (
        "O-1",
        {},
        {
            "prompts": ["p"],
            "batch": False,
            "max_tokens": None,
            "unset_max_tokens": 16,
            "n": 1,
            "sampling": Sampling(),
        },
    ),
    ("O-1", {"prompt": ["a", "b"]}, {"prompts": ["a", "b"], "batch": True}),
    ("O-1", {"prompt": [1, 2, 3]}, {"prompts": [[1, 2, 3]], "batch": False}),
    ("O-1", {"prompt": [[1, 2], [3]]}, {"prompts": [[1, 2], [3]], "batch": True}),
    ("TC-3", {"prompt": [[5, 0, 5]]}, {"prompts": [[5, 0, 5]], "batch": True}),
    ("O-1", {"prompt": ["text"]}, {"prompts": ["text"], "batch": True}),
    ("O-1", {"n": 3, "best_of": 5}, {"n": 3, "best_of": 5}),
    ("O-1", {"echo": True, "logprobs": 1, "max_tokens": 0}, {"echo": True, "logprobs": 1, "max_tokens": 0}),
    ("O-1", {"suffix": "end"}, {"suffix": "end"}),
    ("O-1", {"suffix": ""}, {"suffix": None}),
    ("O-1", {"user": "someone"}, {"user": "someone"}),
    ("O-1", {"logit_bias": {"5": 1, "7": -100}}, {"sampling": Sampling(logit_bias={5: 1.0, 7: -100.0})}),
    (
        "O-1",
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"sampling": Sampling(presence_penalty=-2.0, frequency_penalty=2.0)},
    ),
    ("O-1", {"stream": True, "n": 2}, {"stream": True, "n": 2, "include_usage": False}),
    ("TC-5", {"temperature": 0}, {"sampling": Sampling(temperature=0.0)}),
    ("TC-5", {"top_p": 0.5, "top_k": 7}, {"sampling": Sampling(top_p=0.5, top_k=7)}),
    ("TC-5", {"top_k": -1}, {"sampling": Sampling(top_k=0)}),
    ("TC-5", {"top_k": 0}, {"sampling": Sampling(top_k=0)}),
    ("TC-5", {"seed": -(2**63)}, {"sampling": Sampling(seed=-(2**63))}),
    ("TC-5", {"seed": 2**63 - 1}, {"sampling": Sampling(seed=2**63 - 1)}),
    ("TC-6", {"stop": "x"}, {"stop": ["x"], "stop_token_ids": []}),
    ("TC-6", {"stop": ["x", "y", "x"]}, {"stop": ["x", "y", "x"]}),
    ("TC-6", {"stop": [2, 0]}, {"stop": [], "stop_token_ids": [2, 0]}),
    ("TC-6", {"stop": []}, {"stop": [], "stop_token_ids": []}),
    ("TC-6", {"stop": ["x"] * 16}, {"stop": ["x"] * 16}),
    ("O-3", {"stop": ["x"], "stop_token_ids": [7]}, {"stop": ["x"], "stop_token_ids": [7]}),
    ("TC-7", {"stream": True, "stream_options": {"include_usage": True}}, {"include_usage": True}),
    ("TC-7", {"stream": True, "stream_options": {"include_usage": None}}, {"include_usage": False}),
    ("TC-7", {"stream": True, "stream_options": {}}, {"include_usage": False}),
    (
        "TC-7",
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"include_usage": True, "continuous_usage": True},
    ),
    ("TC-8", {"return_token_ids": True}, {"return_token_ids": True}),
    ("TC-9", {"logprobs": 0}, {"logprobs": 0}),
    ("TC-9", {"logprobs": 20}, {"logprobs": 20}),
    ("TC-9", {"logprobs": None}, {"logprobs": None}),
    (
        "O-3",
        {"min_p": 0.1, "repetition_penalty": 1.1},
        {"sampling": Sampling(min_p=0.1, repetition_penalty=1.1)},
    ),
    (
        "O-3",
        {"prompt": None, "prompt_chunks": [{"type": "tokens", "tokens": [5, 6]}]},
        {"prompts": [], "prompt_chunks": [TokensPart([5, 6])]},
    ),
    ("O-3", {"ignore_eos": True, "min_tokens": 4}, {"ignore_eos": True, "min_tokens": 4}),
    ("O-1", {"no_such_field": {"a": [1]}, "metadata": 5}, {"prompts": ["p"]}),
]


@pytest.mark.covers("O-1", "O-3", "TC-3", "TC-5", "TC-6", "TC-7", "TC-8", "TC-9")
@pytest.mark.parametrize(("statement", "body", "expected"), READ_COMPLETIONS, ids=str)
def test_a_completion_is_read(statement: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    request = completion(**body)
    assert {name: getattr(request, name) for name in expected} == expected


READ_CHATS = [
    ("O-2", {}, {"max_tokens": None, "logprobs": None, "add_generation_prompt": True}),
    ("O-2", {"max_tokens": 5}, {"max_tokens": 5}),
    ("O-2", {"max_completion_tokens": 7}, {"max_tokens": 7}),
    ("O-2", {"max_tokens": 5, "max_completion_tokens": 7}, {"max_tokens": 7}),
    ("O-2", {"max_completion_tokens": 7, "max_tokens": 5}, {"max_tokens": 7}),
    ("O-2", {"max_tokens": 5, "max_completion_tokens": None}, {"max_tokens": 5}),
    ("O-2", {"logprobs": True}, {"logprobs": 0}),
    ("O-2", {"logprobs": True, "top_logprobs": 20}, {"logprobs": 20}),
    ("O-2", {"logprobs": False}, {"logprobs": None}),
    ("O-2", {"tools": []}, {"tools": []}),
    ("O-2", {"tools": [], "tool_choice": "auto"}, {"tools": [], "tool_choice": "auto"}),
    ("O-2", {"tools": [TOOL], "tool_choice": "required"}, {"tools": [TOOL], "tool_choice": "required"}),
    (
        "O-2",
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    ("O-2", {"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    (
        "O-2",
        {"response_format": {"type": "text"}, "modalities": ["text"]},
        {"messages": [Message(role="user", content="hi")]},
    ),
    ("O-2", {"n": 2}, {"n": 2}),
    ("O-3", {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    ("O-3", {"reasoning_effort": 0.5}, {"reasoning_effort": 0.5}),
    ("O-3", {"reasoning_effort": True}, {"reasoning_effort": True}),
    ("O-3", {"separate_reasoning": False}, {"separate_reasoning": False}),
    ("O-3", {"return_token_ids": True}, {"return_token_ids": True}),
    ("O-3", {"chat_template_kwargs": {"a": 1}}, {"template_kwargs": {"a": 1}}),
    (
        "O-3",
        {"continue_final_message": True},
        {"continue_final_message": True, "add_generation_prompt": False},
    ),
    (
        "O-3",
        {"add_generation_prompt": False},
        {"continue_final_message": False, "add_generation_prompt": False},
    ),
]


@pytest.mark.covers("O-2", "O-3")
@pytest.mark.parametrize(("statement", "body", "expected"), READ_CHATS, ids=str)
def test_a_chat_is_read(statement: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    request = chat(**body)
    assert {name: getattr(request, name) for name in expected} == expected


READ_MESSAGES = [
    (USER, Message(role="user", content="hi")),
    ({"role": "developer", "content": "x"}, Message(role="developer", content="x")),
    ({"role": "user", "content": "x", "name": "n"}, Message(role="user", content="x", name="n")),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        Message(role="user", content=[TextPart("a")]),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": PIXELS, "detail": "low"}}],
        },
        Message(role="user", content=[ImagePart(PIXELS, "low")]),
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com/a.png"}]},
        Message(role="user", content=[ImagePart("https://example.com/a.png")]),
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        Message(role="assistant", tool_calls=[ToolCall("call_1", "f", "{}")]),
    ),
    (
        {"role": "assistant", "tool_calls": [CALL]},
        Message(role="assistant", tool_calls=[ToolCall("call_1", "f", "{}")]),
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]},
        Message(role="assistant", tool_calls=[ToolCall("1", "f", "")]),
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        Message(role="assistant", tool_calls=[ToolCall("1", "f", "")]),
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{bad"}}]},
        Message(role="assistant", tool_calls=[ToolCall("1", "f", "{bad")]),
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
        Message(role="assistant", tool_calls=[ToolCall("1", "f", '{"a":1}')]),
    ),
    (
        {"role": "assistant", "content": "x", "reasoning_content": "r", "tool_calls": None, "name": None},
        Message(role="assistant", content="x", reasoning="r"),
    ),
    ({"role": "assistant", "reasoning": "r"}, Message(role="assistant", reasoning="r")),
    ({"role": "assistant", "refusal": "no"}, Message(role="assistant", content="no")),
    (
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        Message(role="assistant", tool_calls=[ToolCall("", "f", "{}")]),
    ),
    (
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}]},
        Message(role="tool", content=[TextPart("a")], tool_call_id="1"),
    ),
    ({"role": "function", "name": "f", "content": "x"}, Message(role="tool", content="x", name="f")),
]


@pytest.mark.covers("O-2")
@pytest.mark.fault("D23")
@pytest.mark.parametrize(("message", "expected"), READ_MESSAGES, ids=str)
def test_messages_that_agents_send_are_read(message: dict[str, Any], expected: Message) -> None:
    assert chat(messages=[USER, message]).messages[1] == expected


def refusal(read: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    with pytest.raises(Failure) as caught:
        read(**body)
    encoded = encode_failure(OPENAI, caught.value)
    return encoded.status, json.loads(encoded.body)["error"]


@pytest.mark.covers("O-5")
@pytest.mark.fault("D06", "D07", "D09")
@pytest.mark.parametrize(
    ("read", "body", "param"),
    [(completion, *row) for row in REFUSED_COMPLETIONS] + [(chat, *row) for row in REFUSED_CHATS],
    ids=lambda value: getattr(value, "__name__", str(value))[:60],
)
def test_a_wrong_field_is_refused_by_name(read: Any, body: dict[str, Any], param: str) -> None:
    status, error = refusal(read, body)
    assert status == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "invalid_request",
        param,
    )
    assert param.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] in error["message"]
    assert len(error["message"]) < 400


CALLED = [{"role": "assistant", "tool_calls": [{}]}]
PICTURE = [{"role": "user", "content": [{"type": "image_url"}]}]


@pytest.mark.parametrize(
    ("read", "body", "message"),
    [
        (completion, {"seed": 2**63}, "'seed' must be at most 9223372036854775807, not 9223372036854775808."),
        (
            completion,
            {"seed": -(2**63) - 1},
            "'seed' must be at least -9223372036854775808, not -9223372036854775809.",
        ),
        (completion, {"temperature": 2.5}, "'temperature' must be at most 2, not 2.5."),
        (completion, {"top_p": 0}, "'top_p' must be above 0, not 0."),
        (chat, {"tools": [{"type": "function"}]}, "'tools[0].function' is required: an object."),
        (chat, {"tools": [{"function": {}}]}, "'tools[0].function.name' is required: a string."),
        (chat, {"tools": [None]}, "'tools[0]' must be an object, not null."),
        (chat, {"tool_choice": {}}, "'tool_choice.type' is required: 'function'."),
        (chat, {"tool_choice": {"type": "x"}}, "'tool_choice.type' must be 'function', not 'x'."),
        (chat, {"messages": [None]}, "'messages[0]' must be an object, not null."),
        (chat, {"messages": CALLED}, "'messages[0].tool_calls[0].id' is required: a string."),
        (
            chat,
            {"messages": PICTURE},
            "'messages[0].content[0].image_url' is required: an object with a 'url'.",
        ),
        (
            completion,
            {"prompt": None, "prompt_chunks": [{"type": "tokens"}]},
            "'prompt_chunks[0].tokens' is required: an array of token IDs.",
        ),
    ],
)
@pytest.mark.covers("O-5")
def test_messages_say_what_is_wrong(read: Any, body: dict[str, Any], message: str) -> None:
    """What is missing is called so, and whole numbers stand there in full."""
    status, error = refusal(read, body)
    assert (status, error["message"]) == (400, message)


@pytest.mark.fault("D07")
@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(constant: str) -> None:
    with pytest.raises(Failure):
        decode_body(b'{"temperature": %b}' % constant.encode())
    status, error = refusal(completion, {"temperature": float("nan")})
    assert (status, error["param"]) == (400, "temperature")


@pytest.mark.fault("D08")
@pytest.mark.parametrize("surface", ["completions", "chat", "tokenize", "render"])
def test_null_is_absent_for_every_optional_field(surface: str) -> None:
    """The same request as when all are absent: generated from the table itself."""
    read, required = {
        "completions": (completion_request, {"model": "m", "prompt": "p"}),
        "chat": (chat_request, {"model": "m", "messages": [USER]}),
        "tokenize": (tokenize_request, {"prompt": "p"}),
        "render": (render_request, {"messages": [USER]}),
    }[surface]
    fields = [field for field in OPENAI.surfaces[surface].fields if field.name not in required]
    names = [name for field in fields for name in (field.name, *field.aliases)]
    assert len(names) > 4
    nulls: dict[str, Any] = dict.fromkeys(names)
    assert read(OPENAI, {**required, **nulls}) == read(OPENAI, required)
    for name in names:
        assert read(OPENAI, {**required, name: None}) == read(OPENAI, required)


@pytest.mark.covers("O-4")
def test_tokens_are_asked_for_without_a_model() -> None:
    assert tokenize_request(OPENAI, {"prompt": "x"}).model == ""
    assert tokenize_request(OPENAI, {"prompt": ""}).prompt == ""
    assert tokenize_request(OPENAI, {"prompt": "x", "add_special_tokens": False}).add_special_tokens is False
    asked = tokenize_request(OPENAI, {"messages": [USER], "model": "m"})
    assert asked.chat is not None
    assert asked.chat.messages == [Message(role="user", content="hi")]
    assert detokenize_request(OPENAI, {"tokens": [1, 2]}).tokens == [1, 2]
    assert detokenize_request(OPENAI, {"tokens": []}).tokens == []
    assert render_request(OPENAI, {"messages": [USER], "tools": [TOOL]}).tools == [TOOL]


@pytest.mark.covers("O-4", "O-5")
@pytest.mark.parametrize(
    ("read", "body", "param"),
    [
        (tokenize_request, {}, "prompt"),
        (tokenize_request, {"prompt": "x", "messages": [USER]}, "prompt"),
        (tokenize_request, {"prompt": ["x"]}, "prompt"),
        (detokenize_request, {}, "tokens"),
        (detokenize_request, {"tokens": "x"}, "tokens"),
        (detokenize_request, {"tokens": [1, -1]}, "tokens[1]"),
        (render_request, {}, "messages"),
    ],
)
def test_questions_about_tokens_are_checked(read: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(Failure) as caught:
        read(OPENAI, body)
    assert caught.value.param == param


def test_a_message_never_repeats_more_than_a_little_of_the_input() -> None:
    long = "x" * 100_000
    for body in (
        {"stop": long},
        {"logit_bias": {long: 1}},
        {"user": long},
        {"prompt": [long, 5]},
        {"seed": 10**4000},
    ):
        with pytest.raises(Failure) as caught:
            completion(**body)
        assert len(caught.value.message) < 300
    with pytest.raises(Failure) as caught:
        chat(messages=[{"role": long, "content": ""}])
    assert len(caught.value.message) < 300
