"""Messages at a provider that speaks chat completions alone, and chat at one that speaks Messages alone."""

import json
from typing import Any

import pytest

from tests.http.gateway import MODEL, UPSTREAM, cost, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, USER, anthropic, chat_of, message_of, told
from tests.mock_answers import Behaviour
from tests.mock_messages import REDACTED, SIGNATURE
from tests.mock_provider import MockProvider

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
mounts = pytest.mark.parametrize("dialect", ["openai", "prentis"])
THINKING = {"type": "thinking", "thinking": " w0 w1", "signature": SIGNATURE}
SEALED = {"type": "redacted_thinking", "data": REDACTED}
TOOL = {"name": "f0", "description": "Does.", "input_schema": {"type": "object", "properties": {"a": {}}}}
FUNCTION = {"type": "function", "function": {"name": "f0", "parameters": TOOL["input_schema"]}}


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


# Messages at a provider of chats


@pytest.mark.covers("P-12", "O-4")
@mounts
@streamed
async def test_messages_over_chat(tmp_path, mock: MockProvider, stream: bool, dialect: str):
    mock.always(Behaviour(reasoning=2, cached=1))
    async with gateway(tmp_path, mock, tenant=PAYS, mounts={dialect: "/v1"}) as running:
        answer = await running.post(
            PATH,
            {
                **BODY,
                "stream": stream,
                "system": [{"type": "text", "text": "Be brief."}],
                "stop_sequences": ["END"],
                "temperature": 0.5,
                "top_k": 7,
                "metadata": {"user_id": "u-1"},
            },
        )
        assert answer.status_code == 200, answer.text
        [seen] = mock.requests
        assert seen.path == "/v1/chat/completions"
        assert seen.json == {
            "model": UPSTREAM,
            "max_completion_tokens": 5,
            "messages": [{"role": "system", "content": "Be brief."}, *USER],
            "temperature": 0.5,
            "top_k": 7,
            "stop": ["END"],
            "user": "u-1",
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
        }
        message = message_of(answer.text) if stream else answer.json()
        assert message["content"] == [
            {"type": "thinking", "thinking": " w0 w1", "signature": ""},
            {"type": "text", "text": " w2 w3 w4"},
        ]
        assert (message["model"], message["stop_reason"]) == (MODEL, "max_tokens")
        used = {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 5}
        assert used.items() <= message["usage"].items()
        entry = await running.entry()
        assert (entry.surface, entry.estimated, entry.charged) == ("messages", False, cost(10, 5, cached=1))


@pytest.mark.complaint("G07")
@streamed
async def test_parallel_calls_that_a_chat_mixes_come_one_after_the_other(tmp_path, mock, stream: bool):
    mock.always(Behaviour(tools=True))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        tools = [TOOL, {**TOOL, "name": "f1"}]
        body = {**BODY, "stream": stream, "tools": tools, "tool_choice": {"type": "any"}}
        answer = await running.post(PATH, body)
        message = message_of(answer.text) if stream else answer.json()
        assert message["content"] == [
            {"type": "tool_use", "id": f"call_{n}", "name": f"f{n}", "input": {"a": 1}} for n in range(2)
        ]
        assert message["stop_reason"] == "tool_use"
        sent = mock.requests[0].json
        assert sent["tool_choice"] == "required"
        assert sent["tools"][0]["function"] == {
            "name": "f0",
            "description": "Does.",
            "parameters": TOOL["input_schema"],
        }


@pytest.mark.complaint("G09")
async def test_a_conversation_of_blocks_as_a_chat(tmp_path, mock: MockProvider):
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    address = {"type": "url", "url": "https://example.com/a.png"}
    turns = [
        {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [THINKING, SEALED, {"type": "text", "text": "I call."}]
            + [{"type": "tool_use", "id": f"t{n}", "name": "f0", "input": {"a": n}} for n in range(2)],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t0", "content": "zero"},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                {"type": "image", "source": address},
            ],
        },
    ]
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        body = {"messages": turns, "max_tokens": 5, "tools": [TOOL]}
        answer = await running.post(
            PATH, {**body, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
        )
        assert answer.status_code == 200, answer.text
        sent = mock.requests[0].json
        assert sent["parallel_tool_calls"] is False
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        assert sent["messages"] == [
            {"role": "user", "content": [image, {"type": "text", "text": "Look."}]},
            {
                "role": "assistant",
                "content": "I call.",
                "reasoning_content": " w0 w1",
                "thinking_blocks": [THINKING, SEALED],
                "tool_calls": [
                    {
                        "id": f"t{n}",
                        "type": "function",
                        "function": {"name": "f0", "arguments": f'{{"a":{n}}}'},
                    }
                    for n in range(2)
                ],
            },
            {"role": "tool", "tool_call_id": "t0", "content": "zero"},
            {"role": "tool", "tool_call_id": "t1", "content": "one"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address["url"]}}]},
        ]


