"""Qwen3-Coder: prompts as the official templates and tokenizer make them; replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family
from tests.unit.rendering.families.test_qwen35 import MANY, called

END = "<|im_end|>"
DATA = Path(__file__).parents[3] / "data"
ODD_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "odd",
            "description": "  Does\nmuch. ",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {
                        "type": ["string", "null"],
                        "description": " x ",
                        "enum": ["é", None],
                        "default": None,
                    },
                    "b": {"description": "", "minimum": 1, "maximum": 2.5, "format": "<b>"},
                    "c": {
                        "type": "array",
                        "items": {"type": "object", "properties": {}},
                        "uniqueItems": True,
                    },
                    "d": {"anyOf": [{"type": "integer"}], "name": "other"},
                },
                "required": ["a"],
                "additionalProperties": False,
                "$defs": {"x": {"type": "null"}},
                "title": "T",
            },
        },
    },
    {"type": "function", "function": {"name": "bare"}},
    {"type": "function", "function": {"name": "none", "parameters": {}, "description": "d"}},
]
OWN: dict[str, dict[str, Any]] = {
    "values of every type": {
        "messages": [oracle.user("Q"), oracle.assistant(" \nSo.\n ", MANY), oracle.tool("  ok \n", MANY)]
    },
    "declarations with more in them": {"messages": [oracle.user("Q")], "tools": ODD_TOOLS},
    "a call without words": {
        "messages": [oracle.user("Q"), oracle.assistant(" \n", oracle.NOW, oracle.PARIS)]
    },
    "an empty system message": {"messages": [oracle.system(""), oracle.user(" a ")]},
    "system messages": {
        "messages": [oracle.system(" s "), oracle.user("a"), oracle.system("t"), oracle.assistant(" b\n")],
        "tools": oracle.TOOLS,
    },
}


@pytest.fixture(scope="module")
def pair(official: Path):
    return oracle.tokenizer_of(official / "qwen3", ("eos_token", END))


@pytest.fixture(scope="module")
def templates(official: Path):
    return {
        "qwen3-coder": (official / "qwen3" / "Qwen-Qwen3-Coder-30B-A3B-Instruct.jinja").read_text("utf-8"),
        "qwen3-coder-next": (DATA / "templates" / "Qwen3-Coder-Next.jinja").read_text("utf-8"),
    }


FAMILIES = ("qwen3-coder", "qwen3-coder-next")


@pytest.mark.parametrize("title", [*oracle.CONVERSATIONS, *OWN])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_the_official_ones(templates, pair, family: str, title: str):
    ours, theirs = pair
    request = ChatRequest(model="m", **(oracle.CONVERSATIONS | OWN)[title])
    text = oracle.official_text(templates[family], request)
    renderer = oracle.native(family, ours)
    assert renderer.build(request).string == text
    assert renderer.render(request).ids == theirs.encode(text, add_special_tokens=False).ids


def test_what_the_official_template_refuses(pair):
    # It takes no arguments that are no JSON, and no schemas that are no objects. Callers send both.
    ours, _ = pair
    broken = ToolCall("call00001", "f", '{"a": ')
    properties = {"a": True, "b": None}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    request = ChatRequest(model="m", messages=[oracle.assistant(None, broken)], tools=[tool])
    text = ours.decode(oracle.native("qwen3-coder", ours).render(request).ids)
    assert "<parameter>\n<name>a</name>\n</parameter>\n<parameter>\n<name>b</name>\n</parameter>" in text
    assert '<tool_call>\n<function=f>\n{"a": \n</function>\n</tool_call><|im_end|>\n' in text


@pytest.mark.parametrize("family", FAMILIES)
def test_the_laws_of_a_family(pair, family: str):
    check_family(oracle.native(family, pair[0]))


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    bad = oracle.SMUGGLED
    call = ToolCall("call00001", bad, json.dumps({bad: bad}))
    function = {
        "name": bad,
        "description": bad,
        "parameters": {"properties": {bad: {"type": bad, bad: bad}}, bad: [bad]},
    }
    messages = [oracle.system(bad), oracle.assistant(bad, call), oracle.tool(bad, call), oracle.user(bad)]
    request = ChatRequest(model="m", messages=messages, tools=[{"type": "function", "function": function}])
    for family in FAMILIES:
        renderer = oracle.native(family, ours)
        ids = renderer.render(request).ids
        control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
        example = ["<tool_call>", "</tool_call>"]
        system = ["<|im_start|>", *example, *example, "<|im_end|>"]
        assistant = ["<|im_start|>", "<tool_call>", "</tool_call>", "<|im_end|>"]
        result = ["<|im_start|>", "<tool_response>", "</tool_response>", "<|im_end|>"]
        assert control == [*system, *assistant, *result, "<|im_start|>", "<|im_end|>", "<|im_start|>"]
        assert ours.decode(ids) == renderer.build(request).string


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world!\nWhat's up?", ("Hello, world!\nWhat's up?", "", [])),
        ("Hm.\n\n" + called("f", ("a", "1")), ("Hm.", "", [("f", '{"a": 1}')])),
        (
            called("get_weather", ("city", '格 "x"\n'), ("days", "42"), ("tags", '["a"]'))
            + "\n"
            + called("now"),
            ("", "", [("get_weather", r'{"city": "格 \"x\"\n", "days": 42, "tags": ["a"]}'), ("now", "{}")]),
        ),
        (
            called("f", ("a", "<html>\n <p>b</p>\n</html>")),
            ("", "", [("f", r'{"a": "<html>\n <p>b</p>\n</html>"}')]),
        ),
        # Several types: JSON of one of the others, else a string.
        (
            called("several", ("a", "null"), ("b", "2 dollars"), ("c", '{"x": 1}'), ("d", "{x"), ("e", "on")),
            ("", "", [("several", '{"a": null, "b": "2 dollars", "c": {"x": 1}, "d": "{x", "e": "on"}')]),
        ),
    ],
)
def test_well_formed_replies(pair, text: str, expected):
    properties = {
        "a": {"type": ["string", "null"]},
        "b": {"type": ["string", "integer"]},
        "c": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "d": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        "e": {"enum": ["on", "off"]},
    }
    several = {"type": "function", "function": {"name": "several", "parameters": {"properties": properties}}}
    renderer = oracle.native("qwen3-coder", pair[0])
    choice = oracle.said(renderer, text + END, tools=[*oracle.TOOLS, several])
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize(
    "text",
    [
        "<think>\na\n</think>\n\nb",
        # The first mark is missing, as in some replies of this model.
        "Let me call it.\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",
        "<tool_call>\n<parameter=a>\n1\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>",
        called("f", ("a", "<tool_call>")),
        called("f").replace("</function>", "</function"),
    ],
)
def test_malformed_replies_are_text(pair, text: str):
    choice = oracle.said(oracle.native("qwen3-coder", pair[0]), text + END)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_efforts(pair):
    with pytest.raises(Failure, match="leave it out"):
        oracle.native("qwen3-coder", pair[0]).render(
            ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort=False)
        )


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder"),
        ("unsloth/Qwen3-Coder-30B-A3B-Instruct-1M-GGUF", "qwen3-coder"),
        ("Qwen/Qwen3-Coder-Next", "qwen3-coder-next"),
        ("Qwen/Qwen3-Coder-Next-GGUF", "qwen3-coder-next"),
        ("Qwen/Qwen3-Coder-Next-Base", None),
        ("Qwen/Qwen3-Coder-30B-A3B", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


@pytest.mark.parametrize("family", FAMILIES)
def test_official_templates_are_recognised(templates, pair, family: str):
    chosen = registry.choose(pair[0], template=templates[family])
    assert chosen.family is not None
    assert chosen.family.name == family
