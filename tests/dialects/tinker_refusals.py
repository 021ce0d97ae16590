"""Bodies that the `tinker` dialect refuses: the statement, the body, and the `param` it then names."""

from typing import Any

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PNG = "data:image/png;base64,iVBORw0KGgo="


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def tokens(*ids: Any) -> dict[str, Any]:
    return {"type": "tokens", "tokens": list(ids)}


REFUSED_COMPLETIONS: list[tuple[str, dict[str, Any], str]] = [
    ("TC-1", {"model": None}, "model"),
    ("TC-1", {"model": ""}, "model"),
    ("TC-1", {"model": 5}, "model"),
    ("TC-2", {"prompt": None}, "prompt"),
    ("TC-2", {"prompt": []}, "prompt"),
    ("TC-2", {"prompt": [[]]}, "prompt[0]"),
    ("TC-2", {"prompt": ["a", "b"]}, "prompt"),
    ("TC-2", {"prompt": [[1], [2]]}, "prompt"),
    ("TC-2", {"prompt": ["a", 1]}, "prompt"),
    ("TC-2", {"prompt": {}}, "prompt"),
    ("TC-2", {"prompt_chunks": [tokens(1)]}, "prompt_chunks"),
    ("TC-2", {"prompt": None, "prompt_chunks": None}, "prompt"),
    ("TC-3", {"prompt": [1, True]}, "prompt[1]"),
    ("TC-3", {"prompt": [True]}, "prompt[0]"),
    ("TC-3", {"prompt": [1, -1]}, "prompt[1]"),
    ("TC-3", {"prompt": [1, 1.0]}, "prompt[1]"),
    ("TC-3", {"prompt": [[1, 2**63]]}, "prompt[0][1]"),
    ("TC-4", {"max_tokens": 0}, "max_tokens"),
    ("TC-4", {"max_tokens": -1}, "max_tokens"),
    ("TC-4", {"max_tokens": "5"}, "max_tokens"),
    ("TC-4", {"max_tokens": 5.0}, "max_tokens"),
    ("TC-5", {"temperature": -0.1}, "temperature"),
    ("TC-5", {"temperature": True}, "temperature"),
    ("TC-5", {"temperature": float("nan")}, "temperature"),
    ("TC-5", {"temperature": float("inf")}, "temperature"),
    ("TC-5", {"top_p": 0}, "top_p"),
    ("TC-5", {"top_p": 1.01}, "top_p"),
    ("TC-5", {"top_k": -2}, "top_k"),
    ("TC-5", {"top_k": 1.0}, "top_k"),
    ("TC-5", {"seed": 2**63}, "seed"),
    ("TC-5", {"seed": True}, "seed"),
    ("TC-6", {"stop": 7}, "stop"),
    ("TC-6", {"stop": ""}, "stop"),
    ("TC-6", {"stop": ["a", ""]}, "stop[1]"),
    ("TC-6", {"stop": [1, "a"]}, "stop[1]"),
    ("TC-6", {"stop": [[1]]}, "stop[0]"),
    ("TC-6", {"stop": [-1]}, "stop[0]"),
    ("TC-6", {"stop": ["x" * 40_000, "y" * 40_000]}, "stop"),
    ("TC-7", {"stream": "yes"}, "stream"),
    ("TC-7", {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ("TC-8", {"return_token_ids": 1}, "return_token_ids"),
    ("TC-9", {"logprobs": 21}, "logprobs"),
    ("TC-9", {"logprobs": -1}, "logprobs"),
    ("TC-9", {"logprobs": True}, "logprobs"),
    ("TC-10", {"prompt": None, "prompt_chunks": []}, "prompt_chunks"),
    ("TC-10", {"prompt": None, "prompt_chunks": [tokens()]}, "prompt_chunks"),
    ("TC-10", {"prompt": None, "prompt_chunks": [tokens(1, True)]}, "prompt_chunks[0].tokens[1]"),
    ("TC-10", {"prompt": None, "prompt_chunks": [tokens(1), {"type": "text"}]}, "prompt_chunks[1].type"),
    (
        "TC-10",
        {"prompt": None, "prompt_chunks": [tokens(1), image("http://example.com/a.png")]},
        "prompt_chunks[1].image_url.url",
    ),
    (
        "TC-10",
        {"prompt": None, "prompt_chunks": [image("data:image/png;base64,...")]},
        "prompt_chunks[0].image_url.url",
    ),
    (
        "TC-10",
        {"prompt": None, "prompt_chunks": [image("data:image/bmp;base64,AAAA")]},
        "prompt_chunks[0].image_url.url",
    ),
]


def said(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


REFUSED_CHATS: list[tuple[str, dict[str, Any], str]] = [
    ("TH-1", {"messages": None}, "messages"),
    ("TH-1", {"messages": []}, "messages"),
    ("TH-1", said({}), "messages[0].role"),
    ("TH-1", said(USER, {"role": "developer", "content": "x"}), "messages[1].role"),
    ("TH-1", said({"role": "function", "name": "f", "content": "x"}), "messages[0].role"),
    ("TH-1", said({"role": "User", "content": "x"}), "messages[0].role"),
    ("TH-1", said({"role": "user"}), "messages[0].content"),
    ("TH-1", said({"role": "assistant"}), "messages[0].content"),
    ("TH-1", said({"role": "user", "content": 5}), "messages[0].content"),
    ("TH-1", said({"role": "user", "content": [5]}), "messages[0].content[0]"),
    ("TH-1", said({"role": "user", "content": [{"type": "audio"}]}), "messages[0].content[0].type"),
    (
        "TH-1",
        said({"role": "user", "content": [image("https://example.com/a.png")]}),
        "messages[0].content[0].image_url.url",
    ),
    ("TH-1", said({"role": "assistant", "reasoning_content": 5}), "messages[0].reasoning_content"),
    ("TH-1", said({"role": "assistant", "tool_calls": [5]}), "messages[0].tool_calls[0]"),
    (
        "TH-1",
        said({"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}),
        "messages[0].tool_calls[0].function.name",
    ),
    ("TH-1", said(USER, {"role": "tool", "content": "x"}), "messages[1].tool_call_id"),
    ("TH-3", {"reasoning_effort": []}, "reasoning_effort"),
    ("TH-3", {"reasoning_effort": "x" * 65}, "reasoning_effort"),
    ("TH-5", {"tools": {}}, "tools"),
    ("TH-5", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ("TH-5", {"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ("TH-6", {"tool_choice": "maybe", "tools": [TOOL]}, "tool_choice"),
    ("TH-6", {"tool_choice": "required"}, "tool_choice"),
    (
        "TH-6",
        {"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]},
        "tool_choice",
    ),
    ("TH-6", {"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ("TH-13", {"max_completion_tokens": 0}, "max_completion_tokens"),
    ("TH-13", {"max_tokens": 0}, "max_tokens"),
    ("TH-13", {"temperature": -1}, "temperature"),
    ("TH-13", {"top_p": 0}, "top_p"),
    ("TH-13", {"top_k": -2}, "top_k"),
    ("TH-13", {"stop": [True]}, "stop[0]"),
    ("TH-13", {"logprobs": 1}, "logprobs"),
    ("TH-13", {"top_logprobs": 2}, "top_logprobs"),
    ("TH-13", {"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
    ("TH-13", {"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ("TH-14", {"separate_reasoning": "no"}, "separate_reasoning"),
]
