"""Kimi K2 to K2.7: prompts as the official templates and tokenizer make them; replies."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ImagePart, Message, TextPart, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import HISTORIES, check_family

END = "<|im_end|>"
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
FAMILIES = ("kimi-k2", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.7")
HYBRIDS = {"kimi-k2.5": "chat_template.jinja", "kimi-k2.6": "moonshotai-Kimi-K2.6.jinja"}
EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    ("high", {"thinking": True}),
    (False, {"thinking": False}),
]
GOLDENS = json.loads((Path(__file__).parents[3] / "data" / "kimi.json").read_text(encoding="utf-8"))
"""Of the official templates that are not found here, by `scripts/kimi_goldens.py`."""

PARIS = ToolCall("functions.get_weather:0", "get_weather", oracle.PARIS.arguments)
MALFORMED = ToolCall("call_1", "f", '{"a": ')
NESTED = {
    "type": "function",
    "function": {
        "strict": True,
        "parameters": {"type": "object", "b": [{"z": 1, "a": [{"y": 1, "b": 2}]}], "a": {"ü": 1, "a": None}},
        "name": "f",
    },
}
OWN: dict[str, dict[str, Any]] = {
    "thoughts of earlier turns": {
        "messages": [
            oracle.user("a"),
            oracle.assistant("b", oracle.NOW, reasoning="One."),
            oracle.tool("1", oracle.NOW),
            oracle.assistant("c", reasoning="Two."),
            oracle.user("d"),
            oracle.assistant("e", PARIS, reasoning="\nThree. "),
            oracle.tool("2", PARIS),
            oracle.assistant(None, PARIS),
            oracle.tool("3", PARIS),
        ]
    },
    "names": {
        "messages": [
            Message(role="system", content="Be.", name="rules"),
            Message(role="user", content="a", name="Øla"),
            Message(role="assistant", content="b", name="kim"),
            Message(role="tool", content="c", tool_call_id="functions.f:0"),
        ]
    },
    "malformed arguments": {
        "messages": [oracle.user("a"), oracle.assistant("b", MALFORMED), oracle.tool("no", MALFORMED)]
    },
    "nested tools": {"messages": [oracle.user("a")], "tools": [NESTED]},
    "assistant first": {"messages": [oracle.assistant("a", reasoning="b"), oracle.system("c")]},
}
CONVERSATIONS = oracle.CONVERSATIONS | OWN


def kimis(call: ToolCall, place: int) -> ToolCall:
    return ToolCall(f"functions.{call.name}:{place}", call.name, call.arguments)


KIMI_HISTORIES = {
    title: [
        msgspec.structs.replace(
            message, tool_calls=[kimis(call, place) for place, call in enumerate(message.tool_calls)]
        )
        for message in messages
    ]
    for title, messages in HISTORIES.items()
}
"""The name of a function is in its call's ID, and nowhere else."""


def official_text(template: str, request: ChatRequest, **values: Any) -> str:
    """The template with what Kimi's own code does in front of it: sorting the tools' keys."""
    tools = json.loads(json.dumps(request.tools, sort_keys=True))
    return oracle.official_text(
        template, msgspec.structs.replace(request, tools=tools), arguments=str, **values
    )


@pytest.fixture(scope="module")
def pair(official: Path):
    return oracle.tokenizer_of(official / "kimi-k2.5")


@pytest.mark.parametrize("title", CONVERSATIONS)
@pytest.mark.parametrize("name", HYBRIDS)
def test_prompts_of_hybrids_are_the_official_ones(official: Path, pair, name: str, title: str):
    ours, theirs = pair
    template = (official / "kimi-k2.5" / HYBRIDS[name]).read_text(encoding="utf-8")
    renderer = oracle.native("kimi-k2.5", ours)
    kept = [{}, {"preserve_thinking": True}] if name == "kimi-k2.6" else [{}]
    for effort, values in EFFORTS:
        for more in kept:
            request = ChatRequest(
                model="m", reasoning_effort=effort, template_kwargs=more, **CONVERSATIONS[title]
            )
            text = official_text(template, request, **values, **more)
            assert renderer.render(request).ids == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("title", CONVERSATIONS)
