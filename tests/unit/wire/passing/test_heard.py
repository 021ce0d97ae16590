"""Readers of streams tell events from what only keeps a connection awake."""

from collections.abc import Callable
from typing import Any

import pytest

from onward.core.content_filter import ContentFilter
from onward.wire.passing.filtered import FilteredWatch
from onward.wire.passing.messages_stream import MessagesWatch
from onward.wire.passing.shapes import OpenAiShape
from onward.wire.passing.stream import StreamWatch
from onward.wire.translating.anthropic_deltas import AnthropicDeltas
from onward.wire.translating.openai_deltas import OpenAiDeltas
from tests.unit.wire.passing import messages
from tests.unit.wire.passing.events import DONE, piece

QUIET = (
    b": keep-alive\n\n",
    b":\n\n",
    b"\n",
    b"event: ping\n\n",
    b"retry: 5\r\n\r\n",
    b": in two",
    b" parts\n\n",
)
OPENAI = [piece("a"), piece("b"), piece("c"), piece("", "stop"), DONE]
ANTHROPIC = [
    messages.start(),
    messages.PING,
    messages.opens(type="text", text=""),
    messages.text("a"),
    messages.ends(),
    messages.STOP,
]


def _filtered() -> FilteredWatch:
    nothing = ContentFilter()
    return FilteredWatch(
        StreamWatch("mine", show_usage=False), nothing, OpenAiShape(), choices=1, found=lambda _: None
    )


READERS: dict[str, tuple[Callable[[], Any], list[bytes]]] = {
    "passing": (lambda: StreamWatch("mine", show_usage=False), OPENAI),
    "passing, filtered": (_filtered, OPENAI),
    "messages": (lambda: MessagesWatch("mine"), ANTHROPIC),
    "messages, known members alone": (lambda: MessagesWatch("mine", only_known=True), ANTHROPIC),
    "translated": (lambda: OpenAiDeltas(lambda: "an-id"), OPENAI),
    "translated messages": (AnthropicDeltas, ANTHROPIC),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.complaint("G28")
def test_an_event_is_heard_and_a_comment_is_not(name: str) -> None:
    make, events = READERS[name]
    reader = make()
    assert not reader.heard()
    for event in events:
        for quiet in QUIET:
            reader.feed(quiet)
            assert not reader.heard(), quiet
        reader.feed(QUIET[0] + event + QUIET[0])
        assert reader.heard(), event
        assert not reader.heard(), "since it was last asked"
    assert reader.failure is None
