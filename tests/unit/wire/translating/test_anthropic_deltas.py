"""A provider's message as deltas, however providers write it."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, strategies

from onward.core.delta import ChoiceDelta, FinishReason, fold
from onward.core.request import Thought
from onward.core.usage import Usage
from onward.wire.translating.anthropic_deltas import AnthropicDeltas
from tests.unit.wire.passing.messages import PING, STOP, TEXT, closes, ends, event, opens, says, start, text

TOOL: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


def read(*events: bytes) -> tuple[list[ChoiceDelta], AnthropicDeltas]:
    reader = AnthropicDeltas()
    deltas = [delta for one in events for delta in reader.feed(one)]
    return deltas + reader.close(), reader


def calls_of(deltas: list[ChoiceDelta]) -> list[tuple[int, str | None, str | None, str]]:
    return [(call.index, call.id, call.name, call.arguments) for call in fold(deltas)[0].tool_calls]


def test_text_comes_as_it_comes() -> None:
    deltas, reader = read(start(), PING, opens(**TEXT), text("Hel"), PING, text("lo"), closes(), ends(), STOP)
    assert [(one.text, one.finish) for one in deltas] == [
        ("Hel", None),
        ("lo", None),
        ("", FinishReason.STOP),
    ]
    assert (reader.usage, reader.prompt_usage) == (Usage(5, 7), Usage(5, 0))


def test_the_end_waits() -> None:
    reader = AnthropicDeltas()
    assert reader.feed(start() + opens(**TEXT) + text("Hi") + closes() + ends())[-1].finish is None


def test_signed_and_sealed_reasoning() -> None:
    deltas, _ = read(
        start(),
        opens(0, type="thinking", thinking="", signature=""),
        says(0, type="thinking_delta", thinking="So"),
        says(0, type="signature_delta", signature="Eq=="),
        closes(0),
        opens(1, type="redacted_thinking", data="Em=="),
        closes(1),
        opens(2, type="thinking", thinking="", signature=""),
        says(2, type="signature_delta", signature="Er=="),
        closes(2),
        ends(),
        STOP,
    )
    [choice] = fold(deltas)
    assert choice.reasoning == "So"
    assert choice.thoughts == [Thought("So", "Eq=="), Thought(sealed="Em=="), Thought("", "Er==")]


def test_blocks_that_are_mixed_keep_apart() -> None:
    deltas, _ = read(
        start(),
        opens(0, **TOOL),
        opens(1, **TOOL | {"id": "u", "name": "g"}),
        says(1, type="input_json_delta", partial_json="{"),
        says(0, type="input_json_delta", partial_json='{"x"'),
        says(1, type="input_json_delta", partial_json="}"),
        says(0, type="input_json_delta", partial_json=":1}"),
        closes(1),
        closes(0),
        ends("tool_use"),
        STOP,
    )
    assert calls_of(deltas) == [(0, "t", "f", '{"x":1}'), (1, "u", "g", "{}")]
    assert deltas[-1].finish is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("given", "arguments"), [({}, "{}"), ({"x": "é"}, '{"x": "é"}'), (None, "{}"), ("odd", "{}")]
)
@pytest.mark.parametrize("closed", [True, False])
def test_a_call_whose_input_comes_at_once(given: Any, arguments: str, closed: bool) -> None:
    block = opens(0, **TOOL | {"input": given})
    deltas, _ = read(start(), block, *([closes(0)] if closed else []), ends("tool_use"), STOP)
    assert calls_of(deltas) == [(0, "t", "f", arguments)]


def test_what_a_chat_has_no_place_for_is_left_out() -> None:
    deltas, _ = read(
        start(),
        opens(0, type="server_tool_use", id="s", name="web_search", input={}),
        says(0, type="input_json_delta", partial_json="{}"),
        closes(0),
        opens(1, type="web_search_tool_result", tool_use_id="s", content=[]),
        closes(1),
        opens(2, **TEXT),
        says(2, type="citations_delta", citation={"cited_text": "no"}),
        text("Yes", 2),
        closes(2),
        event({"type": "a_new_event", "text": "no"}),
        ends("pause_turn"),
        STOP,
    )
    [choice] = fold(deltas)
    assert (choice.text, choice.tool_calls, choice.finish) == ("Yes", [], FinishReason.STOP)


def test_the_stop_that_matched() -> None:
    deltas, _ = read(
        start(), opens(**TEXT), text("Hi"), closes(), ends("stop_sequence", sequence="END"), STOP
    )
    assert (deltas[-1].finish, deltas[-1].stop) == (FinishReason.STOP, "END")


@pytest.mark.parametrize(
    "events",
    [
        [],
        [start()],
        [start(), opens(**TEXT), text("Hi")],
        [start(), opens(**TEXT), text("Hi"), closes(), ends()],
        [start(), opens(**TEXT), text("Hi"), closes(), STOP],
    ],
)
def test_a_stream_that_is_not_whole(events: list[bytes]) -> None:
    deltas, reader = read(*events)
    assert reader.failure is not None
    assert all(delta.finish is None for delta in deltas)


def test_a_whole_message() -> None:
    blocks = [{"type": "thinking", "thinking": "So", "signature": "Eq=="}, TEXT | {"text": "Hi"}, TOOL]
    body = {"type": "message", "content": blocks, "stop_reason": "tool_use", "usage": {"input_tokens": 3}}
    reader = AnthropicDeltas()
    deltas = reader.whole(json.dumps(body).encode())
    [choice] = fold(deltas)
    assert (choice.text, choice.reasoning, choice.thoughts) == ("Hi", "So", [Thought("So", "Eq==")])
    assert calls_of(deltas) == [(0, "t", "f", "{}")]
    assert (reader.usage, reader.prompt_usage) == (None, Usage(3, 0))
    assert reader.completion_tokens >= 1


@pytest.mark.covers("P-12")
@given(strategies.text(min_size=1), strategies.data())
def test_a_text_that_was_cut_by_utf_16_units(said: str, draw: strategies.DataObject) -> None:
    """Such cuts leave halves of characters, which UTF-8 has not."""
    units = said.encode("utf-16-le", "surrogatepass")
    cuts = sorted(draw.draw(strategies.lists(strategies.integers(0, len(units) // 2), max_size=5)))
    bounds = list(itertools.pairwise([0, *cuts, len(units) // 2]))
    pieces = [units[2 * begin : 2 * end].decode("utf-16-le", "surrogatepass") for begin, end in bounds]
    deltas, _ = read(start(), opens(**TEXT), *map(text, pieces), closes(), ends(), STOP)
    assert fold(deltas)[0].text == units.decode("utf-16-le", "replace")
