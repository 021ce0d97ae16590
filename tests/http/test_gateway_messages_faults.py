"""What is translated, at providers that fail or answer oddly: another is asked, an error event, the same text."""

import pytest

from onward.admission.ledger import State
from onward.core.failure import Failure, FailureKind
from onward.engines.scripted import ScriptedEngine
from tests.http.gateway import UPSTREAM, cost, data_of, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, USER, anthropic, chat_of, events_of, message_of, told
from tests.mock_answers import SECRET as THEIRS
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WAYS = [("chat", PATH), ("anthropic", CHAT)]


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


def source_of(way: str, mock: MockProvider, name: str = "one"):
    return mock if way == "chat" else anthropic(mock, name)


def text_of(path: str, text: str) -> str:
    return message_of(text)["content"][0]["text"] if path == PATH else chat_of(text)["content"]


BEFORE = {
    "a status": Behaviour(status=500),
    "an error event": Behaviour(error_event=1),
    "cut": Behaviour(cut=1),
    "a page": Behaviour(html=True),
    "nothing": Behaviour(cut=0),
}


@pytest.mark.parametrize(("way", "path"), WAYS)
@pytest.mark.parametrize("fault", BEFORE)
async def test_before_the_first_piece_another_is_asked(
    tmp_path, mock, other, way: str, path: str, fault: str
):
    mock.always(BEFORE[fault])
    sources = source_of(way, mock), source_of(way, other, "two")
    async with gateway(tmp_path, *sources, tenant=PAYS) as running:
        answer = await running.post(path, {**BODY, "stream": True})
        assert text_of(path, answer.text) == " w0 w1 w2 w3 w4"
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["upstream_unavailable", "ok"]
        assert entry.charged == cost(5, 5)


AFTER = {
    "an error event": Behaviour(error_event=5),
    "cut": Behaviour(cut=5),
    "reset": Behaviour(cut=5, reset=True),
}


@pytest.mark.parametrize(("way", "path"), WAYS)
@pytest.mark.parametrize("fault", AFTER)
async def test_after_it_the_stream_ends_with_an_error(tmp_path, mock, other, way: str, path: str, fault: str):
    mock.always(AFTER[fault])
    sources = source_of(way, mock), source_of(way, other, "two")
    async with gateway(tmp_path, *sources, tenant=PAYS) as running:
        answer = await running.post(path, {**BODY, "stream": True})
        assert answer.status_code == 200
        assert "[DONE]" not in answer.text
        assert "message_stop" not in answer.text
        assert THEIRS not in answer.text
        if path == PATH:
            assert events_of(answer.text)[-1]["error"]["type"] == "overloaded_error"
        else:
            assert data_of(answer.text)[-1]["error"]["code"] == "upstream_unavailable"
            assert '"finish_reason":"' not in answer.text
        assert not other.requests
        entry = await running.entry()
        assert (entry.state, entry.estimated) == (State.SETTLED, True)
        assert entry.charged > 0


@pytest.mark.parametrize(("way", "path"), WAYS)
@streamed
async def test_without_usage_it_is_estimated(tmp_path, mock, way: str, path: str, stream: bool):
    mock.always(Behaviour(usage="never"))
    async with gateway(tmp_path, source_of(way, mock), tenant=PAYS) as running:
        assert (await running.post(path, {**BODY, "stream": stream})).status_code == 200
        entry = await running.entry()
        assert (entry.estimated, entry.state) == (True, State.SETTLED)
        assert entry.usage.completion_tokens >= 4


@pytest.mark.parametrize(("way", "path"), WAYS)
async def test_a_caller_who_leaves_ends_the_providers_work(tmp_path, mock, way: str, path: str):
    mock.always(Behaviour(hold=5))
    async with gateway(tmp_path, source_of(way, mock), tenant=PAYS) as running:
        async with running.caller(path=path, **BODY, stream=True) as caller:
            await caller.reads(4)
            caller.goes()
            await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert (entry.outcome, entry.estimated) == ("disconnected", True)
        assert entry.usage.completion_tokens >= 1


@pytest.mark.parametrize(
    ("reason", "sequence", "finish"),
    [
        ("end_turn", None, "stop"),
        ("stop_sequence", "END", "stop"),
        ("max_tokens", None, "length"),
        ("model_context_window_exceeded", None, "length"),
        ("refusal", None, "content_filter"),
        ("pause_turn", None, "stop"),
        ("a new one", None, "stop"),
    ],
)
@streamed
async def test_reasons_of_an_end(tmp_path, mock, reason, sequence, finish, stream: bool):
    mock.always(Behaviour(stop_reason=reason, stop_sequence=sequence))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(CHAT, {"messages": USER, "stream": stream})
        assert (chat_of(answer.text) if stream else told(answer.json()))["finish"] == finish


async def test_a_provider_stands_by_a_model_of_ours(text_side, tmp_path, mock: MockProvider):
    """One request, three forms: served, in the words of chats, and as it is."""
    engine = ScriptedEngine(lambda _: [Failure(FailureKind.ENGINE_FAILED, "The engine died. Try again.")])
    async with gateway(tmp_path, engine, mock, anthropic(mock), text_side=text_side, tenant=PAYS) as running:
        mock.say(Behaviour(status=503))
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert message_of(answer.text)["content"][0]["text"] == " w0 w1 w2 w3 w4"
        assert [one.path for one in mock.requests] == ["/v1/chat/completions", "/v1/messages"]
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["engine_failed", "upstream_unavailable", "ok"]


ODD = {
    "crlf": Behaviour(crlf=True),
    "no space": Behaviour(no_space=True),
    "comments": Behaviour(comments=True),
    "named": Behaviour(named=True),
    "pings": Behaviour(pings=True),
    "HTTP/1.0": Behaviour(http10=True),
    "closes": Behaviour(close=True),
    "closes without a word": Behaviour(close_after=True),
    "100 and 103": Behaviour(interim=True),
    "a byte at a time": Behaviour(drip=True),
    "says HTML": Behaviour(content_type="text/html"),
    "bytes behind": Behaviour(extra=True),
    "a long line": Behaviour(huge=200_000),
    "usage on the last": Behaviour(usage_on_last=True),
    "usage everywhere": Behaviour(usage_each=True),
    "usage of nothing": Behaviour(usage_null=True),
    "own name": Behaviour(echo_model=True),
    "branded": Behaviour(branded=True, comments=True),
}


@pytest.mark.parametrize(("way", "path"), [*WAYS, ("anthropic", PATH)])
@streamed
@pytest.mark.parametrize("oddity", ODD)
async def test_an_odd_answer_is_an_answer(tmp_path, mock, way: str, path: str, stream: bool, oddity: str):
    mock.always(ODD[oddity])
    async with gateway(tmp_path, source_of(way, mock), tenant=PAYS) as running:
        for _ in range(2):  # whatever it did to its connection, the next call is answered as well
            answer = await running.post(path, {**BODY, "stream": stream})
            assert answer.status_code == 200, answer.text
            assert UPSTREAM not in answer.text
            if stream:
                text = text_of(path, answer.text)
            elif path == PATH:
                text = answer.json()["content"][0]["text"]
            else:
                text = told(answer.json())["content"]
            assert text == "x" * ODD[oddity].huge + " w0 w1 w2 w3 w4"
            if ODD[oddity].close_after:
                await mock.comes(lambda: not mock.open)
        first, second = await running.ended(2)
        assert first.usage == second.usage
        assert (first.usage.completion_tokens, first.estimated) == (5, False)
