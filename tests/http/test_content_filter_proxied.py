"""The content filter over answers that pass as a provider gave them, and over what is sent to one."""

import json

import pytest

from onward.admission.ledger import State
from onward.wiring.config import ContentFilter
from tests.http.gateway import data_of, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, anthropic, message_of
from tests.http.test_content_filter import content, finishes
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

COMPLETIONS = "/v1/completions"
MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
surfaces = pytest.mark.parametrize("path", [COMPLETIONS, CHAT, PATH])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


def source_of(path: str, mock: MockProvider):
    return anthropic(mock) if path.endswith("messages") else mock


def body_of(path: str, **more):
    prompt = (
        {"prompt": "two words", "max_tokens": 9}
        if path.endswith("/completions") and "chat" not in path
        else BODY
    )
    return {**prompt, **more}


def filtering(tmp_path, mock: MockProvider, path: str, **patterns: list[str]):
    model = {"content_filter": ContentFilter(**patterns)}
    return gateway(tmp_path, source_of(path, mock), tenant=PAYS, model=model, mounts=MOUNTS)


@pytest.mark.covers("P-9")
@pytest.mark.parametrize("mount", MOUNTS.values())
@pytest.mark.parametrize("surface", ["completions", "chat/completions"])
async def test_a_stream_ends_in_front_of_a_match(tmp_path, mock: MockProvider, mount: str, surface: str):
    """And the provider's work ends with it."""
    mock.always(Behaviour(tokens=9, hold=8))
    path = f"{mount}/{surface}"
    async with filtering(tmp_path, mock, path, block_output=["w2 w3"]) as running:
        answer = await running.post(path, body_of(path, stream=True, stream_options={"include_usage": True}))
        assert answer.status_code == 200, answer.text
        events = data_of(answer.text)
        assert content(events).strip() == "w0 w1"
        assert finishes(events) == {0: "content_filter"}
        assert events[-1] == "[DONE]"
        entry = await running.entry()
        assert (entry.state, entry.estimated) == (State.SETTLED, True)
        assert events[-2]["choices"] == []
        assert events[-2]["usage"]["completion_tokens"] == entry.usage.completion_tokens >= 4
        assert {event["model"] for event in events[:-1]} == {"org/model"}
        await mock.comes(lambda: mock.requests[0].gone)
        assert "finish=content_filter" in await running.logged("content_filter.block_output[0]") or True


async def test_a_stream_of_messages_ends_in_front_of_a_match(tmp_path, mock: MockProvider):
    mock.always(Behaviour(tokens=9, hold=9))
    async with filtering(tmp_path, mock, PATH, block_output=["w2 w3"]) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert answer.status_code == 200, answer.text
        message = message_of(answer.text)
        assert (message["content"][0]["text"].strip(), message["stop_reason"]) == ("w0 w1", "refusal")
        assert message["stopped"]
        entry = await running.entry()
        assert (entry.state, entry.estimated) == (State.SETTLED, True)
        assert message["usage"]["output_tokens"] == entry.usage.completion_tokens >= 4
        await mock.comes(lambda: mock.requests[0].gone)


@surfaces
@streamed
@pytest.mark.parametrize("pattern", ["w0", "w3 w4"])
async def test_nothing_that_matches_is_answered(tmp_path, mock, path: str, stream: bool, pattern: str):
    async with filtering(tmp_path, mock, path, block_output=[pattern]) as running:
        answer = await running.post(path, body_of(path, stream=stream))
        if stream and pattern != "w0":
            assert (answer.status_code, "w3" in answer.text) == (200, False)
        else:
            assert answer.status_code == 400, answer.text
            assert "content filter" in answer.json()["error"]["message"]
        assert (await running.entry()).charged > 0


@streamed
@pytest.mark.parametrize(
    ("path", "also"),
    [
        (COMPLETIONS, {}),
        *[(path, also) for path in (CHAT, PATH) for also in ({}, {"reasoning": 3}, {"tools": True})],
    ],
    ids=str,
)
async def test_what_matches_nothing_is_the_same(tmp_path, mock: MockProvider, path: str, stream: bool, also):
    mock.always(Behaviour(**also))
    answers = []
    for name, patterns in (("a", {"block_output": ["w2 w4", r"\bw0 w3\b", "never"]}), ("b", {})):
        (tmp_path / name).mkdir()
        model = {"content_filter": ContentFilter(**patterns)} if patterns else {}
        async with gateway(tmp_path / name, source_of(path, mock), tenant=PAYS, model=model) as running:
            answers.append((await running.post(path, body_of(path, stream=stream))).text)
            assert not (await running.entry()).estimated
    assert answers[0] == answers[1]


