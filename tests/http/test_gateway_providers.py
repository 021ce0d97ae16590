"""Providers that behave badly, seen by the caller of a gateway: the same answer, or a plain failure."""

import asyncio
import json

import pytest

from onward.admission.ledger import State
from tests.http.gateway import MODEL, UPSTREAM, cost, data_of, gateway, units
from tests.http.harness import until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

CHAT = "/v1/chat/completions"
PAYS = {"balance": "10.00"}
USER = [{"role": "user", "content": "two words"}]


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other():
    with MockProvider() as provider:
        yield provider


ODD = {
    "crlf": Behaviour(crlf=True),
    "no space": Behaviour(no_space=True),
    "comments": Behaviour(comments=True),
    "named": Behaviour(named=True),
    "HTTP/1.0": Behaviour(http10=True),
    "closes": Behaviour(close=True),
    "closes without a word": Behaviour(close_after=True),
    "100 and 103": Behaviour(interim=True),
    "a byte at a time": Behaviour(drip=True),
    "says HTML": Behaviour(content_type="text/html"),
    "says text": Behaviour(content_type="text/plain; charset=latin-1"),
    "says JSON": Behaviour(content_type="application/json"),
    "identity": Behaviour(encoding="identity"),
    "bytes behind": Behaviour(extra=True),
    "a long line": Behaviour(huge=200_000),
    "usage on the last": Behaviour(usage_on_last=True),
    "usage everywhere": Behaviour(usage_each=True),
    "own name": Behaviour(echo_model=True),
}


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ODD)
async def test_an_odd_answer_is_an_answer(tmp_path, mock: MockProvider, path: str, stream: bool, way: str):
    mock.always(ODD[way])
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        own = {"messages": USER} if path == CHAT else {"prompt": "two words"}
        answer = await running.post(path, {**own, "max_tokens": 5, "stream": stream})
        assert answer.status_code == 200, answer.text
        kind = "text/event-stream; charset=utf-8" if stream else "application/json"
        assert answer.headers["content-type"] == kind
        assert UPSTREAM not in answer.text
        pieces = data_of(answer.text)[:-1] if stream else [answer.json()]
        text = ""
        for piece in pieces:
            assert piece["model"] == MODEL
            [choice] = piece["choices"]
            said = choice.get("delta") or choice.get("message") or {}
            text += (said.get("content") or "") if path == CHAT else choice["text"]
        assert text == "x" * ODD[way].huge + " w0 w1 w2 w3 w4"
        entry = await running.entry()
        assert (entry.usage.completion_tokens, entry.estimated) == (5, False)
        # whatever it did to its connection, the next call is answered as well
        assert (await running.post(path, {**own, "max_tokens": 5, "stream": stream})).status_code == 200


BAD = {
    "gzip": Behaviour(encoding="gzip"),
    "a page": Behaviour(html=True),
    "a line of 2 MB": Behaviour(huge=2_000_000),
    "an error at once": Behaviour(error_event=0),
    "nothing at all": Behaviour(cut=0),
    "204": Behaviour(status=204),
    "302": Behaviour(status=302),
    "999": Behaviour(status=999),
}


@pytest.mark.parametrize("way", BAD)
async def test_a_bad_stream_is_a_failure_and_another_is_asked(tmp_path, mock, other, way: str):
    mock.always(BAD[way])
    async with gateway(tmp_path, mock, other, tenant=PAYS) as running:
        answer = await running.complete(stream=True)
        assert answer.status_code == 200, answer.text
        assert data_of(answer.text)[-1] == "[DONE]"
        entry = await running.entry()
        assert [one.outcome for one in entry.attempts] == ["upstream_unavailable", "ok"]
        assert entry.charged == cost(2, 5)
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        await running.refused(503, "upstream_unavailable", stream=True)


async def test_a_whole_answer_to_a_stream_is_none(tmp_path, mock: MockProvider):
    """`stream` was not understood: nothing that came can be passed on as events."""
    mock.always(Behaviour(content_type="application/json"))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        real = mock.behaviour

        def unstreamed():
            behaviour = real()
            mock.requests[-1].body = mock.requests[-1].body.replace(b'"stream": true', b'"stream": false')
            return behaviour

        mock.behaviour = unstreamed
        await running.refused(503, "upstream_unavailable", stream=True)
        assert (await running.entry()).state is State.RELEASED


