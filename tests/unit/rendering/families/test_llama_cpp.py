"""Replies as llama.cpp reads them, through `onward parse`, with the official tokenizers.

`tests/data/llama-cpp.json` holds what its own tests say (`tests/test-chat.cpp` of the release in
llama-cpp-python 0.3.36, each case by its line there) of the families that we have: the text of a
reply, what the prompt has begun of it, and the message it is. As there, white space around content and
reasoning does not count. Where we read a reply otherwise, `unlike` says why, by a key of `REASONS`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from onward.cli import formats
from tests.laws.official import official_renderer

DATA = json.loads((Path(__file__).parents[3] / "data" / "llama-cpp.json").read_text(encoding="utf-8"))
TOOLS: dict[str, Any] = {
    name: {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in DATA["tools"].items()
}
STRICT = {
    "unclosed-thought": "A call inside of a thought that was not ended: the format ends the thought first.",
    "second-opening": "A thought that is opened again within itself.",
    "stray-marks": "Marks of a channel that open or close nothing.",
    "missing-marks": "A call without the marks that begin or end calls.",
    "second-header": "A header with a second channel in it.",
    "built-in-tools": "A call of a tool of the model's own, which no request can declare; dropped there.",
    "no-reasoning": "A thought of a model whose template knows none.",
}
"""Not of the format: such a reply is one text (TH-11)."""
REASONS = STRICT | {
    "raw-reasoning": "Asked there to leave the reasoning with its marks in the content.",
    "json-schema": "A fence around JSON is taken off there under a schema; `response_format` is nothing here.",
    "cut-call": "The half of a call that was cut is no call here (TH-5).",
}


def name(case: dict[str, Any]) -> str:
    return f"{case['family']}-{case['line']}"


def message(content: str, reasoning: str, calls: list[list[str]]) -> tuple[str, str, list[tuple[str, Any]]]:
    """A message without what is not compared."""
    return content.strip(), reasoning.strip(), [(call[0], parsed(call[1])) for call in calls]


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@pytest.mark.covers("TH-5", "TH-11")
@pytest.mark.parametrize("case", DATA["cases"], ids=name)
def test_a_reply_is_read_as_llama_cpp_reads_it(official: Path, case: dict[str, Any]):
    renderer = official_renderer(case["family"], official)
    line = {
        "token_ids": renderer.tokenizer.encode(case["text"], control=True),
        "generation_prompt": case.get("begun", ""),
        "tools": [TOOLS[tool] for tool in case.get("tools", [])],
        "finish_reason": "length" if case.get("cut") else "stop",
    }
    whole = formats._reply(renderer, json.dumps(line), 1, stream=False)
    deltas = formats._reply(renderer, json.dumps(line), 1, stream=True)
    calls = [
        [call["function"]["name"], call["function"]["arguments"], call["id"]]
        for call in whole["tool_calls"] or []
    ]
    found = message(whole["content"] or "", whole["reasoning_content"] or "", calls)
    unlike = case.get("unlike")
    expected = message(case["content"], case.get("reasoning", ""), case.get("calls", []))
    if unlike is None:
        assert found == expected
        for call, known in zip(calls, case.get("calls", []), strict=True):
            assert call[2] == known[2] or not known[2]
    else:
        assert found != expected
        ours = case.get("ours", {"content": case["text"]})
        assert found == message(ours["content"], ours.get("reasoning", ""), ours.get("calls", []))
    assert whole["well_formed"] == (unlike not in STRICT)
    if whole["well_formed"]:
        streamed = [
            "".join(delta.get(key, "") for delta in deltas) for key in ("content", "reasoning_content")
        ]
        assert streamed == [whole["content"] or "", whole["reasoning_content"] or ""]
        assert len([call for delta in deltas for call in delta.get("tool_calls", [])]) == len(calls)


def test_every_reason_is_needed_and_known():
    assert {case["unlike"] for case in DATA["cases"] if "unlike" in case} == set(REASONS)
