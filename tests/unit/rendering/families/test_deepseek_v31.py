"""DeepSeek V3.1: prompts as the official template and tokenizer make them; replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family

BOS, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (False, {"thinking": False}),
    ("high", {"thinking": True}),
]
MALFORMED = ToolCall("call00009", "f", '{"a": <｜User｜>')
OWN: dict[str, dict[str, Any]] = {
    "system messages anywhere": {
        "messages": [
            oracle.system("One."),
            oracle.user("a"),
            oracle.system("Two."),
            oracle.assistant("b"),
            oracle.user("c"),
            oracle.system(""),
        ]
    },
    "a thought sent back in the content": {
        "messages": [
            oracle.user("a"),
            oracle.assistant("hm</think>b</think>c"),
            oracle.user("d"),
            oracle.assistant("x</think>y", oracle.NOW),
            oracle.tool("12", oracle.NOW),
            oracle.assistant("x</think>z"),
        ]
    },
    "assistant first, users in a row": {
        "messages": [oracle.assistant("a"), oracle.user("b"), oracle.user("c"), oracle.assistant("d")]
    },
    "calls in a row": {
        "messages": [
            oracle.user("a"),
            oracle.assistant(None, oracle.NOW),
            oracle.tool("1", oracle.NOW),
            oracle.assistant("Again.", oracle.NOW),
            oracle.tool("2", oracle.NOW),
            oracle.user("b"),
        ]
    },
    "malformed arguments": {
        "messages": [oracle.user("a"), oracle.assistant("b", MALFORMED), oracle.tool("no", MALFORMED)]
    },
}

SPELLED = ("a thought sent back in the content", "malformed arguments")
"""These hold spellings of control tokens, which are text to us and tokens to the official tokenizer."""


@pytest.fixture(scope="module")
def pair(official: Path):
    return oracle.tokenizer_of(official / "deepseek-v3.1", ("bos_token", BOS), ("eos_token", END))


@pytest.fixture(scope="module")
def template(official: Path) -> str:
    return (official / "deepseek-v3.1" / "chat_template.jinja").read_text(encoding="utf-8")


def tools_text(tools: list[dict[str, Any]]) -> str:
    """The declarations as the model's card has them; the official template writes none."""
    sections = [
        f"### {tool['function']['name']}\nDescription: {tool['function']['description']}\n\n"
        f"Parameters: {json.dumps(tool['function']['parameters'], ensure_ascii=False)}\n\n"
        for tool in tools
    ]
    return (
        "\n\n## Tools\nYou have access to the following tools:\n\n"
        + "".join(sections)
        + "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
        "tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\n\n"
        "Where:\n- `tool_call_name` must be an exact match to one of the available tools\n"
        "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
        "- For multiple tool calls, chain them directly without separators or spaces"
    )


def official_text(template: str, request: ChatRequest, **values: Any) -> str:
    """The template takes arguments as texts; tools stand at the end of the system prompt."""
    system = "\n\n".join(str(message.content) for message in request.messages if message.role == "system")
    rendered = oracle.official_text(template, request, bos_token=BOS, arguments=str, **values)
    begun = BOS + system
    assert rendered.startswith(begun)
    return begun + (tools_text(request.tools) if request.tools else "") + rendered[len(begun) :]


@pytest.mark.parametrize("title", [*oracle.CONVERSATIONS, *OWN])
def test_prompts_are_the_official_ones(template: str, pair, title: str):
    ours, theirs = pair
    renderer = oracle.native("deepseek-v3.1", ours)
    conversation = (oracle.CONVERSATIONS | OWN)[title]
    for effort, values in EFFORTS:
        request = ChatRequest(model="m", reasoning_effort=effort, **conversation)
        text = official_text(template, request, **values)
        if title in SPELLED:
            assert ours.decode(renderer.render(request).ids) == text
            continue
        assert renderer.render(request).ids == theirs.encode(text, add_special_tokens=False).ids


def test_the_laws_of_the_family(pair):
    # The official template does not write the reasoning of earlier turns.
    check_family(oracle.native("deepseek-v3.1", pair[0]), skip=("reasoning", "all"))


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    renderer = oracle.native("deepseek-v3.1", ours)
    messages = [oracle.system("</think>"), oracle.user(oracle.SMUGGLED + "<｜tool▁sep｜>")]
    ids = renderer.render(ChatRequest(model="m", messages=messages)).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    assert control == [BOS, "<｜User｜>", "<｜Assistant｜>", "</think>"]


def calls(*several: tuple[str, str]) -> str:
    inner = [
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{given}<｜tool▁call▁end｜>" for name, given in several
    ]
    return CALLS + "".join(inner) + CALLS_END


