"""Inkling: prompts as its makers' renderer makes them, ID for ID; replies."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.generate import EngineFinish
from onward.core.request import ChatRequest, ImagePart, Message, TextPart, Thought, ToolCall
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family

GOLDENS: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[3] / "data" / "inkling.json.gz").read_bytes())
)
"""By `scripts/inkling_goldens.py`."""
NUMBERS = [0.0, 0.001, 0.005, 0.015, 0.1, 0.125, 0.2, 0.29, 0.333, 0.5, 0.57, 0.7, 0.9, 0.985, 0.99]
SORTED = ToolCall("call00007", "f", '{"b": {"z": 1, "a": [1.50, 1e5, null]}, "a": "é\\n<b>"}')
OWN: dict[str, dict[str, Any]] = {
    "systems": {
        "messages": [
            oracle.system("A"),
            oracle.system("B"),
            oracle.user("c"),
            oracle.system("D"),
            oracle.assistant("e"),
        ]
    },
    "systems alone": {"messages": [oracle.system("A"), oracle.system("")], "tools": oracle.TOOLS},
    "system in parts": {"messages": [oracle.system([TextPart("A"), TextPart("B")])]},  # pyright: ignore[reportArgumentType]
    "assistant first": {"messages": [oracle.assistant("a", reasoning="b"), oracle.assistant("c")]},
    "arguments": {
        "messages": [oracle.user("a"), oracle.assistant("b", SORTED), oracle.tool("", SORTED)],
    },
    "a thought alone": {"messages": [oracle.user("a"), oracle.assistant("", reasoning="\nb\n")]},
}
CONVERSATIONS = oracle.CONVERSATIONS | OWN
MODEL, TEXT, THINKING = "<|message_model|>", "<|content_text|>", "<|content_thinking|>"
CALL, DONE, END = "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_model_end_sampling|>"


@pytest.fixture(scope="module")
def renderer(official: Path):
    return oracle.native("inkling", oracle.tokenizer_of(official / "inkling")[0])


@pytest.mark.parametrize("title", CONVERSATIONS)
def test_prompts_are_the_makers_own(renderer, title: str):
    request = ChatRequest(model="m", **CONVERSATIONS[title])
    assert renderer.render(request).ids == GOLDENS["prompts"][title]


@pytest.mark.parametrize("effort", NUMBERS)
def test_numbers_as_efforts(renderer, effort: float):
    request = ChatRequest(model="m", messages=[oracle.user("Hi")], reasoning_effort=effort)
    assert renderer.render(request).ids == GOLDENS["efforts"][str(effort)]


@pytest.mark.parametrize(
    ("word", "effort"),
    [
        *(("none", 0.0), ("minimal", 0.1), ("low", 0.2), ("medium", 0.7), ("high", 0.9)),
        *(("xhigh", 0.99), ("max", 0.99), (None, 0.9)),
    ],
)
def test_words_as_efforts(renderer, word: str | None, effort: float):
    request = ChatRequest(model="m", messages=[oracle.user("Hi")], reasoning_effort=word)
    assert renderer.render(request).ids == GOLDENS["efforts"][str(effort)]


@pytest.mark.parametrize("effort", ["bogus", 1.0, -0.1, True, float("nan")])
def test_other_efforts_are_refused(renderer, effort):
    with pytest.raises(Failure, match=r"'none', .*'max', a number from 0.0 to 0.99") as failure:
        renderer.render(ChatRequest(model="m", messages=[oracle.user("a")], reasoning_effort=effort))
    assert failure.value.param == "reasoning_effort"


def test_an_image_is_a_message_of_its_own(renderer):
    parts = [TextPart("a"), ImagePart("data:image/png;base64,AA=="), TextPart("b")]
    prompt = renderer.render(ChatRequest(model="m", messages=[oracle.user(parts)]))
    before, after = GOLDENS["image"]
    assert prompt.ids == before + after
    assert [place for place, _ in prompt.images] == [len(before)]


def test_the_laws_of_the_family(renderer):
    check_family(renderer)


def test_a_callers_text_never_becomes_a_control_token(renderer):
    tokenizer = renderer._tokenizer
    text = oracle.SMUGGLED + DONE + MODEL
    messages = [oracle.user(text), oracle.tool(text, ToolCall("x", DONE, ""))]
    ids = renderer.render(ChatRequest(model="m", messages=messages)).ids
    control = [tokenizer.spelling(token) for token in ids if token in tokenizer.marks.ids.values()]
    said = ["<|message_system|>", TEXT, DONE, "<|message_user|>", TEXT, DONE, "<|message_tool|>", TEXT, DONE]
    assert control == said


def test_malformed_arguments_stand_as_they_came(renderer):
    broken = ToolCall("c", "f", '{"a": ' + DONE)
    request = ChatRequest(model="m", messages=[oracle.assistant(None, broken)], add_generation_prompt=False)
    ids = renderer.render(request).ids
    written = f'{MODEL}f{CALL}{{"name":"f","args":{{"a": {DONE}}}{DONE}{END}'
    assert renderer._tokenizer.decode(ids).endswith(written)
    assert [renderer._tokenizer.spelling(token) for token in ids].count(DONE) == 2


def test_a_result_has_the_name_of_its_call(renderer):
    result = Message(role="tool", content="12", tool_call_id=oracle.NOW.id)
    request = ChatRequest(model="m", messages=[oracle.user("a"), oracle.assistant(None, oracle.NOW), result])
    assert renderer.build(request).string.endswith(f"<|message_tool|>now{TEXT}12{DONE}")


def test_a_message_is_written_in_the_order_in_which_it_was_made(renderer):
    """As Messages tell it; a chat's fields have one place for each."""
    first, second = ToolCall("c", "f", "{}"), ToolCall("d", "g", "{}")
    thoughts = [Thought("a"), Thought(sealed="x", text_before=1), Thought("b", text_before=1, calls_before=1)]
    said = Message(
        role="assistant", content="AB", reasoning="ab", tool_calls=[first, second], thoughts=thoughts
    )
    request = ChatRequest(model="m", messages=[oracle.user("Hi"), said, oracle.tool("r", second)])
    written = renderer.tokenizer.decode(renderer.render(request).ids)
    assert (
        f"{MODEL}{THINKING}a{DONE}{MODEL}{TEXT}A{DONE}"
        f'{MODEL}f{CALL}{{"name":"f","args":{{}}}}{DONE}'
        f"{MODEL}{THINKING}b{DONE}{MODEL}{TEXT}B{DONE}"
        f'{MODEL}g{CALL}{{"name":"g","args":{{}}}}{DONE}{END}'
    ) in written


