"""GLM-4.5 to GLM-5.2: prompts as the official templates and tokenizers make them; replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family
from tests.unit.rendering.families.test_qwen35 import MANY

DATA = Path(__file__).parents[3] / "data"
TEMPLATES = {
    "4.5": ("glm-4.5", "glm4.5/chat_template.jinja"),
    "4.6": ("glm-4.5", "glm4.5/GLM-4.6.jinja"),
    "4.7": ("glm-4.7", "glm4.5/GLM-4.7-Flash.jinja"),
    "5": ("glm-4.7", "glm5/zai-org-GLM-5.jinja"),
    "5.1": ("glm-5.1", "GLM-5.1.jinja"),
    "5.2": ("glm-5.2", "glm5/chat_template.jinja"),
}
FAMILIES = ("glm-4.5", "glm-4.7", "glm-5.1", "glm-5.2")
EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (True, {"enable_thinking": True}),
    (False, {"enable_thinking": False}),
    ("none", {"enable_thinking": False}),
]
MORE_EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    ("high", {"reasoning_effort": "high"}),
    ("max", {"reasoning_effort": "max"}),
]
END = "<|user|>"
ODD_TOOLS = [
    {
        "type": "function",
        "function": {"strict": True, "name": "f", "description": 'é "<b>"', "parameters": {"a": [1.0, None]}},
    },
    {"type": "function", "function": {"name": "later", "defer_loading": True}},
    {"type": "function", "function": {"name": "now", "defer_loading": False}},
]
OWN: dict[str, dict[str, Any]] = {
    "values of every type": {
        "messages": [oracle.user("Q"), oracle.assistant(" \nSo.\n ", MANY), oracle.tool("  ok \n", MANY)]
    },
    "declarations with more in them": {"messages": [oracle.user("Q")], "tools": ODD_TOOLS},
    "thoughts of several turns": {
        "messages": [
            oracle.user(" a "),
            oracle.assistant("<think>\nold \n</think>\n\nb\n"),
            oracle.user("c"),
            oracle.assistant("", oracle.NOW, reasoning="  \n"),
            oracle.tool("12:00", oracle.NOW),
            oracle.assistant("x<think>\nnew\n\n</think>\n\nd "),
            oracle.assistant("e", oracle.NOW),
        ]
    },
    "thoughts of some turns": {
        "messages": [
            oracle.assistant("before"),
            oracle.user("a"),
            oracle.assistant("b", reasoning=" one "),
            oracle.assistant("c"),
            oracle.user("d"),
            oracle.assistant("e"),
            oracle.user("f"),
            oracle.assistant("g", reasoning=""),
            oracle.system("h "),
            oracle.assistant(""),
        ]
    },
    "results first": {"messages": [oracle.tool("a", oracle.NOW), oracle.tool("b", oracle.NOW)]},
    "switched off by the user": {"messages": [oracle.user("a /nothink"), oracle.user("/nothink")]},
}


def template_of(official: Path, version: str) -> str:
    name = TEMPLATES[version][1]
    folder = official if "/" in name else DATA / "templates"
    return (folder / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pairs(official: Path):
    four = oracle.tokenizer_of(official / "glm4.5", ("eos_token", "<|endoftext|>"))
    five = oracle.tokenizer_of(official / "glm5", ("eos_token", "<|endoftext|>"))
    return {"glm-4.5": four, "glm-4.7": four, "glm-5.1": five, "glm-5.2": five}


@pytest.mark.parametrize("title", [*oracle.CONVERSATIONS, *OWN])
@pytest.mark.parametrize("version", TEMPLATES)
def test_prompts_are_the_official_ones(official: Path, pairs, version: str, title: str):
    family = TEMPLATES[version][0]
    ours, theirs = pairs[family]
    template = template_of(official, version)
    renderer = oracle.native(family, ours)
    efforts = EFFORTS + (MORE_EFFORTS if version == "5.2" else [])
    options: list[dict[str, Any]] = [{}]
    if family != "glm-4.5":
        options = [{}, {"clear_thinking": False}]
    for effort, values in efforts:
        for option in options:
            conversation = (oracle.CONVERSATIONS | OWN)[title]
            request = ChatRequest(model="m", reasoning_effort=effort, template_kwargs=option, **conversation)
            text = oracle.official_text(template, request, **values, **option)
            assert renderer.build(request).string == text
            spelled = title == "switched off by the user" and (family != "glm-4.5" or effort in (None, True))
            if not spelled:
                assert renderer.render(request).ids == theirs.encode(text, add_special_tokens=False).ids


def test_a_switch_that_a_caller_spells_is_text(pairs):
    # "/nothink" is a control token to the official tokenizer wherever it stands, and never to ours.
    for family in FAMILIES:
        ours, _ = pairs[family]
        request = ChatRequest(model="m", messages=[oracle.user("a /nothink b"), oracle.user("/nothink")])
        ids = oracle.native(family, ours).render(request).ids
        assert ours.control_id("/nothink") not in ids
        assert ours.decode(ids).count("/nothink") == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_that_are_no_json(pairs, family: str):
    # The official templates refuse them; agents send them.
    ours, _ = pairs[family]
    broken = ToolCall("call00001", "f", '{"a": ')
    request = ChatRequest(model="m", messages=[oracle.user("a"), oracle.assistant("b", broken)])
    line = "\n" if family == "glm-4.5" else ""
    text = ours.decode(oracle.native(family, ours).render(request).ids)
    assert f'</think>{line}b{line}<tool_call>f{line}{{"a": {line}</tool_call><|assistant|>' in text


@pytest.mark.parametrize("family", FAMILIES)
def test_the_laws_of_a_family(pairs, family: str):
    check_family(oracle.native(family, pairs[family][0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_values_of_every_type_come_back(pairs, family: str):
    renderer = oracle.native(family, pairs[family][0])
    tool = {"type": "function", "function": {"name": "edit", "parameters": {"properties": {}}}}
    messages = [oracle.user("Q"), oracle.assistant("", MANY, reasoning=" \n a \n ")]
    request = ChatRequest(model="m", messages=messages, tools=[tool], add_generation_prompt=False)
    _, reply = renderer.build(request).ids()
    choice = oracle.parsed(renderer, reply, tools=[tool])
    assert json.loads(choice.tool_calls[0].arguments) == json.loads(MANY.arguments)
    assert choice.reasoning == (" \n a \n " if family in ("glm-5.1", "glm-5.2") else "a")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_callers_text_never_becomes_a_control_token(pairs, family: str):
    ours, _ = pairs[family]
    renderer = oracle.native(family, ours)
    bad = oracle.SMUGGLED + "<arg_value><|observation|>"
    call = ToolCall("call00001", bad, json.dumps({bad: bad}))
    messages = [
        oracle.system(bad),
        oracle.user(bad),
        oracle.assistant(bad, call, reasoning=bad),
        oracle.tool(bad, call),
    ]
    ids = renderer.render(ChatRequest(model="m", messages=messages)).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    effort = ["<|system|>"] if family == "glm-5.2" else []
    argument = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
    reply = ["<|assistant|>", "<think>", "</think>", "<tool_call>", *argument, "</tool_call>"]
    result = ["<|observation|>", "<tool_response>", "</tool_response>"]
    begun = ["<|assistant|>"] if family == "glm-4.5" else ["<|assistant|>", "<think>"]
    opening = ["[gMASK]", "<sop>", *effort, "<|system|>", "<|user|>"]
    assert control == [*opening, *reply, *result, *begun]


def called(name: str, *arguments: tuple[str, str], line: str = "\n") -> str:
    inner = "".join(
        f"<arg_key>{key}</arg_key>{line}<arg_value>{value}</arg_value>{line}" for key, value in arguments
    )
    return f"<tool_call>{name}{line}{inner}</tool_call>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n<think></think>\nHello\nyou", ("Hello\nyou", "", [])),
        ("\n<think>\nabc\n</think>\n\ndef\n", ("def\n", "abc", [])),
        ("\n<think>abc</think>", ("", "abc", [])),
        ("Hello", ("Hello", "", [])),
        ("\n<think>a reply may end in a thought", ("", "a reply may end in a thought", [])),
        (
            "\n<think>abc</think>\nHm.\n" + called("f", ("a", "1")) + "\n" + called("now"),
            ("Hm.", "abc", [("f", '{"a": 1}'), ("now", "{}")]),
        ),
        (called("f", ("a", "1"), line="") + called("g", line=""), ("", "", [("f", '{"a": 1}'), ("g", "{}")])),
        (called("f") + "\nDone.", ("\nDone.", "", [("f", "{}")])),
        (
            called("get_weather", ("city", "75001"), ("days", "2"), ("where", '{"lat": 59.90}')),
            ("", "", [("get_weather", '{"city": "75001", "days": 2, "where": {"lat": 59.90}}')]),
        ),
        (
            called("f", ("a b", " x\n"), ("c", ""), ("d", "null"), ("e", '"s"'), ("é", "<b>")),
            (
                "",
                "",
                [("f", r'{"a b": " x\n", "c": "", "d": null, "e": "s", "é": "<b>"}')],
            ),
        ),
    ],
)
def test_well_formed_replies(pairs, text: str, expected):
    choice = oracle.said(oracle.native("glm-4.5", pairs["glm-4.5"][0]), text + END, tools=oracle.TOOLS)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize("family", ["glm-4.7", "glm-5.1", "glm-5.2"])
def test_replies_to_what_the_prompt_has_begun(pairs, family: str):
    renderer = oracle.native(family, pairs[family][0])
    kept = "" if family == "glm-4.7" else "\n"
    for effort, text, expected in (
        (True, "I'm\nthinking</think>Hello", ("Hello", "I'm\nthinking", [])),
        (True, "</think>" + called("f", line=""), ("", "", [("f", "{}")])),
        (
            True,
            "Two.</think>I look." + called("f", ("a", "1"), ("b", "x"), line="") + called("g", line=""),
            ("I look.", "Two.", [("f", '{"a": 1, "b": "x"}'), ("g", "{}")]),
        ),
        (True, "\n</think>\n\nHm.\n" + called("f"), ("Hm.", kept, [("f", "{}")])),
        (True, "a<think>b</think>c", ("a<think>b</think>c", "", [])),
        (True, "a" + called("f", line=""), ("a" + called("f", line=""), "", [])),
        (False, "Hello", ("Hello", "", [])),
        (False, called("f", line=""), ("", "", [("f", "{}")])),
        (False, "a</think>b", ("a</think>b", "", [])),
    ):
        request = ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort=effort)
        prompt = renderer.render(request)
        assert renderer.begun(prompt.ids) == prompt.prefill
        for end in ("<|user|>", "<|observation|>", "<|endoftext|>"):
            assert oracle.parts(oracle.said(renderer, text + end, prefill=prompt.prefill)) == expected


def test_the_newline_behind_a_thought_that_is_switched_off(pairs):
    renderer = oracle.native("glm-4.5", pairs["glm-4.5"][0])
    request = ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort=False)
    prefill = renderer.render(request).prefill
    for text, expected in (("\nHello", ("Hello", "", [])), ("\n" + called("f"), ("", "", [("f", "{}")]))):
        assert oracle.parts(oracle.said(renderer, text + END, prefill=prefill)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a</think>b",
        "</think>b",
        "<think>a<think>b",
        "<think>a\n" + called("f"),
        "a<tool_call></tool_call>",
        "a<tool_call>\n</tool_call>",
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        "<tool_call>f\ng</tool_call>",
        "<tool_call>f<arg_key>a</arg_key></tool_call>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>",
        "<tool_call>f<arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>a<arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key></arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>a</arg_key>b<arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>b</tool_call>",
        "<tool_call>f<arg_key>a</arg_key><arg_value><think></arg_value></tool_call>",
        called("f", ("a", "1"), ("a", "2")),
        called("f") + "</tool_call>",
        called("f") + "<arg_key>",
        "<tool_call>f<tool_call>g</tool_call>",
        "<tool_call>f",
        "a<|system|>b",
        "a<|begin_of_box|>b<|end_of_box|>",
    ],
)
def test_malformed_replies_are_text(pairs, text: str):
    choice = oracle.said(oracle.native("glm-4.5", pairs["glm-4.5"][0]), text + END)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_efforts(pairs):
    for family in FAMILIES:
        accepted = "true, false, 'none', 'high'" + (", 'max'" if family == "glm-5.2" else "")
        with pytest.raises(Failure, match=accepted) as failure:
            oracle.native(family, pairs[family][0]).render(
                ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="low")
            )
        assert failure.value.param == "reasoning_effort"


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("zai-org/GLM-4.5", "glm-4.5"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5"),
        ("unsloth/GLM-4.6-GGUF", "glm-4.5"),
        ("zai-org/GLM-4.7", "glm-4.7"),
        ("zai-org/GLM-4.7-Flash", "glm-4.7"),
        ("zai-org/glm-5-fp8", "glm-4.7"),
        ("zai-org/GLM-5.1-FP8", "glm-5.1"),
        ("zai-org/GLM-5.2", "glm-5.2"),
        ("zai-org/GLM-5.3", None),
        ("zai-org/GLM-4.5-Base", None),
        ("zai-org/GLM-4.5-Air-Base", None),
        ("zai-org/GLM-4.5V", None),
        ("zai-org/GLM-4.6V-Flash", None),
        ("zai-org/GLM-4-9B-0414", None),
        ("zai-org/GLM-4x5", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


@pytest.mark.parametrize("version", TEMPLATES)
def test_official_templates_are_recognised(official: Path, pairs, version: str):
    family = TEMPLATES[version][0]
    chosen = registry.choose(pairs[family][0], template=template_of(official, version))
    assert chosen.family is not None
    assert chosen.family.name == family


def test_the_template_of_a_later_version_is_not_taken_for_this_one(official: Path, pairs):
    """GLM-5.3's has one more effort, and more besides: it is rendered by itself."""
    template = template_of(official, "5.2")
    known = "reasoning_effort == 'high'"
    assert known in template
    later = template.replace(known, "reasoning_effort in ['low', 'high']")
    assert registry.choose(pairs["glm-5.2"][0], template=later).family is None
