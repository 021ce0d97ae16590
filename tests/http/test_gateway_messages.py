"""Messages at a provider that speaks Anthropic's API: as they are, both ways, watched and billed."""

import json

import pytest

from onward.admission.ledger import State
from onward.wiring import config as settings
from onward.wiring.gateway_check import provider_faults
from tests.http.gateway import MODEL, SECRET, UPSTREAM, cost, gateway
from tests.http.messages import BODY, CHAT, PATH, PAYS, anthropic, events_of, message_of
from tests.mock_answers import BRAND, Behaviour, prompt_tokens
from tests.mock_answers import SECRET as THEIRS
from tests.mock_messages import REDACTED, SIGNATURE
from tests.mock_provider import MockProvider

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
mounts = pytest.mark.parametrize("dialect", ["openai", "prentis"])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


@pytest.mark.covers("P-12", "O-4")
@mounts
@streamed
async def test_a_body_and_its_answer_pass_as_they_are(
    tmp_path, mock: MockProvider, stream: bool, dialect: str
):
    mock.always(Behaviour(reasoning=2, redacted=True, cached=1, cache_creation=2, pings=True))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts={dialect: "/v1"}) as running:
        raw = (
            b'{ "model":"org/model", "max_tokens":9,"x":[1.50,"\\u00e9"], "messages":[{"role":"user",'
            b'"content":"two words"}], "stream": %b,"thinking": {"type":"enabled","budget_tokens": 1024}}'
            % json.dumps(stream).encode()
        )
        answer = await running.post(
            PATH,
            raw,
            headers={"anthropic-version": "2029-01-01", "anthropic-beta": "a-1,b-2", "x-other": "no"},
        )
        assert answer.status_code == 200, answer.text
        [seen] = mock.requests
        assert seen.path == "/v1/messages"
        assert seen.body == raw.replace(b"org/model", UPSTREAM.encode())
        assert (seen.header("anthropic-version"), seen.header("anthropic-beta")) == ("2029-01-01", "a-1,b-2")
        assert (seen.header("x-other"), seen.header("authorization")) == (None, None)
        assert UPSTREAM not in answer.text
        message = message_of(answer.text) if stream else answer.json()
        assert message["model"] == MODEL
        assert message["content"] == [
            {"type": "thinking", "thinking": " w0 w1", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": REDACTED},
            {"type": "text", "text": " w2 w3 w4"},
        ]
        assert message["usage"]["output_tokens"] == 5
        entry = await running.entry()
        assert (entry.state, entry.surface, entry.estimated) == (State.SETTLED, "messages", False)
        assert (entry.usage.prompt_tokens, entry.usage.cached_tokens) == (5, 1)
        assert entry.charged == cost(5, 5, cached=1)


async def test_the_key_goes_as_x_api_key(tmp_path, mock: MockProvider, monkeypatch):
    mock.key = "sk-theirs"
    monkeypatch.setenv("CLAUDE_KEY", "sk-theirs")
    async with gateway(tmp_path, anthropic(mock, api_key_env="CLAUDE_KEY"), tenant=PAYS) as running:
        answer = await running.post(PATH, BODY, secret=None, headers={"x-api-key": SECRET})
        assert answer.status_code == 200, answer.text
        assert mock.requests[0].header("anthropic-version") == "2023-06-01"


async def test_the_worst_case_is_held(tmp_path, mock: MockProvider):
    mock.always(Behaviour(hold=0))
    body = {**BODY, "max_tokens": 50, "system": "x" * 1000, "stream": True}
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        async with running.caller(path=PATH, **body):
            await mock.comes(lambda: len(mock.requests) == 1)
            [entry] = await running.entries()
            assert cost(1000, 50) < entry.held < cost(1200, 50)
        await running.idle()


async def test_who_cannot_pay_the_worst_case_is_refused(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, anthropic(mock), tenant={"balance": "0.001"}) as running:
        answer = await running.post(PATH, {**BODY, "system": "x" * 1000})
        assert (answer.status_code, answer.json()["error"]["type"]) == (402, "billing_error")
        assert not mock.requests


@mounts
@streamed
async def test_without_usage_it_is_estimated(tmp_path, mock: MockProvider, stream: bool, dialect: str):
    """And told: clients of this API rely on usage."""
    mock.always(Behaviour(usage="never"))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts={dialect: "/v1"}) as running:
        answer = await running.post(PATH, {**BODY, "stream": stream})
        assert answer.status_code == 200
        entry = await running.entry()
        assert (entry.estimated, entry.state) == (True, State.SETTLED)
        assert entry.usage.completion_tokens >= 4
        message = message_of(answer.text) if stream else answer.json()
        told = {"input_tokens": entry.usage.prompt_tokens, "output_tokens": entry.usage.completion_tokens}
        assert message["usage"] == told
        assert message["content"][0]["text"] == " w0 w1 w2 w3 w4"


@pytest.mark.parametrize(
    ("status", "shown", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 503, "overloaded_error"),
        (404, 404, "not_found_error"),
        (413, 400, "invalid_request_error"),
        (429, 429, "rate_limit_error"),
        (500, 503, "overloaded_error"),
        (529, 503, "overloaded_error"),
    ],
)
@streamed
async def test_a_refusal_is_told_in_our_words(
    tmp_path, mock: MockProvider, status: int, shown: int, kind: str, stream: bool
):
    mock.always(Behaviour(status=status, retry_after="7"))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": stream})
        error = answer.json()
        assert (answer.status_code, error["type"], error["error"]["type"]) == (shown, "error", kind)
        assert THEIRS not in answer.text
        assert UPSTREAM not in answer.text
        if shown in (429, 503):
            assert answer.headers["retry-after"] == "7"
        assert (await running.entry()).charged == 0


