"""A neutral request as a body of Anthropic's Messages."""

from typing import Any

import pytest

from onward.core.failure import Failure
from onward.dialects import DIALECTS
from onward.wire.requests import chat_request
from onward.wire.translating.anthropic_body import messages_fields

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "1"}
SIGNED = [{"type": "thinking", "thinking": "Hm", "signature": "Eq=="}]
ENABLED = {"type": "enabled", "budget_tokens": 2048}


def fields(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [USER, *messages], "reasoning_effort": "low", "tools": [TOOL], **more}
    return messages_fields(chat_request(DIALECTS["openai"], body), most=9000)


@pytest.mark.covers("P-12")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.3),
        ("top_k", 5),
        ("top_p", 0.9),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_what_does_not_go_with_reasoning_is_refused_by_its_name(name: str, value: Any) -> None:
    """The provider would refuse it as well, and its words stay here."""
    with pytest.raises(Failure) as refused:
        fields(**{name: value})
    assert refused.value.param == name
    assert name in fields(**{name: value}, reasoning_effort="none")


@pytest.mark.covers("P-12")
def test_what_goes_with_it() -> None:
    made = fields(temperature=1, top_p=0.95, tool_choice="auto")
    assert (made["thinking"], made["top_p"]) == (ENABLED, 0.95)


@pytest.mark.covers("P-12")
def test_reasoning_goes_on_where_it_came_back() -> None:
    """OpenAI's clients send back calls alone: then the model answers without, rather than not at all."""
    assert "thinking" not in fields(CALLS, RESULT)
    assert "thinking" not in fields(CALLS, RESULT, {"role": "user", "content": "And?"})
    assert "temperature" in fields(CALLS, RESULT, temperature=0.3)
    assert fields({**CALLS, "thinking_blocks": SIGNED}, RESULT)["thinking"] == ENABLED
    assert fields(CALLS, RESULT, {"role": "assistant", "content": "So."}, USER)["thinking"] == ENABLED


def after(block: dict[str, Any], content: int, calls: int) -> dict[str, Any]:
    return {**block, "after": {"content": content, "tool_calls": calls}}


@pytest.mark.complaint("G09")
def test_thinking_blocks_stand_where_they_say() -> None:
    """Also where the caller made the message shorter, or says that a later one stands in front."""
    first, second, third = ({"type": "thinking", "thinking": one, "signature": f"{one}=="} for one in "abc")
    calls = [CALL, {**CALL, "id": "d"}]
    said = {"role": "assistant", "content": "é😀B", "tool_calls": calls}
    results = [{**RESULT, "tool_call_id": one} for one in "cd"]

    def blocks(*thinking: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        made = fields({**said, **more, "thinking_blocks": list(thinking)}, *results)
        return [
            {name: block[name] for name in ("thinking", "text", "id") if name in block}
            for block in made["messages"][1]["content"]
        ]

    a, b, c = ({"thinking": one} for one in "abc")
    assert blocks(first, after(second, 2, 0), after(third, 3, 1)) == [
        *(a, {"text": "é😀"}, b, {"text": "B"}, {"id": "c"}, c, {"id": "d"})
    ]
    assert blocks(after(first, 2, 1), after(second, 1, 0)) == [
        *({"text": "é😀"}, {"id": "c"}, a, b, {"text": "B"}, {"id": "d"})
    ]
    assert blocks(after(first, 99, 99)) == [{"text": "é😀B"}, {"id": "c"}, {"id": "d"}, a]
    parts = [{"type": "text", "text": "é"}, {"type": "text", "text": "😀B"}]
    assert blocks(after(first, 2, 0), content=parts) == [
        *({"text": "é"}, {"text": "😀"}, a, {"text": "B"}, {"id": "c"}, {"id": "d"})
    ]


@pytest.mark.parametrize("place", ["2", {"content": -1}, {"content": True}, {"tool_calls": 1.0}])
def test_a_place_that_is_none_is_refused(place: Any) -> None:
    with pytest.raises(Failure) as refused:
        fields(
            {"role": "assistant", "content": "x", "thinking_blocks": [{**SIGNED[0], "after": place}]}, USER
        )
    assert (refused.value.param or "").startswith("messages[1].thinking_blocks[0].after")


def test_texts_of_white_space_are_left_out() -> None:
    """Models write them in front of calls; this API refuses them."""
    made = fields({**CALLS, "content": "\n\n"}, RESULT)
    assert [block["type"] for block in made["messages"][1]["content"]] == ["tool_use"]
    parts = [{"type": "text", "text": " "}, {"type": "text", "text": " é "}]
    assert fields({"role": "user", "content": parts})["messages"][0]["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "text", "text": " é "},
    ]


@pytest.mark.parametrize("stop", ["\n", ["END", " \t"]])
def test_stops_of_white_space_are_refused(stop: Any) -> None:
    with pytest.raises(Failure) as refused:
        fields(stop=stop)
    assert refused.value.param == "stop"


def test_ids_of_calls_in_letters_that_the_api_takes() -> None:
    ids = ["functions.f:0", "functions.f:1", "toolu_1-a"]
    calls = {**CALLS, "tool_calls": [{**CALL, "id": one} for one in ids]}
    results = [{**RESULT, "tool_call_id": one} for one in ids]
    _, called, answered = fields(calls, *results)["messages"]
    shown = ["functions_2ef_3a0", "functions_2ef_3a1", "toolu_1-a"]
    assert [block["id"] for block in called["content"]] == shown
    assert [block["tool_use_id"] for block in answered["content"]] == shown


def test_results_come_first() -> None:
    """A picture of the first result may stand between it and the second."""
    calls = {**CALLS, "tool_calls": [CALL, {**CALL, "id": "d"}]}
    seen = {"role": "user", "content": "Seen."}
    turn = fields(calls, RESULT, seen, {**RESULT, "tool_call_id": "d"})["messages"][2]
    assert [block["type"] for block in turn["content"]] == ["tool_result", "tool_result", "text"]


def test_what_the_api_requires_and_chats_leave_out() -> None:
    made = fields(user="", tools=[{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}])
    assert made["tools"] == [{"name": "f", "input_schema": {"type": "object", "a": 1}}]
    assert "metadata" not in made


def adapted(*messages: dict[str, Any], most: int = 9000, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [USER, *messages], "tools": [TOOL], **more}
    return messages_fields(chat_request(DIALECTS["openai"], body), most=most, adaptive=True)


@pytest.mark.parametrize(
    ("effort", "told"), [("minimal", "low"), ("medium", "medium"), ("max", "max"), (True, None)]
)
def test_a_model_that_adapts_is_told_an_effort(effort: Any, told: str | None) -> None:
    """Whatever the limit, and whether or not earlier reasoning came back."""
    for made in (
        adapted(reasoning_effort=effort, most=100),
        adapted(CALLS, RESULT, reasoning_effort=effort),
    ):
        assert made["thinking"] == {"type": "adaptive", "display": "summarized"}
        assert made.get("output_config") == (None if told is None else {"effort": told})


def test_a_model_that_adapts_and_is_told_nothing() -> None:
    assert not {"thinking", "output_config"} & set(adapted())
    assert adapted(reasoning_effort="none", temperature=0.3)["thinking"] == {"type": "disabled"}
    for wrong in ({"temperature": 0.3}, {"reasoning_effort": 0.5}):
        with pytest.raises(Failure):
            adapted(**{"reasoning_effort": "low", **wrong})