async def test_a_slow_reader_slows_the_provider(tmp_path, mock: MockProvider):
    """Our memory holds little of what it does not read; what was made is charged when it leaves."""
    mock.always(Behaviour(tokens=60_000))
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        async with running.caller(stream=True, max_tokens=60_000, prompt="x") as caller:
            caller.writer.transport.pause_reading()
            await until(lambda: bool(mock.requests) and mock.requests[0].sent > 100)
            sent = -1
            while sent != mock.requests[0].sent:
                sent = mock.requests[0].sent
                await asyncio.sleep(0.1)
            assert sent < 50_000
            caller.goes()
            entry = await running.entry()
        await mock.comes(lambda: mock.requests[0].gone)
        assert (entry.outcome, entry.estimated) == ("disconnected", True)
        assert 100 < entry.usage.completion_tokens <= sent
        assert await running.balance() == units("10.00") - entry.charged


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"org/model","prompt":"x","max_tokens":5,"max_tokens":500000}',
        b'{"model":"org/model","prompt":"x","max_tokens":5,"Max_Tokens":500000}',
        b'{"model":"org/model","prompt":"x","max_tokens":5,"max_tok\\u0065ns":500000}',
        b'{"model":"org/model","prompt":"x","max_tokens":5,"n":1,"n":4}',
        b'{"model":"org/model","prompt":"x","max_tokens":5,"BEST_OF":20}',
        b'{"model":"other","model":"org/model","prompt":"x","max_tokens":5}',
    ],
    ids=["twice", "capitals", "escaped", "n", "best_of", "model"],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
async def test_no_body_says_two_things_of_its_price(tmp_path, mock: MockProvider, path: str, body: bytes):
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        answer = await running.post(path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert not mock.requests


@pytest.mark.parametrize("fields", [{f"k{n}": n for n in range(10_001)}, {}], ids=["many", "few"])
async def test_a_body_has_so_many_fields(tmp_path, mock: MockProvider, fields: dict):
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        answer = await running.complete(path="/tokens/v1/completions", **fields)
        assert answer.status_code == (400 if fields else 200)
        assert len(mock.requests) == (0 if fields else 1)


async def test_a_prompt_that_is_full_of_names(tmp_path, mock: MockProvider):
    """Strings like the names that are counted are strings; and a large body is read aside."""
    prompt = ["n", "model", "max_tokens", "Stream", "x" * 200] * 700
    async with gateway(tmp_path, mock, tenant={"balance": "100"}) as running:
        body = json.dumps({"prompt": prompt, "model": MODEL, "max_tokens": 1}).encode()
        answer = await running.post("/tokens/v1/completions", body)
        assert answer.status_code == 200
        assert mock.requests[0].body == body.replace(
            json.dumps(MODEL).encode(), json.dumps(UPSTREAM).encode()
        )
        assert (await running.entry()).usage.completion_tokens == len(prompt)


async def test_a_provider_is_asked_over_few_connections(tmp_path, mock: MockProvider):
    """As many as run at once, and again and again the same."""
    async with gateway(tmp_path, mock, tenant=PAYS, provider={"connections": 3}) as running:
        answers = await asyncio.gather(*[running.complete(stream=n % 2 == 0) for n in range(40)])
        assert {answer.status_code for answer in answers} == {200}
        assert mock.connections <= 3
        assert len(await running.ended(40)) == 40


async def test_names_of_callers_and_keys_stay_here(tmp_path, mock: MockProvider):
    """The provider learns nothing of who asked but what the body says."""
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        headers = {"x-request-id": "mine", "cookie": "secret=1", "openai-organization": "org-1"}
        answer = await running.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=headers)
        assert answer.headers["x-request-id"] == "mine"
        [seen] = mock.requests
        text = seen.raw.decode()
        assert not [word for word in ("mine", "secret=1", "org-1", "on-a-key", "acme") if word in text]
        [entry] = await running.ended(1)
        assert entry.label == "mine"
        assert json.loads(seen.body)["model"] == UPSTREAM
