"""The `tokens` dialect from end to end: calls over the real edge to a provider that may misbehave."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from onward.admission.ledger import State
from onward.core.usage import Usage
from onward.wiring import config as settings
from tests.http.gateway import MODEL, SECRET, UPSTREAM, Gateway, another_key, cost, data_of, gateway, units
from tests.mock_answers import SECRET as THEIR_SECRET
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

PATH = "/tokens/v1/completions"
CHAT = "/tokens/v1/chat/completions"
PAYS = {"balance": "1.00"}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def paid(tmp_path, mock):
    """One model, one provider, a key whose money is counted."""
    async with gateway(tmp_path, mock, tenant=PAYS) as running:
        yield running


async def ask(running: Gateway, **body: Any):
    return await running.complete(path=PATH, **body)


def error_of(answer) -> dict[str, Any]:
    error = answer.json()["error"]
    assert answer.headers["x-tokens-request-id"]
    assert error["message"].endswith(".")
    assert THEIR_SECRET not in answer.text
    assert UPSTREAM not in answer.text
    return error


ODD_BODY = (
    b'{ "prompt":"caf\\u00e9 \xe2\x9c\x93",\n\t"zz":{"b":[1.50,1e3],"a":null} ,"max_tokens" : 7,'
    b' "temperature":0.10, "logit_bias":{"5":-1}, "model" :  "org/model"  , "stop":["a\\/b"],"user":"u" }'
)


@pytest.mark.covers("K-1")
async def test_a_body_passes_byte_for_byte(paid: Gateway, mock: MockProvider):
    answer = await paid.post(PATH, ODD_BODY)
    assert answer.status_code == 200
    [seen] = mock.requests
    assert seen.body == ODD_BODY.replace(b'"org/model"', json.dumps(UPSTREAM).encode())
    assert seen.path == "/v1/completions"
    assert answer.json()["model"] == MODEL


@pytest.mark.covers("K-1", "K-8")
async def test_of_a_stream_the_request_for_usage_is_added(paid: Gateway, mock: MockProvider):
    body = ODD_BODY.replace(b"{ ", b'{ "stream":true, ', 1)
    assert (await paid.post(PATH, body)).status_code == 200
    [seen] = mock.requests
    untouched = seen.body.replace(b',"stream_options":{"include_usage":true}', b"")
    assert len(untouched) == len(seen.body) - 40
    assert untouched == body.replace(b'"org/model"', json.dumps(UPSTREAM).encode())


@pytest.mark.covers("K-1")
@streamed
async def test_the_answer_passes_as_it_comes(paid: Gateway, mock: MockProvider, stream: bool):
    """But for the model's name, and usage as the last event."""
    mock.say(Behaviour(logprobs=True, usage_null=True))
    answer = await ask(paid, stream=stream, n=2)
    ours = data_of(answer.text) if stream else [answer.json()]
    mock.say(Behaviour(logprobs=True, usage_null=True))
    import httpx

    async with httpx.AsyncClient() as client:
        direct = await client.post(f"{mock.base_url}/completions", content=mock.requests[0].body)
    theirs = data_of(direct.text) if stream else [direct.json()]
    for event in theirs:
        if isinstance(event, dict):
            event["model"] = MODEL
    assert ours == theirs


@pytest.mark.covers("K-1")
async def test_a_completion_is_never_turned_into_a_chat(paid: Gateway, mock: MockProvider):
    await ask(paid)
    await paid.post(CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})
    assert [seen.path for seen in mock.requests] == ["/v1/completions", "/v1/chat/completions"]
    assert "messages" not in mock.requests[0].json
    assert "prompt" not in mock.requests[1].json


@pytest.mark.covers("K-1")
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": "hot"},
        {"prompt": {"no": "such form"}},
        {"stop": 5},
        {"logprobs": -3},
        {"max_tokens": -1},
        {"max_tokens": "many"},
        {"echo": "yes"},
        {"best_of": "x"},
        {"stream_options": 7},
        {"user": 5},
    ],
    ids=str,
)
async def test_nothing_but_model_and_n_is_checked(paid: Gateway, mock: MockProvider, fields: dict):
    """It is the provider's to refuse."""
    mock.say(Behaviour(status=400))
    assert (await ask(paid, **fields)).status_code == 400
    [seen] = mock.requests
    assert seen.json == {"model": UPSTREAM, "prompt": "two words", "max_tokens": 5, **fields}


