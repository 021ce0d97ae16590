"""Qwen3.5 and Qwen3.6: prompts as the official templates and tokenizer make them; replies.

Qwen3.8's template is not among the official ones here. Its prompts are compared with another
implementation's, which `scripts/qwen38_goldens.py` wrote down.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family

TEMPLATES = {
    "qwen3.5": "chat_template.jinja",
    "qwen3.5-small": "Qwen-Qwen3.5-0.8B.jinja",
    "qwen3.6": "Qwen-Qwen3.6-35B-A3B.jinja",
}
EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (True, {"enable_thinking": True}),
    ("high", {"enable_thinking": True}),
    ("none", {"enable_thinking": False}),
]
END = "<|im_end|>"
FAMILIES = (*TEMPLATES, "qwen3.8")
DATA = Path(__file__).parents[3] / "data"
MANY = ToolCall(
    "call00009",
    "edit",
    json.dumps(
        {
            "text": "a\n\n<b>é</b>\n",
            "empty": "",
            "yes": True,
            "nothing": None,
            "half": 0.5,
            "big": 1e30,
            "list": [True, None, "é"],
            "object": {"a": {"b": 1}},
        }
    ),
)
OWN: dict[str, dict[str, Any]] = {
    "values of every type": {
        "messages": [oracle.user("Q"), oracle.assistant(" \nSo.\n ", MANY), oracle.tool("  ok \n", MANY)]
    },
    "thoughts of several turns": {
        "messages": [
            oracle.user(" a "),
            oracle.assistant("<think>\nold\n</think>\n\nb"),
            oracle.user("c"),
            oracle.assistant("", oracle.NOW, reasoning="  \n"),
            oracle.tool("12:00", oracle.NOW),
            oracle.assistant("x<think>\nnew\n\n</think>\n\nd"),
        ]
    },
    "a wrapped result from the user": {
        "messages": [
            oracle.user("a"),
            oracle.assistant("b", reasoning="why"),
            oracle.user(" <tool_response>\nc\n</tool_response> "),
        ]
    },
    "an empty system message": {"messages": [oracle.system(" \n"), oracle.user("a")]},
    "an empty system message and tools": {
        "messages": [oracle.system(" \n"), oracle.user("a")],
        "tools": oracle.TOOLS,
    },
}
SPELLED = ("a wrapped result from the user",)
"""Here a caller spells control tokens: the official tokenizer reads them as such, ours never does."""
PARAGRAPH = "a\n<parameter=x>\n1\n</parameter> </function>\n</parameter>\nb"


@pytest.fixture(scope="module")
def pair(official: Path):
    return oracle.tokenizer_of(official / "qwen3.5", ("eos_token", END))


@pytest.mark.parametrize("title", [*oracle.CONVERSATIONS, *OWN])
@pytest.mark.parametrize("family", TEMPLATES)
def test_prompts_are_the_official_ones(official: Path, pair, family: str, title: str):
    ours, theirs = pair
    template = (official / "qwen3.5" / TEMPLATES[family]).read_text(encoding="utf-8")
    renderer = oracle.native(family, ours)
    options: list[dict[str, Any]] = [{}]
    if family == "qwen3.6":
        options = [{}, {"preserve_thinking": True}, {"preserve_thinking": False}]
    for effort, values in EFFORTS:
        for option in options:
            request = ChatRequest(
                model="m",
                reasoning_effort=effort,
                template_kwargs=option,
                **(oracle.CONVERSATIONS | OWN)[title],
            )
            text = oracle.official_text(template, request, **values, **option)
            assert renderer.build(request).string == text
            if title not in SPELLED:
                assert renderer.render(request).ids == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("title", [*oracle.CONVERSATIONS, *OWN])
def test_prompts_of_qwen38(pair, title: str):
    ours, theirs = pair
    renderer = oracle.native("qwen3.8", ours)
    goldens = json.loads(gzip.decompress((DATA / "qwen38.json.gz").read_bytes()))[title]
    for effort in ("default", "low", "medium", "xhigh", "none"):
        for preserve in (True, False) if effort != "none" else (True,):
            request = ChatRequest(
                model="m",
                reasoning_effort=None if effort == "default" else effort,
                template_kwargs={} if preserve else {"preserve_thinking": False},
                **(oracle.CONVERSATIONS | OWN)[title],
            )
            text = goldens[f"{effort} {preserve}"]
            ids = renderer.render(request).ids
            assert theirs.decode(ids, skip_special_tokens=False) == text
            if title not in (*SPELLED, "thoughts of several turns"):
                assert ids == theirs.encode(text, add_special_tokens=False).ids


def test_what_the_official_template_refuses(pair):
    # It takes no system message later on, no conversation without a question, no arguments that are
    # no JSON. Agents send all of it, so it is written as it would be elsewhere.
    ours, _ = pair
    renderer = oracle.native("qwen3.6", ours)
    broken = ToolCall("call00001", "f", '{"a": ')
    request = ChatRequest(
        model="m",
        messages=[oracle.system("s"), oracle.assistant(None, broken), oracle.system(" t ")],
        reasoning_effort="none",
    )
    assert ours.decode(renderer.render(request).ids) == (
        "<|im_start|>system\ns<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n<function=f>\n{"a": \n</function>\n</tool_call><|im_end|>\n'
        "<|im_start|>system\nt<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_laws_of_a_family(pair, family: str):
    check_family(oracle.native(family, pair[0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_values_of_every_type_come_back(pair, family: str):
    renderer = oracle.native(family, pair[0])
    kinds = {"yes": "boolean", "nothing": ["null", "integer"], "half": "number", "big": "number"}
    properties = {name: {"type": kind} for name, kind in kinds.items()} | {"text": {"type": "string"}}
    edit = {"type": "function", "function": {"name": "edit", "parameters": {"properties": properties}}}
    messages = [oracle.user("Q"), oracle.assistant("", MANY)]
    request = ChatRequest(model="m", messages=messages, tools=[edit], add_generation_prompt=False)
    _, reply = renderer.build(request).ids()
    (call,) = oracle.parsed(renderer, reply, tools=[edit]).tool_calls
    assert json.loads(call.arguments) == json.loads(MANY.arguments)


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    renderer = oracle.native("qwen3.5", ours)
    call = ToolCall("call00001", "f", json.dumps({oracle.SMUGGLED: oracle.SMUGGLED}))
    messages = [
        oracle.system(oracle.SMUGGLED),
        oracle.user(oracle.SMUGGLED),
        oracle.assistant(oracle.SMUGGLED, call, reasoning=oracle.SMUGGLED),
        oracle.tool(oracle.SMUGGLED, call),
    ]
    ids = renderer.render(ChatRequest(model="m", messages=messages)).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    turn = ["<|im_start|>", "<|im_end|>"]
    assistant = ["<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"]
    result = ["<|im_start|>", "<tool_response>", "</tool_response>", "<|im_end|>"]
    assert control == [*turn, *turn, *assistant, *result, "<|im_start|>", "<think>"]
    assert ours.decode(ids).count(oracle.SMUGGLED) == 7


def called(name: str, *arguments: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


THOUGHT = "<think>\nabc\n</think>\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", ("Hello", "", [])),
        (THOUGHT + "def", ("def", "abc", [])),
        (THOUGHT, ("", "abc", [])),
        ("<think>\n\n</think>\n\ndef\n", ("def\n", "", [])),
        (called("now"), ("", "", [("now", "{}")])),
        ("Hm.\n\n" + called("now"), ("Hm.", "", [("now", "{}")])),
        (
            THOUGHT + called("f", ("a", "1")) + "\n" + called("f", ("a", "x")) + "\nDone.",
            ("\nDone.", "abc", [("f", '{"a": 1}'), ("f", '{"a": "x"}')]),
        ),
        # The type is the schema's: a city that is a number, days that are a word.
        (
            called("get_weather", ("city", "75001"), ("days", "two"), ("exact", "false")),
            ("", "", [("get_weather", '{"city": "75001", "days": "two", "exact": false}')]),
        ),
        # Numbers and objects stay as they were written.
        (
            called("f", ("a", "1.0"), ("b", "1e400"), ("c", '{"x":[ 1]}'), ("d", "12345678901234567890")),
            ("", "", [("f", '{"a": 1.0, "b": 1e400, "c": {"x":[ 1]}, "d": 12345678901234567890}')]),
        ),
        # Text keeps its white space, but for one newline on each side.
        (
            called("f", ("a", "    x = 1\n\n"), ("b", ""), ("c", " ")),
            ("", "", [("f", r'{"a": "    x = 1\n\n", "b": "", "c": " "}')]),
        ),
        (
            "<tool_call><function=f><parameter=a>x</parameter><parameter=b>\n</parameter></function></tool_call>",
            ("", "", [("f", '{"a": "x", "b": ""}')]),
        ),
        # Tags within a value.
        (
            called("f", ("a", PARAGRAPH), ("b", "</function>")),
            ("", "", [("f", json.dumps({"a": PARAGRAPH, "b": "</function>"}))]),
        ),
        (called("f", ("a b", "<x> & é</x>")), ("", "", [("f", '{"a b": "<x> & é</x>"}')])),
        (called("ns.f-1", ("a", "NaN")), ("", "", [("ns.f-1", '{"a": "NaN"}')])),
    ],
)
def test_well_formed_replies(pair, text: str, expected):
    choice = oracle.said(oracle.native("qwen3.5", pair[0]), text + END, tools=oracle.TOOLS)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize(
    "text",
    [
        "abc</think>def",
        # A call ends no thought.
        "<think>\na\n" + called("f"),
        "a\n\n<tool_call>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f>\n</tool_call>",
        "a\n\n<tool_call>\nf\n<function=f>\n</function>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f>\n</function>\nb\n</tool_call>",
        "a\n\n<tool_call>\n<function=>\n</function>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f>\n<parameter=>\n1\n</parameter>\n</function>\n</tool_call>",
        "a\n\n<tool_call>\n<function=f>\nb\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        called("f", ("a", "1"), ("a", "2")),
        called("f", ("a", "<think>")),
        called("f") * 2 + "</tool_call>",
        # The first mark is missing, as in some replies of Qwen3-Coder.
        "<function=f>\n</function>\n</tool_call>",
        called("f")[:-1],
        "a<|im_start|>b",
        "<tool_response>\na\n</tool_response>",
    ],
)
def test_malformed_replies_are_text(pair, text: str):
    choice = oracle.said(oracle.native("qwen3.5", pair[0]), text + END)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_what_the_prompt_has_begun(pair):
    ours, _ = pair
    renderer = oracle.native("qwen3.5", ours)
    prompt = renderer.render(ChatRequest(model="m", messages=[oracle.user("a")]))
    assert renderer.begun(prompt.ids) == prompt.prefill
    for text, expected in (
        ("I'm\nthinking\n</think>\n\nHello", ("Hello", "I'm\nthinking", [])),
        ("</think>\n\n" + called("f"), ("", "", [("f", "{}")])),
        ("<think>\n\n</think>\n\nHello", ("<think>\n\n</think>\n\nHello", "", [])),
    ):
        assert oracle.parts(oracle.said(renderer, text + END, prefill=prompt.prefill)) == expected
    off = renderer.render(ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort=False))
    choice = oracle.said(renderer, "Hm.\n\n" + called("f") + END, prefill=off.prefill)
    assert oracle.parts(choice) == ("Hm.", "", [("f", "{}")])


def test_words_of_python_where_the_template_writes_them(pair):
    text = called("get_weather", ("exact", "True"), ("city", "None"), ("other", "False")) + END
    for family, exact in (("qwen3.5", "true"), ("qwen3.6", '"True"')):
        choice = oracle.said(oracle.native(family, pair[0]), text, tools=oracle.TOOLS)
        expected = f'{{"exact": {exact}, "city": "None", "other": "False"}}'
        assert oracle.parts(choice)[2] == [("get_weather", expected)]


def test_efforts(pair):
    for family in TEMPLATES:
        with pytest.raises(Failure, match="true, false, 'none', 'high'") as failure:
            oracle.native(family, pair[0]).render(
                ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="low")
            )
        assert failure.value.param == "reasoning_effort"
    with pytest.raises(Failure, match="true, false, 'none', 'low', 'medium', 'xhigh'"):
        oracle.native("qwen3.8", pair[0]).render(
            ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="high")
        )


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("Qwen/Qwen3.5-0.8B", "qwen3.5-small"),
        ("Qwen/Qwen3.5-2B-FP8", "qwen3.5-small"),
        ("Qwen/Qwen3.5-4B", "qwen3.5"),
        ("unsloth/Qwen3.5-9B-GGUF", "qwen3.5"),
        ("Qwen/Qwen3.5-35B-A3B-GPTQ-Int4", "qwen3.5"),
        ("qwen/qwen3.5-397b-a17b-fp8", "qwen3.5"),
        ("Qwen/Qwen3.6-27B", "qwen3.6"),
        ("Qwen/Qwen3.6-35B-A3B-AWQ", "qwen3.6"),
        ("Qwen/Qwen3.8-27B", "qwen3.8"),
        ("Qwen/Qwen3.8-Flash-Next-FP8", "qwen3.8"),
        ("Qwen/Qwen3.5-4B-Base", None),
        ("Qwen/Qwen3.5-35B-A3B-Base-FP8", None),
        ("Qwen/Qwen3.5-Omni-7B", None),
        ("Qwen/Qwen35-4B", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


@pytest.mark.parametrize("family", TEMPLATES)
def test_official_templates_are_recognised(official: Path, pair, family: str):
    template = (official / "qwen3.5" / TEMPLATES[family]).read_text(encoding="utf-8")
    chosen = registry.choose(pair[0], template=template)
    assert chosen.family is not None
    assert chosen.family.name == family
