"""A neutral request as a body of OpenAI's chat."""

from typing import Any

import pytest

from onward.core.request import ChatRequest
from onward.dialects import DIALECTS
from onward.wire.requests import messages_request
from onward.wire.translating.openai_body import chat_fields

SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
IMAGE: dict[str, Any] = {"type": "image", "source": SOURCE}
SHOWN: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TEXT = {"type": "text", "text": "See."}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t0", "name": "f", "input": {}}]}


def chat(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}, CALL, *messages]}
    neutral: ChatRequest = messages_request(DIALECTS["openai"], body)
    return chat_fields(neutral, reasons=False)["messages"][2:]


def result(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t0", "content": list(content)}


@pytest.mark.covers("P-12")
def test_images_of_results_stand_in_what_the_user_says_next() -> None:
    """Such as a screenshot, or a picture that was read: a tool's message takes text alone there."""
    tool = {"role": "tool", "tool_call_id": "t0"}
    turn = {"role": "user", "content": [result(TEXT, IMAGE), {"type": "text", "text": "Go on."}]}
    said = {"role": "user", "content": [SHOWN, {"type": "text", "text": "Go on."}]}
    assert chat(turn) == [{**tool, "content": [TEXT]}, said]
    assert chat({"role": "user", "content": [result(IMAGE)]}) == [
        {**tool, "content": ""},
        {"role": "user", "content": [SHOWN]},
    ]
    several = {"role": "user", "content": [result(IMAGE), {**result(IMAGE, TEXT), "tool_use_id": "t1"}]}
    assert chat(several, CALL, {"role": "user", "content": "So?"})[:3] == [
        {**tool, "content": ""},
        {**tool, "tool_call_id": "t1", "content": [TEXT]},
        {"role": "user", "content": [SHOWN, SHOWN]},
    ]
    assert chat({"role": "user", "content": [result(TEXT)]}) == [{**tool, "content": "See."}]


def thinks(text: str, signature: str = "Eq==") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def says(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


SEALED = {"type": "redacted_thinking", "data": "Em=="}
RESULT = {"role": "user", "content": [result(TEXT)]}


def after(blocks: list[dict[str, Any]], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What an assistant's blocks become, and what follows them."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": blocks}, *messages]
    neutral = messages_request(DIALECTS["openai"], {"model": "m", "max_tokens": 9, "messages": turns})
    return chat_fields(neutral, reasons=False)["messages"][1:]


NEXT = {"role": "user", "content": "So?"}


@pytest.mark.complaint("G09")
def test_reasoning_that_is_signed_keeps_its_order() -> None:
    blocks = [thinks("a"), says("A"), SEALED, thinks("b"), says("B"), thinks("c"), *CALL["content"]]
    first, second, third = after(blocks, RESULT)[:3]
    said = {"role": "assistant"}
    assert first == {**said, "content": "A", "reasoning_content": "a", "thinking_blocks": [thinks("a")]}
    assert second == {
        **said,
        "content": "B",
        "reasoning_content": "b",
        "thinking_blocks": [SEALED, thinks("b")],
    }
    assert third.pop("tool_calls")[0]["id"] == "t0"
    assert third == {**said, "content": None, "reasoning_content": "c", "thinking_blocks": [thinks("c")]}


def test_a_message_is_not_cut_behind_a_call_nor_for_what_nobody_signed() -> None:
    call = CALL["content"][0]
    mixed = [thinks("a"), call, thinks("b"), says("B"), {**call, "id": "t1"}]
    [said] = after(mixed, NEXT)[:-1]
    assert [one["id"] for one in said["tool_calls"]] == ["t0", "t1"]
    assert said["thinking_blocks"] == [thinks("a"), thinks("b")]
    assert (said["reasoning_content"], said["content"]) == ("ab", "B")
    plain = [thinks("a", ""), says("A"), thinks("b", ""), says("B")]
    assert after(plain, NEXT)[:-1] == [{"role": "assistant", "content": "AB", "reasoning_content": "ab"}]


def test_the_beginning_of_a_reply_is_its_last_text() -> None:
    blocks = [thinks("a"), says("A"), thinks("b"), says("B")]
    assert [one["content"] for one in after(blocks)] == ["A", "B"]
    [said] = after([says("A"), thinks("b")])
    assert (said["content"], said["thinking_blocks"]) == ("A", [thinks("b")])