@pytest.mark.covers("K-2")
@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_json_must_be_said_to_be_json(paid: Gateway, mock: MockProvider, content_type: str):
    answer = await paid.post(PATH, {"prompt": "x"}, headers={"content-type": content_type})
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "model")
    assert not mock.requests
    assert not await paid.entries()


@pytest.mark.covers("K-3")
async def test_the_models_of_a_key_are_listed_and_others_unknown(tmp_path, mock: MockProvider):
    """The same answer for what is not there and what is not open, so that nobody learns which."""
    one = another_key("few", models=["org/second"])
    models = {"org/second": [mock], "org/third": [mock]}
    async with gateway(tmp_path, mock, models=models, key={}, keys=[one]) as running:
        secret = {"authorization": "Bearer on-secret-few"}
        listed = (await running.client.get("/tokens/v1/models", headers=secret)).json()["data"]
        assert [model["id"] for model in listed] == ["org/second"]
        everything = {"authorization": f"Bearer {SECRET}"}
        listed = (await running.client.get("/tokens/v1/models", headers=everything)).json()["data"]
        assert [model["id"] for model in listed] == [MODEL, "org/second", "org/third"]
        closed, absent = [
            error_of(await ask(running, secret="on-secret-few", model=name))
            for name in ("org/third", "org/thirx")
        ]
        assert closed | {"message": ""} == absent | {"message": ""}
        assert closed["message"].replace("thirx", "third") == absent["message"].replace("thirx", "third")
        assert closed["code"] == "model_not_found"
        assert (await ask(running, model="org/nothing")).status_code == 404
        assert not mock.requests


@pytest.mark.covers("K-3")
async def test_a_provider_without_the_route(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant=PAYS, provider={"surfaces": ["chat"]}) as running:
        answer = await ask(running)
        assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
        assert not mock.requests
        chat = await running.post(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
        assert chat.status_code == 200


@pytest.mark.covers("K-3", "K-7", "K-12")
async def test_a_provider_that_answers_404(paid: Gateway, mock: MockProvider):
    answer = await ask(paid, prompt="[[status=404]]")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert (await paid.entry()).state is State.RELEASED


@pytest.mark.covers("K-4")
@pytest.mark.parametrize("n", [0, 5, -1, "2", 1.5, True, 10**30])
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_n_is_from_1_to_4(paid: Gateway, mock: MockProvider, path: str, n: Any):
    answer = await paid.post(path, {"prompt": "x", "messages": [], "n": n})
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "n")
    assert not mock.requests


@pytest.mark.covers("K-4")
@streamed
async def test_n_choices_are_charged(paid: Gateway, mock: MockProvider, stream: bool):
    answer = await ask(paid, n=4, max_tokens=3, stream=stream)
    assert answer.status_code == 200
    entry = await paid.entry()
    assert (entry.charged, entry.usage) == (cost(2, 12), Usage(2, 12))
    assert entry.held >= cost(2, 12)


@pytest.mark.covers("K-5")
async def test_a_body_over_10_mb(paid: Gateway, mock: MockProvider):
    limit = paid.built.limits.body_bytes
    assert limit == 10 * 1024 * 1024
    start = b'{"model": "org/model", "max_tokens": 1, "prompt": "'
    whole = start + b"x" * (limit - len(start) - 2) + b'"}'
    answer = await paid.post(PATH, whole + b" ")
    assert (answer.status_code, error_of(answer)["code"]) == (413, "request_entity_too_large")
    assert not mock.requests


