"""DeepSeek V3.2, V4 and V4.1: prompts as their encoders make them; replies."""

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

BOS, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
GOLDENS: dict[str, dict[str, dict[str, str]]] = json.loads(
    gzip.decompress((Path(__file__).parents[3] / "data" / "deepseek.json.gz").read_bytes())
)
"""By `scripts/deepseek_goldens.py`, in which the models' own encoders run."""
PREFIXES = {
    "deepseek-v3.2": ("｜DSML｜", "function_calls"),
    "deepseek-v4": ("｜DSML｜", "tool_calls"),
    "deepseek-v4-0731": ("｜DSML｜", "tool_calls"),
    "deepseek-v4.1": ("｜DSML｜ ", "calls"),
}
MALFORMED = ToolCall("call00009", "f", '{"a": ')
OWN: dict[str, dict[str, Any]] = {
    "malformed arguments": {
        "messages": [oracle.user("a"), oracle.assistant("b", MALFORMED), oracle.tool("no", MALFORMED)]
    },
    "results out of order": {
        "messages": [
            oracle.user("a"),
            oracle.assistant("", oracle.PARIS, oracle.NOW, reasoning="r"),
            oracle.tool("2", oracle.NOW),
            oracle.tool("1", oracle.PARIS),
            oracle.user("and?"),
        ]
    },
    "users in a row": {
        "messages": [oracle.user("a"), oracle.user("b"), oracle.assistant("c"), oracle.user("d")]
    },
    "systems": {
        "messages": [
            oracle.system("One."),
            oracle.user("a"),
            oracle.assistant("b", reasoning="r"),
            oracle.system("Two."),
            oracle.user("c"),
        ]
    },
    "thoughts without tools": {
        "messages": [
            oracle.user("a"),
            oracle.assistant("b", oracle.NOW, reasoning="r1"),
            oracle.tool("1", oracle.NOW),
            oracle.assistant("c", oracle.NOW, reasoning="r2"),
            oracle.tool("2", oracle.NOW),
            oracle.assistant("d", reasoning="r3"),
            oracle.user("e"),
            oracle.assistant("f", reasoning="r4"),
        ]
    },
}
CONVERSATIONS = oracle.CONVERSATIONS | OWN
NATIVE = ("deepseek-v4-0731", "deepseek-v4.1")
NOT_OURS = {
    # V3.2's encoder does not read these.
    ("deepseek-v3.2", "malformed arguments"),
    # It numbers results by their place, and makes no order.
    ("deepseek-v3.2", "results out of order"),
    # The renderers that stand in for these encoders keep the order of results, and put no empty line
    # between messages of the user as V4's encoder does; nor do they take malformed arguments.
    *((family, title) for family in NATIVE for title in ("results out of order", "users in a row")),
    *((family, "malformed arguments") for family in NATIVE),
}
"""What has no golden, with the reason."""


@pytest.fixture(scope="module")
def pair(official: Path):
    # V4.1's has the token <｜System｜> besides, which is text here, on both sides.
    return oracle.tokenizer_of(official / "deepseek-v4", ("bos_token", BOS), ("eos_token", END))


@pytest.mark.parametrize("title", CONVERSATIONS)
@pytest.mark.parametrize("family", GOLDENS)
def test_prompts_are_those_of_the_encoders(pair, family: str, title: str):
    ours, theirs = pair
    renderer = oracle.native(family, ours)
    for effort, prompts in GOLDENS[family].items():
        if title not in prompts:
            continue
        wanted: Any = float(effort) if effort.isdigit() else effort
        request = ChatRequest(model="m", reasoning_effort=wanted, **CONVERSATIONS[title])
        assert renderer.build(request).string == prompts[title]
        expected = theirs.encode(prompts[title], add_special_tokens=False).ids
        assert renderer.render(request).ids == expected


def test_every_conversation_has_a_golden():
    for title in CONVERSATIONS:
        for family, efforts in GOLDENS.items():
            found = [effort for effort, prompts in efforts.items() if title in prompts]
            assert bool(found) != ((family, title) in NOT_OURS), (family, title)


@pytest.mark.parametrize("family", GOLDENS)
def test_the_laws_of_a_family(pair, family: str):
    renderer = oracle.native(family, pair[0])
    # V3.2 does not reason unless asked to.
    check_family(renderer, skip=("reasoning", "all") if family == "deepseek-v3.2" else ())


def test_a_callers_text_never_becomes_a_control_token(pair):
    ours, _ = pair
    text = oracle.SMUGGLED + "｜DSML｜<｜DSML｜tool_calls>"
    messages = [oracle.system(text), oracle.user(text), oracle.tool(text, oracle.NOW)]
    ids = oracle.native("deepseek-v4", ours).render(ChatRequest(model="m", messages=messages)).ids
    control = [ours.spelling(token) for token in ids if token in ours.marks.ids.values()]
    assert control == [BOS, "<｜User｜>", "<｜Assistant｜>", "<think>"]


def invoke(name: str, *parameters: tuple[str, str, str]) -> str:
    inner = [
        f'<@parameter name="{key}" string="{text}">{value}</@parameter>' for key, text, value in parameters
    ]
    return f'<@invoke name="{name}">\n' + "\n".join(inner) + "\n</@invoke>"


def block(*invocations: str) -> str:
    return "<@>\n" + "\n".join(invocations) + "\n</@>"


def spelled(text: str, family: str) -> str:
    prefix, name = PREFIXES[family]
    return text.replace("@>", f"{prefix}{name}>").replace("@", prefix)


