"""The content filter over answers that are translated: in front of a match a stream ends, and well."""

import pytest

from onward.admission.ledger import State
from onward.wiring.config import ContentFilter
from tests.http.gateway import data_of, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, anthropic, message_of
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ways = pytest.mark.parametrize("path", [PATH, CHAT], ids=["messages over chat", "chat over messages"])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


def source_of(path: str, mock: MockProvider):
    return mock if path == PATH else anthropic(mock)


@ways
async def test_a_stream_ends_in_front_of_a_match(tmp_path, mock: MockProvider, path: str):
    """And the provider's work ends with it."""
    mock.always(Behaviour(tokens=9, hold=8))
    model = {"content_filter": ContentFilter(block_output=["w2 w3"])}
    async with gateway(tmp_path, source_of(path, mock), tenant=PAYS, model=model) as running:
        answer = await running.post(path, {**BODY, "stream": True})
        assert answer.status_code == 200, answer.text
        if path == PATH:
            message = message_of(answer.text)
            assert (message["content"][0]["text"], message["stop_reason"]) == (" w0 w1 ", "refusal")
            assert message["stopped"]
        else:
            events = data_of(answer.text)
            said = [choice for event in events[:-1] for choice in event["choices"]]
            assert "".join(choice["delta"].get("content") or "" for choice in said) == " w0 w1 "
            assert (said[-1]["finish_reason"], events[-1]) == ("content_filter", "[DONE]")
        await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert (entry.state, entry.estimated) == (State.SETTLED, True)
        assert entry.usage.completion_tokens >= 3


@ways
@streamed
@pytest.mark.parametrize("pattern", ["w0", "w3 w4"])
async def test_nothing_that_matches_is_answered(tmp_path, mock, path: str, stream: bool, pattern: str):
    model = {"content_filter": ContentFilter(block_output=[pattern])}
    async with gateway(tmp_path, source_of(path, mock), tenant=PAYS, model=model) as running:
        answer = await running.post(path, {**BODY, "stream": stream})
        if stream and pattern != "w0":
            assert (answer.status_code, "w3" in answer.text) == (200, False)
        else:
            assert answer.status_code == 400
            assert "content" in answer.json()["error"]["message"]
        assert (await running.entry()).charged > 0


@ways
@streamed
async def test_what_matches_nothing_is_whole(tmp_path, mock: MockProvider, path: str, stream: bool):
    model = {"content_filter": ContentFilter(block_output=["w2 w4", "never"])}
    async with gateway(tmp_path, source_of(path, mock), tenant=PAYS, model=model) as running:
        answer = await running.post(path, {**BODY, "stream": stream})
        assert answer.status_code == 200
        for token in range(5):
            assert f"w{token}" in answer.text
        assert not (await running.entry()).estimated