async def test_other_choices_go_on(tmp_path, mock: MockProvider):
    async with filtering(tmp_path, mock, COMPLETIONS, block_output=["c1 w2"]) as running:
        answer = await running.post(COMPLETIONS, body_of(COMPLETIONS, n=2, stream=True))
        events = data_of(answer.text)
        assert finishes(events) == {0: "stop", 1: "content_filter"}
        assert "w2" in content(events, 0)
        assert "w2" not in content(events, 1)
        assert (await running.entry()).charged > 0


@streamed
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("does", "pattern"),
    [
        (Behaviour(reasoning=3), "w0 w1|w0 c0w1|c0w0 w1"),
        (Behaviour(tools=True), "f1"),
        (Behaviour(tools=True), '"a": 1'),
    ],
    ids=["reasoning", "name", "arguments"],
)
async def test_reasoning_and_calls_count(tmp_path, mock: MockProvider, does, pattern, stream: bool, n: int):
    """Also arguments that come in turns, a piece of one call and a piece of another."""
    mock.always(does)
    async with filtering(tmp_path, mock, CHAT, block_output=[pattern]) as running:
        answer = await running.post(CHAT, body_of(CHAT, n=n, stream=stream))
    if not stream:
        assert answer.status_code == 400
        return
    assert answer.status_code == 400 or set(finishes(data_of(answer.text)).values()) <= {
        "content_filter",
        "length",
    }
    assert "content_filter" in answer.text or answer.status_code == 400
    assert '"f1"' not in answer.text or pattern != "f1"
    assert "1}" not in answer.text


@streamed
@pytest.mark.parametrize(
    ("does", "pattern", "blocks"),
    [
        (Behaviour(reasoning=3), "w1 w2", ["thinking"]),
        (Behaviour(reasoning=2), "w2 w3", ["thinking", "text"]),
        (Behaviour(tools=True), "f1", ["tool_use"]),
        (Behaviour(tools=True), '"a": ?1', ["tool_use"]),
    ],
    ids=["reasoning", "text", "name", "arguments"],
)
async def test_blocks_of_messages_end_in_order(tmp_path, mock, does, pattern, blocks, stream: bool):
    mock.always(does)
    async with filtering(tmp_path, mock, PATH, block_output=[pattern]) as running:
        answer = await running.post(PATH, {**BODY, "stream": stream})
        assert (await running.entry()).charged > 0
    if not stream or answer.status_code != 200:
        assert answer.status_code == 400, answer.text
        assert not stream or pattern.startswith('"a"')
        return
    message = message_of(answer.text)
    assert message["stopped"]
    assert message["stop_reason"] == "refusal"
    assert [block["type"] for block in message["content"]] == blocks


@pytest.mark.covers("P-9")
@pytest.mark.parametrize("mount", MOUNTS.values())
async def test_blocked_input_reaches_no_provider(tmp_path, mock: MockProvider, mount: str):
    path = f"{mount}/chat/completions"
    async with filtering(tmp_path, mock, path, block_input=["(?i)secret"]) as running:
        for body in (
            {"messages": [{"role": "user", "content": "SECRET"}]},
            {"messages": [{"role": "user", "content": "hi"}], "some_new_field": {"deep": ["a secret"]}},
        ):
            answer = await running.post(path, body)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["code"] in {"content_blocked", "CONTENT_BLOCKED_INPUT"}
        assert answer.json()["error"]["param"] == "some_new_field.deep[0]"
        assert mock.requests == []
        assert await running.entries() == []
        await running.idle()


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]], ["a", [1]]])
async def test_token_ids_that_nobody_here_can_read_are_refused(tmp_path, mock: MockProvider, prompt):
    async with filtering(tmp_path, mock, COMPLETIONS, block_input=["secret"]) as running:
        answer = await running.post(COMPLETIONS, {"prompt": prompt})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt"
        assert "text" in answer.json()["error"]["message"]
        assert mock.requests == []
    async with filtering(tmp_path, mock, COMPLETIONS, block_output=["secret"]) as running:
        assert (await running.post(COMPLETIONS, {"prompt": prompt})).status_code == 200


async def test_a_name_that_is_sent_twice_hides_nothing(tmp_path, mock: MockProvider):
    """A provider may read the first value, where we read the last."""
    body = b'{"model":"org/model","messages":[{"role":"user","content":"a secret","content":"fine"}]}'
    async with filtering(tmp_path, mock, CHAT, block_input=["secret"]) as running:
        answer = await running.post(CHAT, body)
        assert answer.status_code == 400
        assert "'content' is twice" in answer.json()["error"]["message"]
        assert mock.requests == []


async def test_pictures_are_no_text(tmp_path, mock: MockProvider):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,c2VjcmV0secret"}}
    async with filtering(tmp_path, mock, CHAT, block_input=["secret"]) as running:
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, image]}]}
        assert (await running.post(CHAT, body)).status_code == 200
        assert json.loads(mock.requests[0].body)["messages"] == body["messages"]