@pytest.mark.parametrize(
    ("kind", "thinking", "effort"),
    [
        ("reasoning", {"type": "enabled", "budget_tokens": 1024}, "low"),
        ("hybrid", {"type": "enabled", "budget_tokens": 30_000}, "high"),
        ("hybrid", {"type": "disabled"}, "none"),
        ("hybrid", {"type": "adaptive"}, None),
        ("instruct", {"type": "enabled", "budget_tokens": 1024}, None),
    ],
)
async def test_thinking_as_effort(tmp_path, mock, kind: str, thinking: dict, effort: str | None):
    async with gateway(tmp_path, mock, tenant=PAYS, model={"kind": kind}) as running:
        answer = await running.post(PATH, {**BODY, "max_tokens": 50_000, "thinking": thinking})
        assert answer.status_code == 200, answer.text
        assert mock.requests[0].json.get("reasoning_effort") == effort


async def test_the_beginning_of_a_reply_as_a_chat(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        turns = [*USER, {"role": "assistant", "content": "So"}]
        assert (await running.post(PATH, {**BODY, "messages": turns})).status_code == 200
        sent = mock.requests[0].json
        assert (sent["continue_final_message"], sent["add_generation_prompt"]) == (True, False)
        assert sent["messages"] == turns


# Chats at a provider of Messages


@pytest.mark.covers("P-12")
@mounts
@streamed
async def test_chat_over_messages(tmp_path, mock: MockProvider, stream: bool, dialect: str):
    mock.always(Behaviour(reasoning=2, redacted=True, cached=1, cache_creation=2, pings=True))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts={dialect: "/v1"}) as running:
        body = {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": "Be kind."},
                *USER,
            ],
            "max_completion_tokens": 9,
            "stream": stream,
            "stop": ["END"],
            "temperature": 0.5,
            "user": "u-1",
        }
        answer = await running.post(CHAT, body)
        assert answer.status_code == 200, answer.text
        [seen] = mock.requests
        assert (seen.path, seen.header("anthropic-version")) == ("/v1/messages", "2023-06-01")
        assert seen.json == {
            "model": UPSTREAM,
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "two words"}]}],
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "temperature": 0.5,
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u-1"},
            **({"stream": True} if stream else {}),
        }
        said = chat_of(answer.text) if stream else told(answer.json())
        assert said["content"] == " w2 w3 w4"
        assert said["reasoning_content"] == " w0 w1"
        assert said["thinking_blocks"] == [THINKING, SEALED]
        assert said["finish"] == "stop"
        entry = await running.entry()
        assert (entry.surface, entry.estimated) == ("chat", False)
        assert (entry.usage.prompt_tokens, entry.usage.completion_tokens) == (9, 5)
        assert entry.charged == cost(9, 5, cached=1)
        if not stream or dialect == "prentis":
            assert said["usage"]["prompt_tokens"] == 9
            assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.complaint("G07", "G09")
@streamed
async def test_calls_and_their_results_over_messages(tmp_path, mock: MockProvider, stream: bool):
    """Two calls behind signed reasoning; all of it goes back, byte for byte."""
    mock.always(Behaviour(tools=True, reasoning=2, redacted=True))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        second = {"type": "function", "function": {"name": "f1", "parameters": None, "strict": True}}
        body = {"messages": USER, "tools": [FUNCTION, second], "stream": stream, "max_tokens": 9}
        answer = await running.post(CHAT, {**body, "tool_choice": "required", "parallel_tool_calls": False})
        said = chat_of(answer.text) if stream else told(answer.json())
        assert said["finish"] == "tool_calls"
        assert [said["calls"][n]["id"] for n in range(2)] == ["toolu_0", "toolu_1"]
        assert [said["calls"][n]["name"] for n in range(2)] == ["f0", "f1"]
        assert [json.loads(said["calls"][n]["arguments"]) for n in range(2)] == [{"a": 1}] * 2
        sent = mock.requests[0].json
        assert sent["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
        assert sent["tools"] == [
            {"name": "f0", "input_schema": TOOL["input_schema"]},
            {"name": "f1", "input_schema": {"type": "object"}, "strict": True},
        ]
        reply = {
            "role": "assistant",
            "content": None,
            "reasoning_content": said["reasoning_content"],
            "thinking_blocks": said["thinking_blocks"],
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {
                        "name": call["name"],
                        "arguments": '{"a" : 1.50, "b": 12345678901234567890}',
                    },
                }
                for call in said["calls"].values()
            ],
        }
        results = [{"role": "tool", "tool_call_id": f"toolu_{n}", "content": f"is {n}"} for n in range(2)]
        history = [*USER, reply, *results, {"role": "user", "content": "And?"}]
        answer = await running.post(CHAT, {**body, "messages": history})
        assert answer.status_code == 200, answer.text
        assert b'"input":{"a" : 1.50, "b": 12345678901234567890}' in mock.requests[1].body
        _, called, answered = mock.requests[1].json["messages"]
        assert called["content"][:2] == [THINKING, SEALED]
        assert [block["id"] for block in called["content"][2:]] == ["toolu_0", "toolu_1"]
        assert answered == {
            "role": "user",
            "content": [
                *(
                    {
                        "type": "tool_result",
                        "tool_use_id": f"toolu_{n}",
                        "content": [{"type": "text", "text": f"is {n}"}],
                    }
                    for n in range(2)
                ),
                {"type": "text", "text": "And?"},
            ],
        }