@pytest.mark.covers("K-6")
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_a_model_of_an_anthropic_provider_alone(tmp_path, mock: MockProvider, path: str):
    anthropic = settings.Provider(name="claude", protocol="anthropic", base_url=mock.base_url)
    async with gateway(tmp_path, anthropic, tenant=PAYS) as running:
        answer = await running.post(path, {"prompt": "x", "messages": [{"role": "user", "content": "x"}]})
        assert answer.status_code == 400
        assert error_of(answer)["code"] == "endpoint_not_supported_for_model"
        assert (mock.requests, mock.connections) == ([], 0)
        assert not await running.entries()


@pytest.mark.covers("K-6")
async def test_another_provider_beside_an_anthropic_one(tmp_path, mock: MockProvider):
    anthropic = settings.Provider(name="claude", protocol="anthropic", base_url="http://127.0.0.1:9/v1")
    async with gateway(tmp_path, anthropic, mock, tenant=PAYS) as running:
        assert (await ask(running)).status_code == 200
        assert len(mock.requests) == 1


STATUSES = [
    # the provider's, ours, code
    (400, 400, "invalid_request"),
    (422, 422, "invalid_request"),
    (413, 413, "invalid_request"),
    (404, 404, "model_not_found"),
    (429, 429, "rate_limit_exceeded"),
    (401, 502, "upstream_unreachable"),
    (403, 502, "upstream_unreachable"),
    (402, 502, "upstream_unreachable"),
    (407, 502, "upstream_unreachable"),
    (302, 502, "upstream_unreachable"),
    (204, 502, "upstream_unreachable"),
    (500, 500, "upstream_unreachable"),
    (503, 503, "upstream_unreachable"),
    (504, 504, "upstream_unreachable"),
]


@pytest.mark.covers("K-7", "K-12")
@streamed
@pytest.mark.parametrize(("theirs", "ours", "code"), STATUSES)
async def test_one_providers_status_comes_back_with_our_body(
    paid: Gateway, mock: MockProvider, theirs: int, ours: int, code: str, stream: bool
):
    answer = await ask(paid, prompt=f"[[status={theirs}]]", stream=stream)
    assert (answer.status_code, error_of(answer)["code"]) == (ours, code)
    entry = await paid.entry()
    assert (entry.state, entry.charged) == (State.RELEASED, 0)
    assert await paid.balance() == units("1.00")
    [attempt] = entry.attempts
    assert attempt.status == theirs
    assert answer.headers["x-tokens-request-id"] == entry.request_id
    await paid.logged(f"request_id={entry.request_id}", f"status={theirs}")


@pytest.mark.covers("K-7")
@pytest.mark.parametrize(("sent", "told"), [("7", "7"), (None, "1"), ("soon", "1"), ("2.5", "3")])
async def test_a_providers_retry_after(paid: Gateway, mock: MockProvider, sent: str | None, told: str):
    mock.say(Behaviour(status=429, retry_after=sent))
    answer = await ask(paid)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, told)


NO_ANSWER = [
    Behaviour(drop=True),
    Behaviour(reset=True),
    Behaviour(never=True),
    Behaviour(html=True),
    Behaviour(cut=0),
    Behaviour(error_event=0, status=500),
]


