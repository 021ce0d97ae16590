"""A reply that a caller began: the prompt ends with its text, and the parser goes on from there."""

from pathlib import Path

import pytest

from onward.core.request import ChatRequest
from tests.unit.rendering.families import oracle

FOLDERS = {
    "qwen3.5": ("qwen3.5", "<|im_end|>"),
    "qwen3.6": ("qwen3.5", "<|im_end|>"),
    "qwen3.8": ("qwen3.5", "<|im_end|>"),
    "qwen3-coder": ("qwen3", "<|im_end|>"),
    "qwen3-coder-next": ("qwen3", "<|im_end|>"),
    "glm-4.5": ("glm4.5", "<|user|>"),
    "glm-4.7": ("glm4.5", "<|user|>"),
    "glm-5.1": ("glm5", "<|user|>"),
    "glm-5.2": ("glm5", "<|user|>"),
}
CALLS = {
    "qwen": "\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm": "\n<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
}


@pytest.mark.parametrize("reasoning", [None, "Why?"])
@pytest.mark.parametrize("family", FOLDERS)
def test_a_begun_reply_goes_on(official: Path, family: str, reasoning: str | None):
    folder, end = FOLDERS[family]
    ours, _ = oracle.tokenizer_of(official / folder, ("eos_token", end))
    renderer = oracle.native(family, ours)
    messages = [oracle.user("Q"), oracle.assistant("Hello, wor ", reasoning=reasoning)]
    request = ChatRequest(
        model="m", messages=messages, continue_final_message=True, add_generation_prompt=False
    )
    prompt = renderer.render(request)
    text = ours.decode(prompt.ids)
    assert text.endswith("Hello, wor ")
    assert text.endswith(ours.decode(prompt.prefill))
    assert ("Why?" in text) == (reasoning is not None and renderer.family.kind == "hybrid")
    call = CALLS["glm" if family.startswith("glm") else "qwen"]
    choice = oracle.said(renderer, f"ld!{call}{end}", prefill=prompt.prefill)
    assert oracle.parts(choice) == ("ld!", "", [("f", '{"a": 1}')])