async def test_images_over_messages(tmp_path, mock: MockProvider):
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "text", "text": "Look."},
    ]
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(CHAT, {"messages": [{"role": "user", "content": parts}]})
        assert answer.status_code == 200, answer.text
        [message] = mock.requests[0].json["messages"]
        assert message["content"] == [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
            },
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "text", "text": "Look."},
        ]


@pytest.mark.covers("K-10")
async def test_a_chat_without_a_limit_has_the_one_that_is_held(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        assert (await running.post(CHAT, {"messages": USER})).status_code == 200
        assert mock.requests[0].json["max_tokens"] == running.config.billing.assumed_max_tokens
        entry = await running.entry()
        assert entry.held > cost(0, running.config.billing.assumed_max_tokens)


@pytest.mark.parametrize(
    ("effort", "limit", "thinking"),
    [
        ("low", 9000, {"type": "enabled", "budget_tokens": 2048}),
        ("high", 4000, {"type": "enabled", "budget_tokens": 3999}),
        ("none", 10, {"type": "disabled"}),
        (True, 9000, {"type": "enabled", "budget_tokens": 8192}),
    ],
)
async def test_effort_as_thinking(tmp_path, mock, effort: Any, limit: int, thinking: dict):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        body = {"messages": USER, "reasoning_effort": effort, "max_tokens": limit}
        answer = await running.post(CHAT, body)
        assert answer.status_code == 200, answer.text
        assert mock.requests[0].json["thinking"] == thinking


CALL = {"id": "c", "type": "function", "function": {"name": "f0", "arguments": "{bad"}}


def thought(block: Any) -> dict[str, Any]:
    return {"messages": [*USER, {"role": "assistant", "content": "x", "thinking_blocks": [block]}, *USER]}


IMPOSSIBLE = [
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"seed": 1}, "seed"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ({"repetition_penalty": 1.5}, "repetition_penalty"),
    ({"min_p": 0.5}, "min_p"),
    ({"temperature": 1.5}, "temperature"),
    ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ({"return_token_ids": True}, "return_token_ids"),
    ({"stop": [5]}, "stop_token_ids"),
    ({"stop_token_ids": [5]}, "stop_token_ids"),
    ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
    ({"separate_reasoning": False}, "separate_reasoning"),
    ({"reasoning_effort": 0.5}, "reasoning_effort"),
    ({"reasoning_effort": "low", "max_tokens": 100}, "reasoning_effort"),
    ({"audio": {}}, "audio"),
    ({"messages": [{"role": "user", "content": "x", "name": "me"}]}, "messages[0].name"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [*USER, {"role": "assistant", "content": "x"}]}, "messages"),
    (
        {"messages": [*USER, {"role": "assistant", "tool_calls": [CALL]}, *USER]},
        "messages[1].tool_calls[0].function.arguments",
    ),
    ({"messages": [*USER, {"role": "function", "name": "f", "content": "x"}]}, "messages[1].role"),
    (thought({"type": "odd"}), "messages[1].thinking_blocks[0].type"),
    (
        thought({"type": "thinking", "thinking": "x", "signature": 5}),
        "messages[1].thinking_blocks[0].signature",
    ),
    (thought({"type": "redacted_thinking"}), "messages[1].thinking_blocks[0].data"),
    (thought("text"), "messages[1].thinking_blocks[0]"),
]


@pytest.mark.parametrize(("more", "param"), IMPOSSIBLE, ids=[str(param) for _, param in IMPOSSIBLE])
async def test_what_cannot_be_said_is_refused(tmp_path, mock: MockProvider, more: dict, param: str):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(CHAT, {"messages": USER, **more})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
        assert not mock.requests
        assert not await running.entries()


async def test_or_another_deployment_says_it(tmp_path, mock: MockProvider, other: MockProvider):
    async with gateway(tmp_path, anthropic(mock), other, tenant=PAYS) as running:
        answer = await running.post(CHAT, {"messages": USER, "n": 2})
        assert len(answer.json()["choices"]) == 2
        assert (len(mock.requests), len(other.requests)) == (0, 1)


@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_large_bodies(tmp_path, mock: MockProvider, path: str):
    """They are read beside the event loop."""
    source = mock if path == PATH else anthropic(mock)
    text = "é" * 300_000
    async with gateway(tmp_path, source, tenant={"balance": "1000.00"}) as running:
        messages = [{"role": "user", "content": text}]
        assert (await running.post(path, {**BODY, "messages": messages})).status_code == 200
        [sent] = mock.requests[0].json["messages"]
        assert (sent["content"] if path == PATH else sent["content"][0]["text"]) == text