@pytest.mark.covers("K-7", "K-12")
@streamed
@pytest.mark.parametrize("behaviour", NO_ANSWER[:5], ids=["drop", "reset", "never", "html", "cut"])
async def test_no_connection_a_timeout_or_no_answer(
    tmp_path, mock: MockProvider, behaviour: Behaviour, stream: bool
):
    mock.say(behaviour)
    async with gateway(tmp_path, mock, tenant=PAYS, provider={"first_byte_timeout_s": 0.1}) as running:
        answer = await ask(running, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
        assert (await running.entry()).charged == 0
        await running.idle()


@pytest.mark.covers("K-7")
async def test_every_answer_names_its_request(paid: Gateway, mock: MockProvider):
    """Whatever it is, also where the call goes nowhere; our log knows it by that name."""
    mock.say(Behaviour(status=500), Behaviour(), Behaviour())
    answers = [await ask(paid), await ask(paid), await ask(paid, stream=True)]
    for method, path in (("GET", "completions"), ("POST", "nothing"), ("GET", "models"), ("POST", "models")):
        headers = {"authorization": f"Bearer {SECRET}"}
        answers.append(await paid.client.request(method, f"/tokens/v1/{path}", headers=headers))
    answers.append(await ask(paid, secret="on-nobodys-key-0123"))
    assert [answer.status_code for answer in answers] == [500, 200, 200, 405, 404, 200, 405, 401]
    names = [answer.headers["x-tokens-request-id"] for answer in answers]
    assert len(set(names)) == len(names)
    await paid.logged(*names)


@pytest.mark.covers("K-7")
async def test_a_provider_that_is_not_there(tmp_path):
    from tests.conftest import free_port

    gone = settings.Provider(
        name="gone", protocol="openai", base_url=f"http://127.0.0.1:{free_port()}/v1", connect_timeout_s=0.5
    )
    async with gateway(tmp_path, gone, tenant=PAYS) as running:
        answer = await ask(running)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
        assert (await running.entry()).state is State.RELEASED


@pytest.mark.covers("K-7")
@streamed
@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429, 500, 503])
async def test_of_several_every_refusal_moves_on(tmp_path, mock, other, status: int, stream: bool):
    mock.say(Behaviour(status=status))
    async with gateway(tmp_path, mock, other, tenant=PAYS) as running:
        answer = await ask(running, stream=stream, max_tokens=3)
        assert answer.status_code == 200
        entry = await running.entry()
        assert [attempt.status for attempt in entry.attempts] == [status, 200]
        assert [attempt.deployment for attempt in entry.attempts] == ["d1", "d2"]
        assert entry.charged == cost(2, 3)


@pytest.mark.covers("K-7", "K-12")
@streamed
@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_of_several_none_left(tmp_path, mock, other, status: int, stream: bool):
    mock.say(Behaviour(status=503))
    other.say(Behaviour(status=status))
    async with gateway(tmp_path, mock, other, tenant=PAYS) as running:
        answer = await ask(running, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
        entry = await running.entry()
        assert (entry.state, len(entry.attempts)) == (State.RELEASED, 2)
        assert await running.balance() == units("1.00")


@pytest.mark.covers("K-8")
@pytest.mark.parametrize("asked", [None, {"include_usage": False}, {"include_usage": True}])
@pytest.mark.parametrize("path", [PATH, CHAT])
@pytest.mark.parametrize("way", ["", "[[usage_on_last]]", "[[usage_each]]", "[[usage=always]]"])
async def test_a_stream_ends_with_usage_and_done(paid: Gateway, path: str, asked, way: str):
    body = {"prompt": f"x {way}", "messages": [{"role": "user", "content": f"x {way}"}], "max_tokens": 3}
    options = {"stream": True} | ({} if asked is None else {"stream_options": asked})
    if path == CHAT:
        body.pop("prompt")
    answer = await paid.post(path, {**body, **options})
    *pieces, usage, done = data_of(answer.text)
    assert done == "[DONE]"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert (usage["choices"], usage["model"]) == ([], MODEL)
    assert all(piece["choices"] and not piece.get("usage") for piece in pieces)
    entry = await paid.entry()
    assert usage["usage"]["completion_tokens"] == entry.usage.completion_tokens == 3
    assert not entry.estimated


@pytest.mark.covers("K-8", "K-9")
@pytest.mark.parametrize("say", ["[[usage=never]]", "[[usage=never]] [[no_done]]", "[[counts=-5/70]]"])
async def test_an_estimate_is_sent_and_marked(paid: Gateway, say: str):
    answer = await ask(paid, stream=True, prompt=f"some words {say}", max_tokens=5)
    *_, usage, done = data_of(answer.text)
    entry = await paid.entry()
    assert (done, usage["choices"]) == ("[DONE]", [])
    assert entry.estimated
    assert usage["usage"]["prompt_tokens"] == entry.usage.prompt_tokens > 2
    assert usage["usage"]["completion_tokens"] == entry.usage.completion_tokens >= 5
    assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens) > 0


