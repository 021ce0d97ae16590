"""Qwen3: prompts as the official templates and tokenizer make them; replies."""

from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family

TEMPLATES = {
    "qwen3": "chat_template.jinja",
    "qwen3-instruct": "Qwen-Qwen3-4B-Instruct-2507.jinja",
    "qwen3-thinking": "Qwen-Qwen3-4B-Thinking-2507.jinja",
}
EFFORTS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "qwen3": [(None, {}), (True, {"enable_thinking": True}), ("none", {"enable_thinking": False})],
    "qwen3-instruct": [(None, {})],
    "qwen3-thinking": [(None, {})],
}
END = "<|im_end|>"


@pytest.fixture(scope="module")
def pair(official: Path):
    return oracle.tokenizer_of(official / "qwen3", ("eos_token", END))


@pytest.mark.parametrize("title", oracle.CONVERSATIONS)
@pytest.mark.parametrize("family", TEMPLATES)
def test_prompts_are_the_official_ones(official: Path, pair, family: str, title: str):
    ours, theirs = pair
    template = (official / "qwen3" / TEMPLATES[family]).read_text(encoding="utf-8")
    renderer = oracle.native(family, ours)
    for effort, values in EFFORTS[family]:
        request = ChatRequest(model="m", reasoning_effort=effort, **oracle.CONVERSATIONS[title])
        expected = theirs.encode(oracle.official_text(template, request, **values), add_special_tokens=False)
        assert renderer.render(request).ids == expected.ids


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_laws_of_a_family(pair, family: str):
    check_family(oracle.native(family, pair[0]))


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    renderer = oracle.native("qwen3", ours)
    ids = renderer.render(ChatRequest(model="m", messages=[oracle.user(oracle.SMUGGLED)])).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    assert control == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert oracle.SMUGGLED in ours.decode(ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", ("Hello", "", [])),
        ("<think>\nabc\n</think>\n\ndef", ("def", "abc", [])),
        ("<think>\n\n</think>\n\ndef\n", ("def\n", "", [])),
        ("<think>\n\nabc\n\n</think>\n\n\ndef", ("def", "abc", [])),
        ("<think>\nabc", ("", "abc", [])),
        ("a<think>b</think>\n\nc<think>d</think>e", ("ace", "bd", [])),
        ("a<tool_response>b", ("a<tool_response>b", "", [])),
        (
            '<tool_call>{"arguments": {"a": 1, "a": 2}, "id": 7, "name": "f"}</tool_call>',
            ("", "", [("f", '{"a": 1, "a": 2}')]),
        ),
        (
            'Hm.\n<tool_call>\n{"name": "f", "arguments": {"a": "b\\"c"}}\n</tool_call>',
            ("Hm.", "", [("f", '{"a": "b\\"c"}')]),
        ),
        (
            (
                '<think>\nx\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
                '<tool_call>\n{"arguments": {"é": [1.0, 1e5]}, "name": "g"}\n</tool_call>\nDone.'
            ),
            ("\nDone.", "x", [("f", "{}"), ("g", '{"é": [1.0, 1e5]}')]),
        ),
    ],
)
def test_well_formed_replies(pair, text: str, expected):
    choice = oracle.said(oracle.native("qwen3", pair[0]), text + END)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize(
    "text",
    [
        "abc</think>def",
        "<think>a<think>b</think>c",
        "<think>a</think>b</think>c",
        '<think>a<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call></think>b',
        'a<tool_call>\n{"name": "f"}\n</tool_call>',
        'a<tool_call>\n{"name": "f", "arguments": {"x": NaN}}\n</tool_call>',
        'a<tool_call>\n{"name": "f", "arguments": {}}',
        'a<tool_call>{"name": "f", "arguments": {"a": "<tool_call>"}}</tool_call>',
        "a</tool_call>",
        "a<|im_start|>b",
    ],
)
def test_malformed_replies_are_text(pair, text: str):
    renderer = oracle.native("qwen3", pair[0])
    choice = oracle.said(renderer, text + END)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_efforts(pair):
    renderer = oracle.native("qwen3", pair[0])
    with pytest.raises(Failure, match="true, false, 'none', 'high'") as failure:
        renderer.render(ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="bogus"))
    assert failure.value.param == "reasoning_effort"
    with pytest.raises(Failure, match="leave it out"):
        oracle.native("qwen3-instruct", pair[0]).render(
            ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="high")
        )


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-0.6B-GGUF", "qwen3"),
        ("qwen/qwen3-30b-a3b", "qwen3"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-instruct"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-thinking"),
    ],
)
def test_repo_ids(repo: str, name: str):
    assert registry.named(repo).name == name


@pytest.mark.parametrize("family", TEMPLATES)
def test_official_templates_are_recognised(official: Path, pair, family: str):
    template = (official / "qwen3" / TEMPLATES[family]).read_text(encoding="utf-8")
    chosen = registry.choose(pair[0], template=template)
    assert chosen.family is not None
    assert chosen.family.name == family
