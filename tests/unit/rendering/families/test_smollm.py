"""SmolLM2 and SmolLM3: prompts as the official templates make them; replies."""

from pathlib import Path
from typing import Any

import pytest

from onward.core.request import ChatRequest
from onward.rendering.families import registry
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.laws import check_family

END = "<|im_end|>"
EFFORTS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (True, {"enable_thinking": True}),
    (False, {"enable_thinking": False}),
]


@pytest.fixture(scope="module")
def smollm3(official: Path):
    return oracle.tokenizer_of(official / "smollm3", ("eos_token", END))


@pytest.mark.parametrize("title", oracle.CONVERSATIONS)
def test_prompts_of_smollm2(official: Path, tokenizer, title: str):
    template = (official / "smollm2" / "chat_template.jinja").read_text(encoding="utf-8")
    request = ChatRequest(model="m", **oracle.CONVERSATIONS[title])
    text = oracle.official_text(template, request)
    assert oracle.native("smollm2", tokenizer).render(request).ids == tokenizer.encode(text, control=True)


@pytest.mark.parametrize("title", oracle.CONVERSATIONS)
@pytest.mark.parametrize(("effort", "values"), EFFORTS)
def test_prompts_of_smollm3(official: Path, smollm3, title: str, effort, values):
    ours, theirs = smollm3
    template = (official / "smollm3" / "chat_template.jinja").read_text(encoding="utf-8")
    request = ChatRequest(model="m", reasoning_effort=effort, **oracle.CONVERSATIONS[title])
    expected = theirs.encode(oracle.official_text(template, request, **values), add_special_tokens=False)
    assert oracle.native("smollm3", ours).render(request).ids == expected.ids


@pytest.mark.parametrize(
    "text", ["/no_think", "Be brief. /think", "Only this. /system_override", "/no_think x"]
)
def test_switches_in_the_system_message(official: Path, smollm3, text: str):
    ours, theirs = smollm3
    template = (official / "smollm3" / "chat_template.jinja").read_text(encoding="utf-8")
    request = ChatRequest(model="m", messages=[oracle.system(text), oracle.user("Hi")])
    expected = theirs.encode(oracle.official_text(template, request), add_special_tokens=False)
    assert oracle.native("smollm3", ours).render(request).ids == expected.ids


def test_the_laws_of_smollm2(tokenizer):
    check_family(oracle.native("smollm2", tokenizer))


def test_the_laws_of_smollm3(smollm3):
    # The official template writes neither the reasoning nor the calls of earlier turns.
    check_family(oracle.native("smollm3", smollm3[0]), skip=("reasoning", "call", "calls", "all"))


def test_calls_that_are_spelled_with_ordinary_tokens(smollm3):
    renderer = oracle.native("smollm3", smollm3[0])
    assert smollm3[0].control_id("<tool_call>") is None
    text = '<think>\nabc\n</think>\nHm.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    choice = oracle.said(renderer, text + END)
    assert oracle.parts(choice) == ("Hm.", "abc", [("f", '{"a": 1}')])
    for size in range(len(text)):
        cut = oracle.said(renderer, text[:size])
        assert cut.plain is None
        assert not cut.tool_calls
    broken = text.replace('"f"', "f")
    assert oracle.parts(oracle.said(renderer, broken + END)) == (broken, "", [])


def test_the_default_model_is_recognised(text_side, tokenizer):
    chosen = registry.choose(tokenizer, template=text_side.chat_template)
    assert chosen.family is registry.BY_NAME["smollm2"]