BEFORE = {
    "an error event": Behaviour(error_event=2),
    "overloaded": Behaviour(status=529),
    "cut": Behaviour(cut=2),
    "a page": Behaviour(html=True),
    "of the other shape": Behaviour(broken_json=True, tokens=1, error_event=0),
}


@pytest.mark.parametrize("way", BEFORE)
async def test_before_the_first_piece_another_is_asked(tmp_path, mock, other, way: str):
    mock.always(BEFORE[way])
    sources = (anthropic(mock, "one"), anthropic(other, "two"))
    async with gateway(tmp_path, *sources, tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert message_of(answer.text)["content"][0]["text"] == " w0 w1 w2 w3 w4"
        assert [event["type"] for event in events_of(answer.text)].count("message_start") == 1
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["upstream_unavailable", "ok"]
        assert entry.charged == cost(5, 5)


AFTER = {
    "an error event": (Behaviour(error_event=4), "overloaded_error"),
    "cut": (Behaviour(cut=4), "overloaded_error"),
    "reset": (Behaviour(cut=4, reset=True), "overloaded_error"),
    "no end": (Behaviour(no_done=True), "overloaded_error"),
    "broken": (Behaviour(broken_json=True), "overloaded_error"),
}


@pytest.mark.parametrize("way", AFTER)
async def test_after_it_the_stream_ends_with_an_error(tmp_path, mock, other, way: str):
    behaviour, kind = AFTER[way]
    mock.always(behaviour)
    sources = (anthropic(mock, "one"), anthropic(other, "two"))
    async with gateway(tmp_path, *sources, tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert answer.status_code == 200
        events = events_of(answer.text)
        assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", kind)
        assert all(event["type"] != "message_stop" for event in events)
        assert THEIRS not in answer.text
        assert not other.requests
        assert (await running.entry()).charged > 0


async def test_a_caller_who_leaves_is_charged_for_what_came(tmp_path, mock: MockProvider):
    mock.always(Behaviour(hold=5, cached=1))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        async with running.caller(path=PATH, **BODY, stream=True) as caller:
            await caller.reads(5)
            caller.goes()
            await mock.comes(lambda: mock.requests[0].gone)
        entry = await running.entry()
        assert (entry.outcome, entry.estimated) == ("disconnected", True)
        said = prompt_tokens(mock.requests[0].json)  # as the first event tells
        assert (entry.usage.prompt_tokens, entry.usage.cached_tokens) == (said, 1)
        assert 2 <= entry.usage.completion_tokens <= 3


@pytest.mark.parametrize("way", [Behaviour(crlf=True), Behaviour(comments=True), Behaviour(drip=True)])
async def test_odd_streams_are_streams(tmp_path, mock: MockProvider, way: Behaviour):
    mock.always(way)
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(PATH, {**BODY, "stream": True})
        assert message_of(answer.text)["content"][0]["text"] == " w0 w1 w2 w3 w4"


@mounts
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "max_tokens"),
        ({**BODY, "max_tokens": "many"}, "max_tokens"),
        ({**BODY, "stream": 1}, "stream"),
    ],
)
async def test_what_the_price_needs_is_checked(tmp_path, mock, body: dict, field: str, dialect: str):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts={dialect: "/v1"}) as running:
        answer = await running.post(PATH, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
        assert field in error["message"]
        assert not mock.requests


@pytest.mark.covers("P-5")
@streamed
async def test_a_provider_that_names_itself_is_not_heard(tmp_path, mock: MockProvider, stream: bool):
    mock.always(Behaviour(branded=True, comments=True, pings=True, reasoning=1))
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS, mounts={"prentis": "/v1"}) as running:
        answer = await running.post(PATH, {**BODY, "stream": stream})
        message = message_of(answer.text) if stream else answer.json()
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        assert message["model"] == MODEL
        assert BRAND not in answer.text
        assert UPSTREAM not in answer.text


async def test_completions_are_never_translated(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        await running.refused(400, "endpoint_not_supported_for_model")
        assert not mock.requests


@pytest.mark.covers("K-6", "K-1")
async def test_tokens_translates_nothing(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, anthropic(mock), tenant=PAYS) as running:
        answer = await running.post(CHAT.replace("/v1", "/tokens/v1"), {"messages": BODY["messages"]})
        assert answer.json()["error"]["code"] == "endpoint_not_supported_for_model"
        assert not mock.requests


async def test_a_server_that_has_both_routes_gets_both_as_they_are(tmp_path, mock: MockProvider):
    """With OpenAI's key header, as such servers have one for all of their routes."""
    mock.always(Behaviour(reasoning=1))
    surfaces = ["chat", "messages"]
    both = settings.Provider(name="both", protocol="openai", base_url=mock.base_url, surfaces=surfaces)
    assert not list(provider_faults(both, "providers[0]"))
    async with gateway(tmp_path, both, tenant=PAYS) as running:
        for path, end in ((PATH, "/messages"), (CHAT, "/chat/completions")):
            assert (await running.post(path, BODY)).status_code == 200
            assert mock.requests[-1].path.endswith(end)
            assert mock.requests[-1].json == {"model": UPSTREAM, **BODY}


def test_a_provider_of_messages_has_nothing_else():
    chats = settings.Provider(
        name="a", protocol="anthropic", base_url="http://x.example/v1", surfaces=["chat"]
    )
    assert list(provider_faults(chats, "p")) == [
        "p.surfaces[0]: a provider that speaks anthropic has no chat"
    ]