def test_a_message_is_continued(renderer):
    request = ChatRequest(
        model="m", messages=[oracle.user("a"), oracle.assistant("Hel")], continue_final_message=True
    )
    prompt = renderer.render(request)
    tokenizer = renderer._tokenizer
    assert tokenizer.decode(prompt.prefill) == f"{MODEL}{TEXT}Hel"
    ids = tokenizer.encode(f"lo{DONE}{END}", control=True)
    assert oracle.parts(oracle.parsed(renderer, ids, prefill=prompt.prefill)) == ("lo", "", [])


def call(name: str, arguments: str = "{}", label: str | None = None) -> str:
    written = f'{{"name":"{name}","args":{arguments}}}'
    return f"{MODEL}{name if label is None else label}{CALL}{written}{DONE}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{MODEL}{TEXT}Hello{DONE}", ("Hello", "", [])),
        (f"{MODEL}{TEXT}\n Hello \n{DONE}", ("\n Hello \n", "", [])),
        (f"{MODEL}{TEXT}{DONE}", ("", "", [])),
        (f"{MODEL}{THINKING}Hm.{DONE}{MODEL}{TEXT}Hello{DONE}", ("Hello", "Hm.", [])),
        (
            f"{MODEL}{THINKING}a{DONE}{MODEL}{TEXT}b{DONE}{MODEL}{THINKING}c{DONE}{MODEL}{TEXT}d{DONE}",
            ("bd", "ac", []),
        ),
        (f"\n{MODEL} {TEXT}Hello{DONE}\n", ("Hello", "", [])),
        (call("f"), ("", "", [("f", "{}")])),
        (call("f", '{"a": 1.50}', label=""), ("", "", [("f", '{"a": 1.50}')])),
        (
            f'{MODEL}f{CALL} {{"args": {{"é": [null]}}, "name": "f"}}\n{DONE}',
            ("", "", [("f", '{"é": [null]}')]),
        ),
        (
            f"{MODEL}{THINKING}Hm.{DONE}{MODEL}{TEXT}I look.{DONE}" + call("f") + call("g"),
            ("I look.", "Hm.", [("f", "{}"), ("g", "{}")]),
        ),
        (call("f") + f"{MODEL}{TEXT}Done.{DONE}", ("Done.", "", [("f", "{}")])),
        (f"{MODEL}{THINKING}Hm.{DONE}", ("", "Hm.", [])),
    ],
)
def test_well_formed_replies(renderer, text: str, expected):
    choice = oracle.said(renderer, text + END)
    assert oracle.parts(choice) == expected
    assert choice.finish == ("tool_calls" if expected[2] else "stop")


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        f"{MODEL}Hello{DONE}",
        f"{MODEL}{DONE}",
        f"{MODEL}",
        f"{TEXT}Hello{DONE}",
        f"{MODEL}{TEXT}Hello",
        f"{MODEL}{THINKING}Hm.",
        f"{MODEL}{THINKING}Hm.{TEXT}a{DONE}",
        f"{MODEL}{TEXT}a{MODEL}{TEXT}b{DONE}",
        f"{MODEL}{TEXT}a{DONE}b",
        f"{MODEL}x{TEXT}a{DONE}",
        f"<|message_user|>{TEXT}a{DONE}",
        f"{MODEL}<|content_image|>{DONE}",
        f"{MODEL}<|content_invoke_tool_text|>search{DONE}",
        f"{MODEL}{TEXT}a<|unused_200042|>b{DONE}",
        call("f", label="g"),
        call("f", "[]"),
        call("f", "x"),
        call("", label=""),
        call("f", '{"a": NaN}'),
        call("f", f'{{"a": "{TEXT}"}}'),
        call("f").replace('"args"', '"arguments"'),
        call("f").replace("}}", '},"x":1}'),
        call("f").replace(DONE, ""),
    ],
)
def test_malformed_replies_are_text(renderer, text: str):
    choice = oracle.said(renderer, text + END)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_a_reply_that_is_cut_keeps_its_parts(renderer):
    text = f"{MODEL}{THINKING}Hm.{DONE}{MODEL}{TEXT}I look.{DONE}{MODEL}f{CALL}{{"
    choice = oracle.said(renderer, text, why=EngineFinish.LENGTH)
    assert oracle.parts(choice) == (f"I look.{MODEL}f{CALL}{{", "Hm.", [])


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("thinkingmachines/Inkling", "inkling"),
        ("thinkingmachines/Inkling-Small", "inkling"),
        ("thinkingmachines/Inkling-Small-NVFP4", "inkling"),
        ("thinkingmachines/Inkling-Base", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name
