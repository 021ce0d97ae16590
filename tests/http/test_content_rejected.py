"""A provider's refusal of what a request says: told apart, in our own words, and free."""

import pytest

from onward.admission.ledger import State
from tests.http.gateway import gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, anthropic
from tests.mock_answers import SECRET, Behaviour
from tests.mock_provider import MockProvider

MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
CODES = {
    "/v1": "content_rejected",
    "/tokens/v1": "invalid_request",
    "/prentis/v1": "UPSTREAM_CONTENT_REJECTED",
}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.mark.covers("P-9", "K-7", "K-12")
@pytest.mark.parametrize("mount", MOUNTS.values())
@pytest.mark.parametrize(
    ("stream", "does"),
    [
        (False, Behaviour(status=400, rejects=True)),
        (True, Behaviour(status=400, rejects=True)),
        (True, Behaviour(error_event=0, rejects=True)),
    ],
    ids=["whole", "streamed", "in the stream"],
)
async def test_a_provider_refuses_the_content(tmp_path, mock: MockProvider, mount, stream: bool, does):
    mock.always(does)
    async with gateway(tmp_path, mock, tenant=PAYS, mounts=MOUNTS) as running:
        answer = await running.post(f"{mount}/chat/completions", {**BODY, "stream": stream})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, CODES[mount])
        assert SECRET not in answer.text
        assert "content_filter" not in answer.text
        entry = await running.entry()
        assert (entry.state, entry.charged, entry.outcome) == (State.RELEASED, 0, "upstream_content_rejected")


@streamed
@pytest.mark.parametrize("path", [CHAT, PATH])
async def test_anthropics_words_are_not_repeated(tmp_path, mock: MockProvider, path: str, stream: bool):
    mock.always(Behaviour(status=400, rejects=True))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts=MOUNTS) as running:
        answer = await running.post(path, {**BODY, "stream": stream})
        assert answer.status_code == 400
        assert "refuses what the request says" in answer.json()["error"]["message"]
        assert "filtering policy" not in answer.text


@streamed
async def test_another_provider_may_take_it(tmp_path, mock: MockProvider, stream: bool):
    with MockProvider() as other:
        mock.always(Behaviour(status=400, rejects=True))
        async with gateway(tmp_path, mock, other, tenant=PAYS, mounts=MOUNTS) as running:
            answer = await running.post(CHAT, {**BODY, "stream": stream})
            assert answer.status_code == 200
            assert len(other.requests) == 1
            assert (await running.entry()).charged > 0