@pytest.mark.covers("K-9")
@streamed
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_the_providers_numbers_are_charged(paid: Gateway, mock: MockProvider, path: str, stream: bool):
    mock.say(Behaviour(counts="900/70", cached=400))
    body = {"prompt": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100}
    assert (await paid.post(path, {**body, "stream": stream})).status_code == 200
    entry = await paid.entry()
    assert (entry.usage, entry.estimated) == (Usage(900, 70, 400), False)
    assert entry.charged == 500 * 1000 + 400 * 500 + 70 * 2000
    assert await paid.balance() == units("1.00") - entry.charged


@pytest.mark.covers("K-9")
@streamed
async def test_without_usage_the_sizes_are_charged(paid: Gateway, stream: bool):
    answer = await ask(paid, stream=stream, prompt="word " * 40 + "[[usage=never]]", max_tokens=5)
    assert answer.status_code == 200
    entry = await paid.entry()
    assert entry.estimated
    assert 40 <= entry.usage.prompt_tokens <= 120
    assert 4 <= entry.usage.completion_tokens <= 8
    assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens)


@pytest.mark.covers("K-9")
async def test_a_charge_is_rounded_up_once(tmp_path, mock: MockProvider):
    """2 x 0.333333333 + 3 x 0.000000001 per million is 0.666666669 of a unit and a thousandth."""
    price = {"input": "0.000333333", "cached_input": "0", "output": "0.000000001"}
    async with gateway(tmp_path, mock, price=price, tenant=PAYS) as running:
        await ask(running, max_tokens=3)
        assert (await running.entry()).charged == 1


@pytest.mark.covers("K-10")
@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"max_tokens": 10}, 10),
        ({"max_tokens": 10, "n": 3}, 30),
        ({"max_tokens": 10, "n": 2, "best_of": 4}, 40),
        ({"max_tokens": 10, "n": 2, "prompt": ["a", "b", "c"]}, 60),
        ({"max_tokens": 10, "prompt": [[1, 2], [3]], "best_of": 2}, 40),
        ({"max_tokens": None}, 8192),
        ({"max_tokens": "many", "n": 2}, 16384),
        ({"max_tokens": 0}, 8192),
    ],
    ids=str,
)
async def test_the_worst_case_is_held(paid: Gateway, mock: MockProvider, fields: dict, output: int):
    mock.always(Behaviour(tokens=1))
    assert (await ask(paid, **fields)).status_code == 200
    entry = await paid.entry()
    sized = entry.held - output * 2000
    prompt = sized // 1000
    assert sized % 1000 == 0
    assert entry.usage.prompt_tokens <= prompt <= 60
    assert await paid.balance() == units("1.00") - entry.charged
    for name, value in fields.items():
        assert mock.requests[0].json[name] == value


@pytest.mark.covers("K-10")
async def test_it_is_held_while_the_call_runs(paid: Gateway, mock: MockProvider):
    mock.say(Behaviour(hold=0))
    async with paid.caller(path=PATH, max_tokens=50) as caller:
        await mock.comes(lambda: bool(mock.requests))
        [entry] = await paid.entries()
        assert entry.state is State.HELD
        assert await paid.balance() == units("1.00") - entry.held
        mock.let_go()
        await caller.reads_all()
    assert await paid.balance() == units("1.00") - cost(2, 5)


@pytest.mark.covers("K-10")
async def test_little_balance_carries_a_small_call_alone(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant={"balance": "0.000100"}) as running:
        answer = await ask(running, max_tokens=None)
        assert (answer.status_code, error_of(answer)["code"]) == (402, "insufficient_balance")
        assert not mock.requests
        assert (await ask(running, max_tokens=5)).status_code == 200


@pytest.mark.covers("K-10")
async def test_near_the_keys_cap_a_small_call_passes(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant={}, key={"monthly_cap": "0.000100"}) as running:
        answer = await ask(running, max_tokens=None)
        assert (answer.status_code, error_of(answer)["code"]) == (402, "spend_cap_reached")
        answer = await ask(running, max_tokens=1000)
        assert (answer.status_code, error_of(answer)["code"]) == (402, "spend_cap_reached")
        assert not mock.requests
        assert (await ask(running, max_tokens=5)).status_code == 200


