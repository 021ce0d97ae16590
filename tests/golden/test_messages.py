"""The bytes of answers of the `messages` surface, streamed and not, with fixed IDs.

`python -m tests.golden.test_messages` writes them anew: read the difference before it is kept.
"""

from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from onward.core.delta import ChoiceDelta, FinishReason, ToolCallDelta
from onward.core.failure import Failure, FailureKind
from onward.core.request import Thought
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.wire.messages import MessagesEncoder
from onward.wire.requests import messages_request

FOLDER = Path(__file__).parent
BODY = {"model": "org/model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
USAGE = Usage(prompt_tokens=7, completion_tokens=4, cached_tokens=3)
CASES: dict[str, tuple[dict[str, Any], list[ChoiceDelta]]] = {
    "plain": (
        {"max_tokens": 4},
        [
            ChoiceDelta(index=0, text=" Paris"),
            ChoiceDelta(index=0, text='. "Caf\u00e9"\n\U0001f600'),
            ChoiceDelta(index=0, finish=FinishReason.LENGTH),
        ],
    ),
    "calls": (
        {},
        [
            ChoiceDelta(index=0, reasoning="Look "),
            ChoiceDelta(index=0, reasoning="it up.", text="I look."),
            ChoiceDelta(index=0, tool_calls=[ToolCallDelta(0, "call_a", "weather", '{"city": "')]),
            ChoiceDelta(index=0, tool_calls=[ToolCallDelta(0, arguments='Paris"}')]),
            ChoiceDelta(
                index=0, tool_calls=[ToolCallDelta(1, "call_b", "time", "{}")], finish=FinishReason.TOOL_CALLS
            ),
        ],
    ),
    "signed": (
        {"stop_sequences": ["END"]},
        [
            ChoiceDelta(index=0, reasoning="First."),
            ChoiceDelta(index=0, thoughts=[Thought("First.", "c2lnbg=="), Thought(sealed="c2VhbA==")]),
            ChoiceDelta(index=0, text="So"),
            ChoiceDelta(index=0, reasoning="Then.", thoughts=[Thought("Then.", "b3RoZXI=")]),
            ChoiceDelta(index=0, text="be it.", finish=FinishReason.STOP, stop="END"),
        ],
    ),
    "nothing": ({}, [ChoiceDelta(index=0, finish=FinishReason.CONTENT_FILTER)]),
}


def transcript(dialect_name: str, case: str) -> bytes:
    """Unstreamed, streamed, and broken off after the first delta."""
    dialect = DIALECTS[dialect_name]
    fields, deltas = CASES[case]
    request = messages_request(dialect, {**BODY, **fields})

    def encoder() -> MessagesEncoder:
        return MessagesEncoder(dialect, request, id="0001", created=1700000000)

    streamed, broken = encoder(), encoder()
    failure = Failure(FailureKind.ENGINE_FAILED, "The engine stopped. Send the request again.")
    return b"\n".join(
        [
            b"# unstreamed",
            encoder().whole(deltas, USAGE),
            b"\n# streamed",
            b"".join(streamed.events(delta, USAGE) for delta in deltas) + streamed.end(USAGE),
            b"# broken off",
            broken.events(deltas[0], USAGE) + broken.failure(failure),
        ]
    )


@pytest.mark.covers("P-12", "O-4")
@pytest.mark.complaint("G09")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dialect", ["openai", "prentis"])
def test_the_bytes_are_those_that_were_agreed_on(dialect: str, case: str) -> None:
    """The same on every mount."""
    assert transcript(dialect, case) == (FOLDER / f"messages-{case}.txt").read_bytes()


@pytest.mark.covers("P-12", "O-4")
@pytest.mark.parametrize("case", CASES)
def test_the_types_of_the_sdk_take_them(case: str) -> None:
    """Strictly: no member of another type, none missing."""
    unstreamed, streamed, broken = (
        part.strip().removeprefix("# ").partition("\n")[2]
        for part in (FOLDER / f"messages-{case}.txt").read_text().split("\n# ")
    )
    Message.model_validate_json(unstreamed.strip(), strict=True)
    event = TypeAdapter[Any](RawMessageStreamEvent)
    *events, failure = [
        line.removeprefix("data: ")
        for line in (streamed + "\n" + broken).split("\n")
        if line.startswith("data: ") and line != 'data: {"type":"ping"}'
    ]
    for data in events:
        event.validate_json(data, strict=True)
    ErrorResponse.model_validate_json(failure, strict=True)


if __name__ == "__main__":
    for case in CASES:
        (FOLDER / f"messages-{case}.txt").write_bytes(transcript("openai", case))