TYPED = invoke(
    "f", ("s", "true", ' "x"\n<b>&amp; '), ("n", "false", "-14"), ("l", "false", ' [1.0, {"é": null}] ')
)
WELL_FORMED = [
    ("</think>", "Hello\n", ("Hello\n", "", [])),
    ("<think>", "\nHm.\n</think>\n\nHello", ("\n\nHello", "\nHm.\n", [])),
    ("<think>", "</think>\n\n" + block(invoke("now")), ("", "", [("now", "{}")])),
    ("</think>", block(invoke("now")), ("", "", [("now", "{}")])),
    ("</think>", "\n\n" + block(invoke("now")), ("", "", [("now", "{}")])),
    (
        "<think>",
        "Hm.</think>I look.\n\n" + block(TYPED, invoke("now")),
        (
            "I look.",
            "Hm.",
            [("f", '{"s": " \\"x\\"\\n<b>&amp; ", "n": -14, "l": [1.0, {"é": null}]}'), ("now", "{}")],
        ),
    ),
    ("</think>", "a\n\n\n" + block(invoke("f")), ("a\n", "", [("f", "{}")])),
    (
        "</think>",
        "a" + block(invoke("f", ("a", "true", ""))).replace("\n", ""),
        ("a", "", [("f", '{"a": ""}')]),
    ),
    (
        "</think>",
        block(invoke("f")) + "\n\n" + block(invoke("g")) + "\n",
        ("", "", [("f", "{}"), ("g", "{}")]),
    ),
    ("</think>", block(invoke("f")) + "Done.", ("Done.", "", [("f", "{}")])),
    ("</think>", "a <@ b> </@invoke> c", ("a <@ b> </@invoke> c", "", [])),
    ("<think>", "I could <@> it.</think>a", ("a", "I could <@> it.", [])),
]


@pytest.mark.parametrize(("prefill", "text", "expected"), WELL_FORMED)
@pytest.mark.parametrize("family", GOLDENS)
def test_well_formed_replies(pair, family: str, prefill: str, text: str, expected):
    begun = pair[0].encode(prefill, control=True)
    choice = oracle.said(oracle.native(family, pair[0]), spelled(text, family) + END, prefill=begun)
    content, reasoning, calls = expected
    assert oracle.parts(choice) == (spelled(content, family), spelled(reasoning, family), calls)
    assert choice.finish == ("tool_calls" if calls else "stop")


@pytest.mark.parametrize(
    ("prefill", "text"),
    [
        ("<think>", "Hm."),
        ("<think>", "Hm.\n\n" + block(invoke("f"))),
        ("<think>", "<think>Hm.</think>a"),
        ("</think>", "a</think>b"),
        ("</think>", "a<｜User｜>b"),
        ("</think>", "a\n\n" + block()),
        ("</think>", "a\n\n" + block("x", invoke("f"))),
        ("</think>", "a\n\n" + block(invoke(""))),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "false", "x")))),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "false", "NaN")))),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "yes", "1")))),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "true", "1"), ("a", "true", "2")))),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "true", "1"))).replace(' string="true"', "")),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "true", "1"))).replace("</@parameter>", "")),
        ("</think>", "a\n\n" + block(invoke("f", ("a", "true", "<think>")))),
        ("</think>", "a\n\n" + block(invoke("f")).replace("</@invoke>", "")),
        ("</think>", "a\n\n" + block(invoke("f")).replace("\n</@>", "")),
    ],
)
@pytest.mark.parametrize("family", GOLDENS)
def test_malformed_replies_are_text(pair, family: str, prefill: str, text: str):
    text = spelled(text, family)
    begun = pair[0].encode(prefill, control=True)
    renderer = oracle.native(family, pair[0])
    choice = oracle.said(renderer, text + END, prefill=begun)
    assert oracle.parts(choice) == (text, "", [])
    assert choice.finish == "stop"


def test_efforts(pair):
    ask = {"model": "m", "messages": [oracle.user("a")]}
    with pytest.raises(Failure, match="true, false, 'none', 'high', 'max'"):
        oracle.native("deepseek-v4", pair[0]).render(ChatRequest(reasoning_effort="low", **ask))
    renderer = oracle.native("deepseek-v4.1", pair[0])
    with pytest.raises(Failure, match="'low', 'high', 'max', a number from 1 to 100"):
        renderer.render(ChatRequest(reasoning_effort=101.0, **ask))
    assert "Reasoning Effort: 75 (" in renderer.build(ChatRequest(**ask)).string
    off = ChatRequest(template_kwargs={"thinking": False}, **ask)
    assert renderer.build(off).string == f"{BOS}<｜User｜>a<｜Assistant｜></think>"


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("deepseek-ai/DeepSeek-V3.2-Speciale", "deepseek-v3.2"),
        ("QuantTrio/DeepSeek-V3.2-AWQ", "deepseek-v3.2"),
        ("deepseek-ai/DeepSeek-V4", "deepseek-v4"),
        ("unsloth/DeepSeek-V4-Flash-GGUF", "deepseek-v4"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "deepseek-v4-0731"),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "deepseek-v4.1"),
        ("deepseek-ai/DeepSeek-V4-Flash-Base", None),
        ("deepseek-ai/DeepSeek-V2.5", None),
    ],
)
def test_repo_ids(repo: str, name: str | None):
    family = registry.of_repo(repo)
    assert (family and family.name) == name


def test_templates_in_circulation_are_recognised(official: Path, pair):
    template = (official / "deepseek-v4" / "chat_template.jinja").read_text(encoding="utf-8")
    chosen = registry.choose(pair[0], template=template)
    assert chosen.family is registry.BY_NAME["deepseek-v4"]
