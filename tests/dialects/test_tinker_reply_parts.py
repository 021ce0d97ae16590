"""Replies in several parts (TH-10), and efforts that are numbers (TH-3), in the `tinker` dialect.

gpt-oss and Inkling write a reply as messages behind each other, any number of each kind.
"""

from pathlib import Path

import pytest

from tests.dialects.test_tinker_pages import TOOLS
from tests.dialects.test_tinker_replies import joined, played, shown
from tests.laws.official import official_renderer

START = "<|start|>assistant"
HARMONY = (
    "<|channel|>analysis<|message|>One. <|end|>"
    f"{START}<|channel|>commentary<|message|>First, <|end|>"
    f"{START}<|channel|>analysis<|message|>Two. <|end|>"
    f'{START}<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{{"city": "Paris"}}<|end|>'
    f"{START}<|channel|>analysis<|message|>Three.<|end|>"
    f"{START}<|channel|>final<|message|>second, <|end|>"
    f"{START}<|channel|>final<|message|>third.<|return|>"
)
THOUGHT, TEXT, END = (
    "<|message_model|><|content_thinking|>",
    "<|message_model|><|content_text|>",
    "<|end_message|>",
)
INKLING = (
    f"{THOUGHT}One. {END}{TEXT}First, {END}{THOUGHT}Two. {END}"
    "<|message_model|>get_weather<|content_invoke_tool_json|>"
    f'{{"name": "get_weather", "args": {{"city": "Paris"}}}}{END}'
    f"{THOUGHT}Three.{END}{TEXT}second, {END}{TEXT}third.{END}<|content_model_end_sampling|>"
)
REPLIES = {"gpt-oss": HARMONY, "inkling": INKLING}
PARTS = ("First, second, third.", "One. Two. Three.", [("get_weather", '{"city": "Paris"}')])


@pytest.fixture
async def model(request, official: Path, tmp_path: Path):
    async for running in played(
        official_renderer(request.param, official).tokenizer, tmp_path, request.param
    ):
        yield running


@pytest.mark.covers("TH-10")
@pytest.mark.parametrize("at_once", [1, 5, 1000])
@pytest.mark.parametrize(("model", "text"), REPLIES.items(), indirect=["model"], ids=REPLIES)
async def test_the_parts_of_each_kind_are_joined_in_order(model, text: str, at_once: int):
    model.said.at_once = at_once
    whole = await model.whole(text, tools=TOOLS)
    assert (shown(whole["message"]), whole["finish_reason"]) == (PARTS, "tool_calls")
    pieces = await model.pieces(text, tools=TOOLS)
    assert shown(joined(pieces)) == PARTS
    assert pieces[-1]["finish_reason"] == "tool_calls"


@pytest.mark.covers("TH-4", "TH-10")
@pytest.mark.parametrize(("model", "text"), REPLIES.items(), indirect=["model"], ids=REPLIES)
async def test_parts_are_streamed_in_the_order_of_the_reply(model, text: str):
    said = ""
    for piece in await model.pieces(text, tools=TOOLS):
        delta = piece["delta"]
        assert not (delta["content"] and delta["reasoning_content"])
        said += delta["content"] or delta["reasoning_content"] or ""
        said += "|" if delta.get("tool_calls") else ""
    assert said == "One. First, Two. |Three.second, third."


@pytest.mark.covers("TH-10", "TH-14")
@pytest.mark.parametrize(("model", "text"), REPLIES.items(), indirect=["model"], ids=REPLIES)
async def test_without_separation_all_parts_are_content(model, text: str):
    whole = await model.whole(text, tools=TOOLS, separate_reasoning=False)
    content, reasoning, _ = shown(whole["message"])
    assert (content, reasoning) == ("One. First, Two. Three.second, third.", None)


EFFORTS = [
    (None, "0.9"),
    ("none", "0"),
    ("minimal", "0.1"),
    ("low", "0.2"),
    ("medium", "0.7"),
    ("high", "0.9"),
    ("xhigh", "0.99"),
    ("max", "0.99"),
    (0, "0"),
    (0.0, "0"),
    (0.25, "0.25"),
    (0.99, "0.99"),
]


@pytest.mark.covers("TH-3")
@pytest.mark.parametrize("model", ["inkling"], indirect=True)
async def test_an_effort_is_a_number_or_stands_for_one(model):
    for effort, shown_as in EFFORTS:
        body = {} if effort is None else {"reasoning_effort": effort}
        await model.whole(f"{TEXT}Fine.{END}<|content_model_end_sampling|>", **body)
        prompt = model.said.tokenizer.decode(model.edge.engine.requests[-1].prompt)
        assert f"Thinking effort level: {shown_as}<|end_message|>" in prompt, effort


@pytest.mark.covers("TH-3")
@pytest.mark.parametrize("model", ["inkling"], indirect=True)
async def test_other_efforts_are_refused_with_those_that_are_taken(model):
    for effort in (1, 0.991, -0.01, 1e300, "extreme", "0.5", "", True, False):
        for stream in (False, True):
            status, error = await model.error("", reasoning_effort=effort, stream=stream)
            assert (status, error["param"]) == (400, "reasoning_effort"), effort
            for taken in ("'none'", "'minimal'", "'medium'", "'max'", "a number from 0.0 to 0.99"):
                assert taken in error["message"]
    assert not model.edge.engine.requests
