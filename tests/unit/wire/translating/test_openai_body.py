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