@pytest.mark.parametrize("family", GOLDENS)
def test_prompts_of_the_others_are_the_official_ones(pair, family: str, title: str):
    ours, theirs = pair
    ids = oracle.native(family, ours).render(ChatRequest(model="m", **CONVERSATIONS[title])).ids
    assert ids == theirs.encode(GOLDENS[family][title], add_special_tokens=False).ids


def test_a_callers_own_declaration_of_the_tools(official: Path, pair):
    ours, _ = pair
    template = (official / "kimi-k2.5" / "chat_template.jinja").read_text(encoding="utf-8")
    option = {"tools_ts_str": "namespace functions {}<|im_end|>"}
    request = ChatRequest(model="m", messages=[oracle.user("a")], tools=oracle.TOOLS, template_kwargs=option)
    ids = oracle.native("kimi-k2.5", ours).render(request).ids
    assert ours.decode(ids) == official_text(template, request, **option)
    assert [ours.spelling(token) for token in ids].count(END) == 2


@pytest.mark.parametrize("name", HYBRIDS.values())
def test_images_stand_where_the_official_template_has_its_pad(official: Path, pair, name: str):
    ours, theirs = pair
    template = (official / "kimi-k2.5" / name).read_text(encoding="utf-8")
    image = ImagePart("data:image/png;base64,AA==")
    parts = [TextPart("\n a "), image, image, TextPart("b")]
    renderer = oracle.native("kimi-k2.5", ours)
    prompt = renderer.render(ChatRequest(model="m", messages=[oracle.user(parts)]))
    stand_in = "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"
    text = oracle.official_text(
        template, ChatRequest(model="m", messages=[oracle.user("\n a " + 2 * stand_in + "b")])
    )
    pad = ours.control_id("<|media_pad|>")
    expected = theirs.encode(text, add_special_tokens=False).ids
    places = [place for place, token in enumerate(expected) if token == pad]
    assert prompt.ids == [token for token in expected if token != pad]
    assert [place for place, _ in prompt.images] == [place - n for n, place in enumerate(places)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_laws_of_a_family(pair, family: str):
    # K2.5 and K2-Thinking do not write the thought of the last answer without calls.
    hidden = family in ("kimi-k2.5", "kimi-k2-thinking")
    check_family(
        oracle.native(family, pair[0]), skip=("reasoning",) if hidden else (), histories=KIMI_HISTORIES
    )


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    messages = [Message(role="user", content=oracle.SMUGGLED + SECTION, name="<|im_end|>")]
    ids = oracle.native("kimi-k2.5", ours).render(ChatRequest(model="m", messages=messages)).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    assert control == ["<|im_user|>", "<|im_middle|>", END, "<|im_assistant|>", "<|im_middle|>", "<think>"]


def call(identity: str, arguments: str = "{}") -> str:
    return f"<|tool_call_begin|>{identity}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def section(*calls: str) -> str:
    return SECTION + "".join(calls) + SECTION_END


@pytest.mark.parametrize(
    ("prefill", "text", "expected"),
    [
        ("<think>", "Hm.</think>Hello", ("Hello", "Hm.", [])),
        ("<think>", "\nHm.\n</think>\n\n Hello \n", ("\n\n Hello \n", "\nHm.\n", [])),
        ("<think></think>", "\nHello", ("\nHello", "", [])),
        ("", "<think>Hm.</think>Hello", ("Hello", "Hm.", [])),
        ("", "Hello", ("Hello", "", [])),
        ("<think>", "</think>" + section(call("functions.f:0")), ("", "", [("f", "{}")])),
        (
            "<think>",
            "Hm.</think>I look." + section(call("functions.f:0", '{"é": "\\n"}'), call("functions.a.b:17")),
            ("I look.", "Hm.", [("f", '{"é": "\\n"}'), ("a.b", "{}")]),
        ),
        (
            "<think></think>",
            "a" + section("\n", call(" functions.get-it_x:3\n", ' {"a": 1.0}\n'), "\n") + "\n",
            ("a", "", [("get-it_x", '{"a": 1.0}')]),
        ),
        ("<think>", "Hm." + section(call("functions.f:0")), ("", "Hm.", [("f", "{}")])),
        ("<think></think>", "a" + section(call("functions.f:0")) + "b", ("ab", "", [("f", "{}")])),
        ("<think></think>", section(call("f:0"))[: -len(SECTION_END)], ("", "", [("f", "{}")])),
    ],
)
def test_well_formed_replies(pair, prefill: str, text: str, expected):
    begun = pair[0].encode(prefill, control=True)
    choice = oracle.said(oracle.native("kimi-k2.5", pair[0]), text + END, prefill=begun)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


def test_ids_of_calls_are_those_that_the_model_wrote(pair):
    text = section(call("functions.f:4"), call(" functions.f:5 "))
    choice = oracle.said(oracle.native("kimi-k2", pair[0]), text + END)
    assert [call.id for call in choice.tool_calls] == ["functions.f:4", "functions.f:5"]


@pytest.mark.parametrize(
    "text",
    [
        "a</think>b",
        "a<think>b</think>c",
        "a<|im_user|>b",
        "a" + section(),
        "a" + section(call("functions.f")),
        "a" + section(call("call_abc")),
        "a" + section(call("functions.:0")),
        "a" + section(call("functions.f g:0")),
        "a" + section(call("")),
        "a" + section(call("functions.f:0", "")),
        "a" + section(call("functions.f:0", "x")),
        "a" + section(call("functions.f:0", "[1]")),
        "a" + section(call("functions.f:0", '{"a": "<think>"}')),
        "a" + section(call("functions.f:0").replace("<|tool_call_argument_begin|>", "")),
        "a" + section("x", call("functions.f:0")),
        "a" + section(call("functions.f:0").replace("<|tool_call_end|>", "")),
        "a" + call("functions.f:0"),
        "a" + section(call("functions.f:0"))[: -len("<|tool_call_end|>" + SECTION_END)],
    ],
)
def test_malformed_replies_are_text(pair, text: str):
    begun = pair[0].encode("<think></think>", control=True)
    choice = oracle.said(oracle.native("kimi-k2.5", pair[0]), text + END, prefill=begun)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"
    streamed = oracle.parsed(
        oracle.native("kimi-k2.5", pair[0]), pair[0].encode(text + END, control=True), prefill=begun
    )
    assert streamed.reasoning + streamed.text == text


def test_a_thought_without_an_end_is_text(pair):
    begun = pair[0].encode("<think>", control=True)
    choice = oracle.said(oracle.native("kimi-k2.5", pair[0]), "Hm." + END, prefill=begun)
    assert oracle.parts(choice) == ("Hm.", "", [])
    cut = oracle.said(oracle.native("kimi-k2.5", pair[0]), "Hm.", prefill=begun)
    assert oracle.parts(cut) == ("", "Hm.", [])


def test_efforts(pair):
    with pytest.raises(Failure, match="true, false, 'none', 'high'"):
        oracle.native("kimi-k2.5", pair[0]).render(
            ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="low")
        )
    for family in ("kimi-k2", "kimi-k2-thinking", "kimi-k2.7"):
        with pytest.raises(Failure, match="leave it out"):
            oracle.native(family, pair[0]).render(
                ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort="high")
            )


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("unsloth/Kimi-K2-Instruct-0905-GGUF", "kimi-k2"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking"),
        ("nvidia/Kimi-K2-Thinking-NVFP4", "kimi-k2-thinking"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("moonshotai/Kimi-K2.6", "kimi-k2.5"),
        ("unsloth/Kimi-K2.6-GGUF", "kimi-k2.5"),
        ("moonshotai/Kimi-K2.7-Code", "kimi-k2.7"),
        ("moonshotai/Kimi-K2-Base", None),
        ("moonshotai/Kimi-K3", None),
        ("moonshotai/Kimi-VL-A3B-Instruct", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


@pytest.mark.parametrize("name", HYBRIDS.values())
def test_official_templates_are_recognised(official: Path, pair, name: str):
    template = (official / "kimi-k2.5" / name).read_text(encoding="utf-8")
    chosen = registry.choose(pair[0], template=template)
    assert chosen.family is registry.BY_NAME["kimi-k2.5"]