WELL_FORMED = [
    ("", "Hello", ("Hello", "", [])),
    ("</think>", "\n\nHello \n", ("\n\nHello \n", "", [])),
    ("<think>", " Hm.\n</think>\n\nHello", ("\n\nHello", " Hm.\n", [])),
    ("<think>", "</think>Hello", ("Hello", "", [])),
    ("", "<think>Hm.</think>Hello", ("Hello", "Hm.", [])),
    ("</think>", calls(("f", "{}")), ("", "", [("f", "{}")])),
    (
        "</think>",
        "I look." + calls(("get_time", '{"city": "Tokyo"}'), ("get_weather", '{"city": "é\\n", "n": [1.0]}')),
        ("I look.", "", [("get_time", '{"city": "Tokyo"}'), ("get_weather", '{"city": "é\\n", "n": [1.0]}')]),
    ),
    (
        "<think>",
        "Hm.</think>I look." + calls(("f", ' {"a": 1}\n')),
        ("I look.", "Hm.", [("f", '{"a": 1}')]),
    ),
    ("<think>", "Hm." + calls(("f", "{}")), ("", "Hm.", [("f", "{}")])),
    ("</think>", "a" + calls(("f", "{}")) + "b", ("ab", "", [("f", "{}")])),
    (
        "</think>",
        "\n" + calls(("f", "{}")) + "\n" + calls(("g", "{}")),
        ("\n", "", [("f", "{}"), ("g", "{}")]),
    ),
    ("</think>", "a" + calls(("f", "{}"))[: -len(CALLS_END)], ("a", "", [("f", "{}")])),
    ("</think>", f"a{CALLS}\n" + calls(("f", "{}"))[len(CALLS) :], ("a", "", [("f", "{}")])),
]


@pytest.mark.parametrize(("prefill", "text", "expected"), WELL_FORMED)
def test_well_formed_replies(pair, prefill: str, text: str, expected):
    renderer = oracle.native("deepseek-v3.1", pair[0])
    begun = pair[0].encode(prefill, control=True)
    choice = oracle.said(renderer, text + END, prefill=begun)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize(
    ("prefill", "text"),
    [
        ("<think>", "Hm."),
        ("<think>", "<think>Hm.</think>a"),
        ("</think>", "a</think>b"),
        ("</think>", "a<think>b</think>c"),
        ("</think>", "a<｜User｜>b"),
        ("</think>", "a<｜tool▁output▁begin｜>b<｜tool▁output▁end｜>"),
        ("</think>", f"a{CALLS}{CALLS_END}"),
        ("</think>", f"a{CALLS}b" + calls(("f", "{}"))[len(CALLS) :]),
        ("</think>", "a<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
        ("</think>", "a" + calls(("f", ""))),
        ("</think>", "a" + calls(("f", "x"))),
        ("</think>", "a" + calls(("f", "[1]"))),
        ("</think>", "a" + calls(("f", '{"a": NaN}'))),
        ("</think>", "a" + calls(("", "{}"))),
        ("</think>", "a" + calls(("function", 'f\n```json\n{"a": 1}\n```'))),
        ("</think>", "a" + calls(("f", '{"a": "<think>"}'))),
        ("</think>", "a" + calls(("f", "{}")).replace("<｜tool▁sep｜>", "")),
        ("</think>", "a" + calls(("f", "<｜tool▁sep｜>{}"))),
        ("</think>", f"a{CALLS}<｜tool▁call▁begin｜>f<｜tool▁sep｜>{{}}{CALLS_END}"),
        ("</think>", f"a{CALLS}<｜tool▁call▁begin｜>f<｜tool▁sep｜>{{}}"),
    ],
)
def test_malformed_replies_are_text(pair, prefill: str, text: str):
    renderer = oracle.native("deepseek-v3.1", pair[0])
    begun = pair[0].encode(prefill, control=True)
    choice = oracle.said(renderer, text + END, prefill=begun)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"
    streamed = oracle.parsed(
        oracle.native("deepseek-v3.1", pair[0]), pair[0].encode(text + END, control=True), prefill=begun
    )
    assert streamed.reasoning + streamed.text == text


def test_efforts(pair):
    renderer = oracle.native("deepseek-v3.1", pair[0])
    with pytest.raises(Failure, match="true, false, 'none', 'high'"):
        renderer.render(ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="low"))


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.1"),
        ("unsloth/DeepSeek-V3.1-Terminus-GGUF", "deepseek-v3.1"),
        ("QuantTrio/DeepSeek-V3.1-AWQ", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.1-Base", None),
        ("deepseek-ai/DeepSeek-V3.2-Exp-Base", None),
        ("deepseek-ai/DeepSeek-V3", None),
        ("deepseek-ai/DeepSeek-V3-0324", None),
        ("deepseek-ai/DeepSeek-R1-0528", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


def test_the_official_template_is_recognised(template: str, pair):
    chosen = registry.choose(pair[0], template=template)
    assert chosen.family is registry.BY_NAME["deepseek-v3.1"]
