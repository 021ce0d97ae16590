"""D16 to D18: tool calls and the border of reasoning, however the engine cuts its output.

A scripted engine says what no model can be made to say, in the format of Qwen3: with its own
tokenizer, whose marks are tokens, and with SmolLM2's, which spells them.
"""

import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.api import Api
from tests.http.harness import MODEL, edge
from tests.unit.rendering.families.oracle import tokenizer_of

from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer

END = "<|im_end|>"
ASK = {"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 500}
Cut = Callable[[list[int]], list[list[int]]]
CUTS: dict[str, Cut] = {
    "one token a step": lambda ids: [[token] for token in ids],
    "all at once": lambda ids: [ids],
    "three a step": lambda ids: [ids[at : at + 3] for at in range(0, len(ids), 3)],
    "seven a step": lambda ids: [ids[at : at + 7] for at in range(0, len(ids), 7)],
}


@pytest.fixture
def still_serving() -> None:
    """No real server here: nothing to ask afterwards."""


@pytest.fixture(params=["tokens", "text"])
def spoken(request, tokenizer):
    """A tokenizer whose marks are tokens, and one whose marks are text."""
    if request.param == "text":
        return tokenizer
    return tokenizer_of(request.getfixturevalue("official") / "qwen3", ("eos_token", END))[0]


class Talk:
    """A server whose model says what it is told, cut as it is told."""

    def __init__(self, api: Api, tokenizer: Any) -> None:
        self.api = api
        self.tokenizer = tokenizer
        self.steps: list[list[int]] = []

    def __call__(self, _: Any) -> list[list[int]]:
        return self.steps

    def says(self, text: str, cut: Cut) -> None:
        ids = self.tokenizer.encode(text, control=True)
        assert sum(len(step) for step in cut(ids)) == len(ids)
        self.steps = cut(ids)

    async def whole(self, **body: Any) -> dict[str, Any]:
        return (await self.api.chat(**ASK, **body))["choices"][0]

    async def deltas(self, **body: Any) -> list[dict[str, Any]]:
        """The deltas of a stream; the last one has a finish reason and no other."""
        choices = [event["choices"][0] async for event in self.api.events("chat/completions", **ASK, **body)]
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        return [choice["delta"] | {"finish_reason": choice["finish_reason"]} for choice in choices]


@pytest.fixture
async def talk(spoken, tmp_path) -> AsyncIterator[Talk]:
    renderer = NativeRenderer(registry.BY_NAME["qwen3"], spoken)
    engine = ScriptedEngine([])
    side = SimpleNamespace(tokenizer=spoken, renderer=renderer)
    async with edge(side, tmp_path, engine) as running:
        running.client.base_url = f"http://127.0.0.1:{running.port}/v1/"
        talk = Talk(Api(running.client, MODEL), spoken)
        engine._script = talk
        yield talk


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def joined(deltas: list[dict[str, Any]], key: str) -> str:
    return "".join(delta.get(key) or "" for delta in deltas)


def call_deltas(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for delta in deltas for one in delta.get("tool_calls") or []]


@pytest.mark.fault("D16")
@pytest.mark.covers("TH-5", "TH-7")
@pytest.mark.parametrize("cut", CUTS)
async def test_calls_have_a_proper_index(talk: Talk, cut: str):
    """Every tool delta has its call's integer index; calls stand in the order of the text."""
    talk.says(f"Two:\n{call('a', '{}')}\n{call('b', '{}')} after{END}", CUTS[cut])
    deltas = await talk.deltas()
    found = call_deltas(deltas)
    assert [(one["index"], type(one["index"]), one["function"]["name"]) for one in found] == [
        (0, int, "a"),
        (1, int, "b"),
    ]
    assert len({one["id"] for one in found}) == 2
    whole = await talk.whole()
    assert [one["function"]["name"] for one in whole["message"]["tool_calls"]] == ["a", "b"]
    assert len({one["id"] for one in whole["message"]["tool_calls"]}) == 2
    assert whole["message"]["content"] == joined(deltas, "content") == "Two: after"
    assert whole["finish_reason"] == deltas[-1]["finish_reason"] == "tool_calls"


ARGUMENTS = [
    '{"q": "say \\"hi\\" \\\\ there"}',
    '{"q": "naïve 日本語 😀"}',
    '{"q": {"a": [1.50, -2e3, null]}}',
    "{}",
]


@pytest.mark.fault("D17")
@pytest.mark.covers("TH-5")
@pytest.mark.parametrize("arguments", ARGUMENTS)
async def test_calls_do_not_depend_on_how_the_engine_cuts(talk: Talk, arguments: str):
    """Identity and name come once, first; arguments joined are the same JSON in every mode."""
    text = call("look_up", arguments) + END
    cuts = dict(CUTS)
    for at in range(1, len(talk.tokenizer.encode(text, control=True)), 2):
        # Among these: inside the escape of a quote, and inside a character of several bytes.
        cuts[f"in two at {at}"] = lambda ids, at=at: [ids[:at], ids[at:]]
    for cut in cuts.values():
        talk.says(text, cut)
        first, *later = call_deltas(await talk.deltas())
        assert (first["index"], first["type"], first["function"]["name"]) == (0, "function", "look_up")
        assert first["id"].startswith("call_")
        assert all(
            set(one) == {"index", "function"} and set(one["function"]) == {"arguments"} for one in later
        )
        streamed = "".join(one["function"]["arguments"] for one in [first, *later])
        assert streamed == arguments
        assert json.loads(streamed) == json.loads(arguments)
    [whole] = (await talk.whole())["message"]["tool_calls"]
    assert whole["function"] == {"name": "look_up", "arguments": arguments}


@pytest.mark.fault("D18")
@pytest.mark.covers("TH-4", "TH-10")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("text", ["<think>abc</think>def", "<think>\nabc\n</think>\n\ndef"])
async def test_the_border_of_reasoning(talk: Talk, text: str, cut: str):
    """(a) to (c): the end tag alone in a step, amid text, or over several steps."""
    talk.says(text + END, CUTS[cut])
    deltas = await talk.deltas()
    message = (await talk.whole())["message"]
    assert (message["reasoning_content"], message["content"]) == ("abc", "def")
    assert (joined(deltas, "reasoning_content"), joined(deltas, "content")) == ("abc", "def")


@pytest.mark.fault("D18")
@pytest.mark.covers("TH-10")
async def test_reasoning_that_never_ends_is_reasoning(talk: Talk):
    """(d): cut by the limit, all of it is reasoning, and there is no content."""
    talk.says("<think>abc def ghi", CUTS["one token a step"])
    deltas = await talk.deltas()
    choice = await talk.whole()
    assert choice["message"]["reasoning_content"] == joined(deltas, "reasoning_content") == "abc def ghi"
    assert not choice["message"]["content"]
    assert not joined(deltas, "content")
    assert choice["finish_reason"] == deltas[-1]["finish_reason"] == "length"


@pytest.mark.fault("D18")
@pytest.mark.covers("TH-11")
async def test_an_end_tag_quoted_in_the_answer(talk: Talk):
    """(e): spelled with ordinary tokens it is text; as the control token it breaks the format (TH-11)."""
    ids = talk.tokenizer.encode("<think>abc</think>def ", control=True)
    quoted = talk.tokenizer.encode("`</think>` closes", control=False)
    talk.steps = [[token] for token in [*ids, *quoted, *talk.tokenizer.encode(END, control=True)]]
    deltas = await talk.deltas()
    message = (await talk.whole())["message"]
    assert (message["reasoning_content"], message["content"]) == ("abc", "def `</think>` closes")
    assert joined(deltas, "content") == "def `</think>` closes"
    if talk.tokenizer.control_id("</think>") is None:
        return
    talk.says(f"<think>abc</think>def</think>ghi{END}", CUTS["one token a step"])
    message = (await talk.whole())["message"]
    assert (message["content"], message.get("reasoning_content")) == (
        "<think>abc</think>def</think>ghi",
        None,
    )
    deltas = await talk.deltas()
    assert (joined(deltas, "reasoning_content"), joined(deltas, "content")) == ("abc", "def</think>ghi")


@pytest.mark.fault("D18")
@pytest.mark.parametrize("cut", CUTS)
async def test_a_stop_string_inside_the_reasoning(talk: Talk, cut: str):
    """(f): it acts on the raw text, and the reasoning up to it stays reasoning."""
    talk.says(f"<think>abc STOP def</think>ghi{END}", CUTS[cut])
    deltas = await talk.deltas(stop=["STOP"])
    choice = await talk.whole(stop=["STOP"])
    assert choice["message"]["reasoning_content"] == joined(deltas, "reasoning_content") == "abc "
    assert not choice["message"]["content"]
    assert choice["finish_reason"] == deltas[-1]["finish_reason"] == "stop"


@pytest.mark.fault("D18")
@pytest.mark.covers("TH-14")
@pytest.mark.parametrize("cut", CUTS)
async def test_reasoning_may_be_part_of_the_content(talk: Talk, cut: str):
    """`separate_reasoning: false` puts it there, without any tag."""
    talk.says(f"<think>abc</think>def{END}", CUTS[cut])
    message = (await talk.whole(separate_reasoning=False))["message"]
    assert (message["content"], message.get("reasoning_content")) == ("abcdef", None)
    deltas = await talk.deltas(separate_reasoning=False)
    assert joined(deltas, "content") == "abcdef"
    assert not joined(deltas, "reasoning_content")
