"""Replies of models whose family nobody knows: read by what their template writes."""

from pathlib import Path

import pytest

from onward.rendering.template import TemplateRenderer
from tests.unit.rendering.families import oracle

END = "<|im_end|>"
CALLS = {
    "json": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "function": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "arg_key": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
}
THOUGHT = "<think>\nabc\n</think>\n\n"


def template_of(text: str) -> str:
    return "{% raw %}" + text + "{% endraw %}{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def ours(official: Path):
    return oracle.tokenizer_of(official / "qwen3", ("eos_token", END))[0]


@pytest.mark.parametrize("form", CALLS)
def test_the_form_of_a_call_is_the_one_in_the_template(ours, form: str):
    renderer = TemplateRenderer(template_of(THOUGHT + CALLS[form]), ours)
    assert renderer.tools
    for other, call in CALLS.items():
        text = f"{THOUGHT}Hm.\n{call}\n{call}"
        choice = oracle.said(renderer, text + END)
        if other == form:
            assert oracle.parts(choice) == ("Hm.", "abc", [("f", '{"a": 1}')] * 2)
        else:
            assert oracle.parts(choice) == (text, "", [])


@pytest.mark.parametrize("text", ["", "<tool_call>", CALLS["function"].replace("tool_call", "call")])
def test_a_template_without_calls_has_none(ours, text: str):
    renderer = TemplateRenderer(template_of(text), ours)
    assert not renderer.tools
    for call in CALLS.values():
        choice = oracle.said(renderer, call + END)
        assert oracle.parts(choice) == (call, "", [])
