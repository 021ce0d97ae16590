"""A wish for reasoning becomes the nearest effort that a model takes, or none."""

from types import SimpleNamespace
from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, Message, Thinking
from onward.rendering.families import registry
from onward.serve.thinking import with_effort

pytestmark = pytest.mark.covers("P-12", "TH-3")
LITTLE, SOME, MUCH = (Thinking(on=True, budget=budget) for budget in (1024, 10_000, 32_000))
OFF = Thinking(on=False)
DEEP = Thinking(effort="max")


def effort(family: str, wish: Thinking, **fields: Any) -> Any:
    renderer = SimpleNamespace(takes_effort=registry.BY_NAME[family].efforts.takes)
    request = ChatRequest(model="m", messages=[Message(role="user", content="x")], thinking=wish, **fields)
    served: Any = SimpleNamespace(renderer=renderer)
    return with_effort(served, request).reasoning_effort


@pytest.mark.parametrize(
    ("family", "wishes"),
    [
        ("qwen3", {LITTLE: True, SOME: True, MUCH: "high", OFF: False, DEEP: "high"}),
        ("gpt-oss", {LITTLE: "low", SOME: "medium", MUCH: "high", OFF: "low", DEEP: "high"}),
        ("inkling", {LITTLE: "low", SOME: "medium", MUCH: "high", OFF: "none", DEEP: "max"}),
        ("llama3", {LITTLE: None, MUCH: None, OFF: None, DEEP: None}),
    ],
)
def test_the_nearest_effort_counts(family: str, wishes: dict[Thinking, Any]):
    assert {wish: effort(family, wish) for wish in wishes} == wishes
    assert effort(family, Thinking()) is None
    assert effort(family, MUCH, reasoning_effort="low") == "low"


@pytest.mark.parametrize("family", registry.ALL, ids=lambda family: family.name)
def test_what_is_taken_is_what_is_read(family):
    for value in (True, False, "none", "minimal", "low", "medium", "high", "xhigh", "max", 0.5, 7, "strange"):
        if family.efforts.takes(value):
            family.efforts.read(value, {})
        else:
            with pytest.raises(Failure):
                family.efforts.read(value, {})