@pytest.mark.covers("K-10")
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"best_of": 3}], ids=str)
async def test_a_limit_is_lowered_to_what_the_balance_carries(tmp_path, mock: MockProvider, fields: dict):
    async with gateway(tmp_path, mock, tenant={"balance": "0.000100"}) as running:
        answer = await ask(running, max_tokens=1000, **fields)
        assert answer.status_code == 200
        [seen] = mock.requests
        sent = seen.json["max_tokens"]
        assert 1 <= sent < 50
        choices = max(fields.get("n", 1), fields.get("best_of", 1))
        entry = await running.entry()
        assert entry.held <= units("0.0001") < entry.held + choices * 2000
        assert 0 <= (entry.held - choices * sent * 2000) // 1000 <= 20
        assert await running.balance() >= 0
        given = {"model": UPSTREAM, "prompt": "two words", "max_tokens": sent, **fields}
        assert seen.body == json.dumps(given).encode()


@pytest.mark.covers("K-10")
async def test_both_limits_of_a_chat_are_lowered(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, tenant={"balance": "0.000200"}) as running:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "max_completion_tokens": 900}
        assert (await running.post(CHAT, body)).status_code == 200
        sent = mock.requests[0].json
        assert sent["max_tokens"] == 2
        assert 5 < sent["max_completion_tokens"] < 100


@pytest.mark.covers("K-10")
async def test_no_limit_is_ever_added(paid: Gateway, mock: MockProvider):
    for path in (PATH, CHAT):
        body = {"prompt": "x"} if path == PATH else {"messages": [{"role": "user", "content": "x"}]}
        assert (await paid.post(path, body)).status_code == 200
        assert not {"max_tokens", "max_completion_tokens"} & set(mock.requests[-1].json)


@pytest.mark.covers("K-10")
@streamed
async def test_more_than_was_held_is_charged_and_flagged(tmp_path, mock: MockProvider, stream: bool):
    mock.say(Behaviour(counts="10/5000"))
    async with gateway(tmp_path, mock, tenant={"balance": "0.000100"}) as running:
        assert (await ask(running, max_tokens=5, stream=stream)).status_code == 200
        entry = await running.entry()
        assert entry.overdraft
        assert entry.charged == cost(10, 5000) > entry.held
        assert await running.balance() == units("0.0001") - entry.charged < 0
        refused = await ask(running, max_tokens=5)
        assert (refused.status_code, error_of(refused)["code"]) == (402, "insufficient_balance")


@pytest.mark.covers("K-11")
async def test_completions_count_against_the_keys_limits(tmp_path, mock: MockProvider):
    async with gateway(tmp_path, mock, key={"requests_per_minute": 2}) as running:
        assert [(await ask(running)).status_code for _ in range(2)] == [200, 200]
        answer = await ask(running)
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 61
        assert len(mock.requests) == 2


@pytest.mark.covers("K-11")
@streamed
async def test_completions_count_against_the_keys_concurrency(tmp_path, mock: MockProvider, stream: bool):
    mock.always(Behaviour(hold=0))
    async with gateway(tmp_path, mock, key={"concurrency": 1}) as running:
        async with running.caller(path=PATH, stream=stream) as caller:
            await mock.comes(lambda: bool(mock.requests))
            answer = await ask(running)
            assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
            assert answer.headers["retry-after"] == "1"
            mock.let_go()
            await caller.reads_all()
        assert (await ask(running)).status_code == 200


@pytest.mark.covers("K-12")
@streamed
async def test_a_refused_call_costs_no_quota(tmp_path, mock: MockProvider, stream: bool):
    mock.say(*[Behaviour(status=400)] * 5)
    async with gateway(tmp_path, mock, tenant=PAYS, key={"requests_per_minute": 1}) as running:
        for _ in range(5):
            assert (await ask(running, stream=stream)).status_code == 400
        assert (await ask(running, stream=stream)).status_code == 200
        entries = await running.ended(6)
        assert [entry.charged for entry in entries] == [0] * 5 + [cost(2, 5)]
