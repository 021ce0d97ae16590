"""The `tinker` dialect, a row for each statement: bodies that are taken, and bodies that are not.

What the real model then answers is in `test_tinker_completions.py` and `test_tinker_chat.py`.
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
from onward.dialects.tinker import TINKER
from onward.wire.errors import encode_failure
from onward.wire.requests import chat_request, completion_request
from tests.dialects.tinker_refusals import (
    CALL,
    PNG,
    REFUSED_CHATS,
    REFUSED_COMPLETIONS,
    TOOL,
    USER,
    image,
    tokens,
)


def completion(**body: Any) -> CompletionRequest:
    return completion_request(TINKER, {"model": "m", "prompt": "p", **body})


def chat(**body: Any) -> ChatRequest:
    return chat_request(TINKER, {"model": "m", "messages": [USER], **body})


TO_THE_END = {"max_tokens": None, "clip_to_context": True, "n": 1, "sampling": Sampling()}
UNLISTED = {
    "n": 5,
    "best_of": 7,
    "echo": True,
    "suffix": "x",
    "logit_bias": "nonsense",
    "presence_penalty": 99,
    "frequency_penalty": 99,
    "min_p": 99,
    "min_tokens": -1,
    "ignore_eos": 1,
    "user": 5,
    "response_format": {"type": "json_schema"},
    "no_such_field": [1],
}
READ_COMPLETIONS = [
    # statement, body, what the request then holds
    ("TC-2", {"prompt": "a"}, {"prompts": ["a"]}),
    ("TC-2", {"prompt": ["a"]}, {"prompts": ["a"]}),
    ("TC-2", {"prompt": [5, 6]}, {"prompts": [[5, 6]]}),
    ("TC-2", {"prompt": [[5, 6]]}, {"prompts": [[5, 6]]}),
    ("TC-3", {"prompt": [0, 0, 7]}, {"prompts": [[0, 0, 7]]}),
    ("TC-4", {}, TO_THE_END),
    ("TC-4", {"max_tokens": 2**31 - 1}, {"max_tokens": 2**31 - 1, "clip_to_context": True}),
    ("TC-5", {"temperature": 0}, {"sampling": Sampling(temperature=0.0)}),
    ("TC-5", {"temperature": 2.5}, {"sampling": Sampling(temperature=2.5)}),
    ("TC-5", {"temperature": 1e300}, {"sampling": Sampling(temperature=1e300)}),
    ("TC-5", {"top_p": 1e-9, "top_k": 3}, {"sampling": Sampling(top_p=1e-9, top_k=3)}),
    ("TC-5", {"top_k": -1}, {"sampling": Sampling(top_k=0)}),
    ("TC-5", {"top_k": 0}, {"sampling": Sampling(top_k=0)}),
    ("TC-5", {"seed": -1}, {"sampling": Sampling(seed=-1)}),
    ("TC-6", {"stop": "x"}, {"stop": ["x"]}),
    ("TC-6", {"stop": ["x"] * 3000}, {"stop": ["x"] * 3000}),
    ("TC-6", {"stop": [1, 0]}, {"stop": [], "stop_token_ids": [1, 0]}),
    ("TC-6", {"stop": []}, {"stop": [], "stop_token_ids": []}),
    ("TC-7", {"stream": True, "stream_options": {"include_usage": True}}, {"include_usage": True}),
    ("TC-7", {"stream_options": {"include_usage": True}}, {"stream": False}),
    (
        "TC-7",
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"include_usage": True, "continuous_usage": False},
    ),
    ("TC-8", {"return_token_ids": True}, {"return_token_ids": True}),
    ("TC-9", {"logprobs": 0}, {"logprobs": 0}),
    ("TC-9", {"logprobs": 20}, {"logprobs": 20}),
    (
        "TC-10",
        {"prompt": None, "prompt_chunks": [tokens(5), image(PNG), tokens(6, 7)]},
        {"prompts": [], "prompt_chunks": [TokensPart([5]), ImagePart(PNG), TokensPart([6, 7])]},
    ),
    ("TC-12", UNLISTED, {**TO_THE_END, "echo": False, "suffix": None, "best_of": None, "user": None}),
]


@pytest.mark.covers("TC-2", "TC-4", "TC-5", "TC-12")
@pytest.mark.parametrize(
    ("statement", "body", "expected"), READ_COMPLETIONS, ids=lambda value: str(value)[:60]
)
def test_a_completion_is_read(statement: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    request = completion(**body)
    assert {name: getattr(request, name) for name in expected} == expected


UNLISTED_IN_CHATS = {
    **UNLISTED,
    "return_token_ids": 5,
    "chat_template_kwargs": 5,
    "add_generation_prompt": 5,
    "continue_final_message": 5,
    "functions": 5,
    "modalities": ["audio"],
}
READ_CHATS = [
    ("TH-3", {"reasoning_effort": "none"}, {"reasoning_effort": "none"}),
    ("TH-3", {"reasoning_effort": 0.99}, {"reasoning_effort": 0.99}),
    ("TH-3", {"reasoning_effort": 1}, {"reasoning_effort": 1.0}),
    ("TH-3", {"reasoning_effort": -7.5}, {"reasoning_effort": -7.5}),
    ("TH-3", {}, {"reasoning_effort": None}),
    ("TH-5", {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": None}),
    ("TH-5", {"tools": []}, {"tools": []}),
    ("TH-6", {"tools": [TOOL], "tool_choice": "required"}, {"tool_choice": "required"}),
    (
        "TH-6",
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    ("TH-6", {"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ("TH-9", {"response_format": {"type": "json_object"}}, {**TO_THE_END}),
    ("TH-13", {}, {**TO_THE_END, "logprobs": None, "add_generation_prompt": True}),
    ("TH-13", {"max_completion_tokens": 7, "max_tokens": 5}, {"max_tokens": 7}),
    ("TH-13", {"max_tokens": 5}, {"max_tokens": 5}),
    ("TH-13", {"logprobs": True}, {"logprobs": 0}),
    ("TH-13", {"logprobs": True, "top_logprobs": 20}, {"logprobs": 20}),
    (
        "TH-13",
        {"temperature": 9, "top_p": 0.5, "top_k": 4, "seed": 3, "stop": [2]},
        {"sampling": Sampling(temperature=9.0, top_p=0.5, top_k=4, seed=3), "stop_token_ids": [2]},
    ),
    ("TH-14", {"separate_reasoning": False}, {"separate_reasoning": False}),
    (
        "TH-16",
        UNLISTED_IN_CHATS,
        {
            **TO_THE_END,
            "return_token_ids": False,
            "template_kwargs": {},
            "add_generation_prompt": True,
            "continue_final_message": False,
        },
    ),
]


@pytest.mark.covers("TH-9", "TH-13", "TH-16")
@pytest.mark.parametrize(("statement", "body", "expected"), READ_CHATS, ids=lambda value: str(value)[:60])
def test_a_chat_is_read(statement: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    request = chat(**body)
    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize("effort", [True, False])
def test_a_boolean_effort_stays_one(effort: bool) -> None:
    """In Python `True == 1`: nothing on the way may take one for the other."""
    assert chat(reasoning_effort=effort).reasoning_effort is effort
    assert type(chat(reasoning_effort=int(effort)).reasoning_effort) is float


READ_MESSAGES = [
    ({"role": "system", "content": "x"}, Message(role="system", content="x")),
    ({"role": "user", "content": None}, Message(role="user")),
    ({"role": "system", "content": None}, Message(role="system")),
    ({"role": "assistant", "content": None}, Message(role="assistant")),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, image(PNG)]},
        Message(role="user", content=[TextPart("a"), ImagePart(PNG)]),
    ),
    (
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [CALL]},
        Message(role="assistant", reasoning="r", tool_calls=[ToolCall("call_1", "f", "{}")]),
    ),
    ({"role": "assistant", "reasoning_content": "r"}, Message(role="assistant", reasoning="r")),
    (
        {"role": "tool", "tool_call_id": "call_1", "content": "{}"},
        Message(role="tool", content="{}", tool_call_id="call_1"),
    ),
]


@pytest.mark.covers("TH-1")
@pytest.mark.fault("D23")
@pytest.mark.parametrize(("message", "expected"), READ_MESSAGES, ids=lambda value: str(value)[:60])
def test_a_message_is_read(message: dict[str, Any], expected: Message) -> None:
    assert chat(messages=[USER, message]).messages[1] == expected


@pytest.mark.covers("TC-2", "TC-3", "TC-5", "TC-6", "TC-9", "TH-1", "TH-13")
@pytest.mark.parametrize(
    ("read", "statement", "body", "param"),
    [(completion, *row) for row in REFUSED_COMPLETIONS] + [(chat, *row) for row in REFUSED_CHATS],
    ids=lambda value: getattr(value, "__name__", str(value))[:60],
)
def test_a_wrong_field_is_refused_by_name(
    read: Any, statement: str, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(Failure) as caught:
        read(**body)
    encoded = encode_failure(TINKER, caught.value)
    error = json.loads(encoded.body)["error"]
    assert encoded.status == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "invalid_request",
        param,
    )
    assert len(error["message"]) < 400


@pytest.mark.fault("D08")
@pytest.mark.parametrize(
    ("surface", "read", "required"),
    [
        ("completions", completion_request, {"model": "m", "prompt": "p"}),
        ("chat", chat_request, {"model": "m", "messages": [USER]}),
    ],
)
def test_null_is_absent_for_every_optional_field(surface: str, read: Any, required: dict[str, Any]) -> None:
    fields = [field for field in TINKER.surfaces[surface].fields if field.name not in required]
    names = [name for field in fields for name in (field.name, *field.aliases)]
    assert len(names) > 10
    assert read(TINKER, {**required, **dict.fromkeys(names)}) == read(TINKER, required)
