"""The `prentis` dialect from end to end: models of ours and of providers answer alike."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from onward.admission.ledger import State
from onward.engines.scripted import ScriptedEngine
from tests.dialects import prentis_page as page
from tests.http.gateway import MODEL, SECRET, UPSTREAM, Gateway, another_key, cost, gateway
from tests.mock_answers import BRAND, Behaviour
from tests.mock_answers import SECRET as THEIR_SECRET
from tests.mock_provider import MockProvider

PATH = "/prentis/v1/completions"
CHAT = "/prentis/v1/chat/completions"
MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1", "prentis": "/prentis/v1"}
PAYS = {"balance": "1.00"}
USER = {"role": "user", "content": "hi"}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine([260] * 200)


@dataclass
class Ours:
    """A gateway and what runs its model."""

    running: Gateway
    source: MockProvider | ScriptedEngine

    async def post(self, body: dict[str, Any] | bytes, path: str = PATH, **options: Any) -> httpx.Response:
        return await self.running.post(path, body, **options)

    async def complete(self, **body: Any) -> httpx.Response:
        return await self.post({"prompt": "two words", "max_tokens": 5, **body})

    @property
    def sent(self) -> int:
        return len(self.source.requests)


@pytest.fixture(params=["served", "proxied"])
async def ours(request, tmp_path, text_side, mock, engine) -> AsyncIterator[Ours]:
    """A model that either an engine of ours or a provider runs, and a key whose money is counted."""
    source = mock if request.param == "proxied" else engine
    async with gateway(tmp_path, source, text_side=text_side, tenant=PAYS, mounts=MOUNTS) as running:
        yield Ours(running, source)


@pytest.fixture
async def proxied(tmp_path, mock) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, mock, tenant=PAYS, mounts=MOUNTS) as running:
        yield running


# P-1


@pytest.mark.covers("P-1", "K-3")
@pytest.mark.parametrize("kind", ["served", "proxied"])
@pytest.mark.parametrize("lacks", ["completions", "chat"])
async def test_a_model_answers_what_it_declares(tmp_path, text_side, mock, engine, kind, lacks):
    """In every API, whoever runs it, whatever else is wrong with the body; nothing is sent."""
    source = mock if kind == "proxied" else engine
    has = {"completions": "chat", "chat": "completions"}[lacks]
    declared = {"capabilities": [has]}
    async with gateway(
        tmp_path, source, text_side=text_side, model=declared, tenant=PAYS, mounts=MOUNTS
    ) as running:
        path = {"completions": "completions", "chat": "chat/completions"}[lacks]
        for body in ({"prompt": "p", "messages": [USER]}, {"temperature": "hot"}):
            answer = await running.post(f"/prentis/v1/{path}", body)
            error = page.error(answer)
            assert (answer.status_code, error["code"]) == (400, "MODEL_CAPABILITY_UNSUPPORTED")
            assert (error["type"], error["param"]) == ("invalid_request_error", "model")
            assert f"does not offer {lacks}; it offers {has}" in error["message"]
            for mount, status, code in (
                ("/v1", 400, "endpoint_not_supported_for_model"),
                ("/tokens/v1", 404, "model_not_found"),
            ):
                other = await running.post(f"{mount}/{path}", body)
                assert (other.status_code, other.json()["error"]["code"]) == (status, code)
        assert not source.requests
        assert not await running.entries()


# P-2 to P-4

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ["one", "two"]}, "prompt"),
    ({"prompt": [1, 2]}, "prompt[0]"),
    ({"prompt": []}, "prompt"),
    ({"prompt": None}, "prompt"),
    *[({name: 1}, name) for name in ("n", "best_of", "logprobs", "echo", "suffix")],
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"seed": "x"}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
]
SEEN: dict[str, dict[str, Any]] = {}


@pytest.mark.covers("P-2", "P-3", "P-4", "P-9")
@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(row[0]) for row in REFUSED])
async def test_a_wrong_field_is_named(ours: Ours, fields: dict[str, Any], param: str):
    """By the same words, whoever runs the model; streamed or not; nothing is sent or charged."""
    for stream in (False, True):
        answer = await ours.complete(**{"stream": stream, **fields})
        error = page.error(answer)
        if fields == {"model": ""}:
            assert (answer.status_code, error["code"], error["param"]) == (404, "MODEL_NOT_FOUND", "model")
        else:
            assert (answer.status_code, error["code"], error["param"]) == (400, "INVALID_REQUEST", param)
        assert SEEN.setdefault(str(fields), error) == error
    assert not ours.sent
    assert not await ours.running.entries()


@pytest.mark.covers("P-2", "P-3")
async def test_what_is_not_listed_is_ignored(ours: Ours):
    ignored = {
        "prompt": ["two words"],
        "top_k": 2.5,
        "prompt_chunks": 1,
        "logit_bias": 7,
        "zz": [],
        "n": None,
    }
    page.completion(await ours.complete(**ignored), MODEL)


ODD_BODY = (
    b'{ "prompt":["caf\\u00e9 \xe2\x9c\x93"],\n\t"zz":{"b":[1.50,1e3],"a":null} ,"max_tokens" : 7,'
    b' "temperature":0.10, "logit_bias":{"5":-1}, "model" :  "org/model"  , "stop":["a\\/b"],"user":"u" }'
)


@pytest.mark.covers("P-3")
async def test_a_body_passes_byte_for_byte(proxied: Gateway, mock: MockProvider):
    page.completion(await proxied.post(PATH, ODD_BODY), MODEL)
    assert mock.requests[0].body == ODD_BODY.replace(b'"org/model"', json.dumps(UPSTREAM).encode())
    page.events(await proxied.post(PATH, ODD_BODY.replace(b"{ ", b'{ "stream":true, ', 1)), MODEL)
    seen = mock.requests[1].body.replace(b',"stream_options":{"include_usage":true}', b"")
    assert seen.replace(b'"stream":true, ', b"") == mock.requests[0].body


@pytest.mark.covers("P-4")
@pytest.mark.parametrize(("default", "limit"), [(3, 3), (None, 8192)])
async def test_the_models_own_limit_holds_where_none_is_sent(
    tmp_path, text_side, mock, engine, default: int | None, limit: int
):
    model = {} if default is None else {"default_max_tokens": default}
    body = {"prompt": "two words"}
    async with gateway(tmp_path, mock, model=model, tenant=PAYS, mounts=MOUNTS) as running:
        answer = page.completion(await running.post(PATH, body), MODEL)
        assert mock.requests[0].json["max_tokens"] == limit
        assert answer["usage"]["completion_tokens"] == min(limit, 5)
        assert (await running.entry()).held >= cost(0, limit)
        await running.post(CHAT, {"messages": [USER]})
        assert mock.requests[1].json["max_completion_tokens"] == limit
    (tmp_path / "served").mkdir()
    async with gateway(
        tmp_path / "served", engine, text_side=text_side, model=model, tenant=PAYS, mounts=MOUNTS
    ) as running:
        answer = page.completion(await running.post(PATH, body), MODEL)
        assert answer["usage"]["completion_tokens"] == min(limit, 200)
        assert (await running.post(PATH, {**body, "max_tokens": 5})).json()["usage"]["completion_tokens"] == 5
        # it is this API's: another one's default stays its own
        openai = await running.post("/v1/completions", body)
        assert openai.json()["usage"]["completion_tokens"] == 16


@pytest.mark.covers("P-4")
async def test_without_money_too_the_models_own_limit_holds(tmp_path, mock):
    async with gateway(tmp_path, mock, model={"default_max_tokens": 4}, mounts=MOUNTS) as running:
        page.completion(await running.post(PATH, {"prompt": "p"}), MODEL)
        await running.post("/v1/completions", {"prompt": "p"})
        assert [seen.json.get("max_tokens") for seen in mock.requests] == [4, None]


# P-6, P-10


@pytest.mark.covers("P-6", "P-10")
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}], ids=str)
async def test_a_stream_ends_with_usage(ours: Ours, options: Any):
    whole = page.completion(await ours.complete(seed=1))
    found = page.events(await ours.complete(seed=1, stream=True, stream_options=options), MODEL)
    assert found[-1]["usage"] == whole["usage"]
    text = "".join(event["choices"][0]["text"] for event in found[:-1])
    assert text == whole["choices"][0]["text"]
    assert found[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"


@pytest.mark.covers("P-6", "P-12")
@streamed
async def test_a_chat_likewise(ours: Ours, stream: bool):
    answer = await ours.post({"messages": [USER], "max_tokens": 5, "stream": stream}, CHAT)
    if stream:
        found = page.events(answer, MODEL, chat=True)
        assert found[0]["object"] == "chat.completion.chunk"
    else:
        page.check_headers(answer)
        assert answer.json()["object"] == "chat.completion"
        assert answer.json()["model"] == MODEL


@pytest.mark.covers("P-6", "P-10", "P-13")
@pytest.mark.parametrize(
    "does",
    [
        Behaviour(usage="never"),
        Behaviour(usage="always", cached=2),
        Behaviour(usage_on_last=True),
        Behaviour(usage_null=True),
        Behaviour(usage_each=True),
        Behaviour(counts="-1/5"),
        Behaviour(branded=True, usage_null=True, comments=True, named=True),
        Behaviour(no_done=True),
        Behaviour(crlf=True, no_space=True),
    ],
    ids=["none", "always", "on the last", "null", "each", "wrong", "branded", "no end", "other lines"],
)
async def test_however_a_provider_counts_usage_is_told_as_it_is_charged(
    proxied: Gateway, mock: MockProvider, does: Behaviour
):
    mock.always(does)
    whole = page.completion(await proxied.post(PATH, {"prompt": "two words", "max_tokens": 5}), MODEL)
    found = page.events(
        await proxied.post(PATH, {"prompt": "two words", "max_tokens": 5, "stream": True}), MODEL
    )
    entries = await proxied.ended(2)
    for told, entry in zip((whole["usage"], found[-1]["usage"]), entries, strict=True):
        counts = (
            told["prompt_tokens"],
            told["completion_tokens"],
            told["prompt_tokens_details"]["cached_tokens"],
        )
        usage = entry.usage
        assert counts == (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        assert entry.estimated == (does.usage == "never" or does.counts is not None)
        assert counts[1] == 5 or entry.estimated


# P-5: the upstream's own name


@pytest.mark.covers("P-5")
@streamed
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_the_upstreams_name_shows_nowhere(
    proxied: Gateway, mock: MockProvider, path: str, stream: bool
):
    for does in (Behaviour(branded=True, comments=True, named=True), Behaviour(branded=True, reasoning=2)):
        mock.say(does)
        body = {"prompt": "p", "messages": [USER], "max_tokens": 5, "stream": stream}
        answer = await proxied.post(path, body)
        assert answer.status_code == 200
        page.check_headers(answer)
        assert BRAND not in answer.text
        assert UPSTREAM not in answer.text
        chat = path == CHAT
        answers = page.events(answer, MODEL, chat=chat) if stream else [answer.json()]
        assert {name for one in answers for name in one} == {
            "id",
            "object",
            "created",
            "model",
            "choices",
            "usage",
        }


@pytest.mark.covers("P-5", "P-13")
@streamed
@pytest.mark.parametrize("path", [PATH, CHAT])
@pytest.mark.parametrize("bare", [False, True])
async def test_what_stands_around_the_choices_is_ours(
    proxied: Gateway, mock: MockProvider, path: str, stream: bool, bare: bool
):
    """One `id` for all events, and it is not the provider's, which may tell none."""
    chat = path == CHAT
    mock.say(Behaviour(bare=bare))
    body = {"prompt": "p", "messages": [USER], "max_tokens": 5, "stream": stream}
    answer = await proxied.post(path, body)
    answers = page.events(answer, MODEL, chat=chat) if stream else [answer.json()]
    [told] = {(one["id"], one["object"], one["created"], one["model"]) for one in answers}
    prefix = ("chatcmpl-" if chat else "cmpl-") + answer.headers["x-request-id"]
    whole = "chat.completion" if chat else "text_completion"
    assert (told[0], told[1], told[3]) == (prefix, f"{whole}.chunk" if chat and stream else whole, MODEL)
    assert abs(told[2] - time.time()) < 60


@pytest.mark.covers("P-5", "P-9")
@streamed
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
async def test_nor_in_errors_nor_metrics(proxied: Gateway, mock: MockProvider, status: int, stream: bool):
    mock.say(Behaviour(status=status))
    answer = await proxied.post(PATH, {"prompt": "p", "max_tokens": 5, "stream": stream})
    page.error(answer)
    metrics = (await proxied.client.get("/metrics", headers={"authorization": f"Bearer {SECRET}"})).text
    for text in (answer.text, str(answer.headers), metrics):
        assert UPSTREAM not in text
        assert THEIR_SECRET not in text
    # our log has what it said
    await proxied.logged("may not do this to model")


@pytest.mark.covers("P-5", "P-9")
async def test_an_error_within_a_stream_is_ours(proxied: Gateway, mock: MockProvider):
    mock.say(Behaviour(error_event=3, branded=True))
    answer = await proxied.post(PATH, {"prompt": "p", "max_tokens": 5, "stream": True})
    *_, last = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    page.ERROR.validate(last)
    assert last["error"]["code"] == "UPSTREAM_UNAVAILABLE"
    assert "[DONE]" not in answer.text
    assert THEIR_SECRET not in answer.text


# P-5: references


@pytest.fixture
async def several(tmp_path, mock):
    """Two models, one of two deployments; keys of two tenants, one of which may use the second model alone."""
    from onward.wiring import config as settings

    keys = [another_key("other", tenant="else"), another_key("part", tenant="acme", models=["org/second"])]
    with MockProvider() as standby:
        async with gateway(
            tmp_path,
            mock,
            standby,
            models={"org/second": [mock]},
            tenant=PAYS,
            tenants=[settings.Tenant(name="else", balance="1.00")],
            keys=keys,
            mounts=MOUNTS,
        ) as running:
            yield running, standby


@pytest.mark.covers("P-5")
@streamed
@pytest.mark.parametrize(
    ("reference", "runs"),
    [
        (MODEL, "mock"),
        (f"accounts/acme/models/{MODEL}", "mock"),
        ("d1", "mock"),
        ("d2", "standby"),
        ("accounts/acme/deployments/d2", "standby"),
    ],
)
async def test_what_a_model_may_be_called(several, mock, reference: str, runs: str, stream: bool):
    running, standby = several
    answer = await running.post(PATH, {"model": reference, "prompt": "p", "max_tokens": 5, "stream": stream})
    if stream:
        page.events(answer, reference)
    else:
        page.completion(answer, reference)
    assert (len(mock.requests), len(standby.requests)) == ((1, 0) if runs == "mock" else (0, 1))
    assert answer.headers["x-provider-class"] == ("primary" if runs == "mock" else "fallback")
    assert (await running.entry()).model == MODEL


@pytest.mark.covers("P-5")
@pytest.mark.parametrize(
    "reference",
    [
        UPSTREAM,
        f"accounts/else/models/{MODEL}",
        "accounts/else/deployments/d1",
        "accounts/acme/models/nobody",
        "accounts/acme/models/d1",
        "accounts/acme/deployments/nobody",
        f"accounts/acme/deployments/{MODEL}",
        "nobody",
        "accounts//models/x",
        "d1\n",
    ],
)
async def test_what_is_unknown(several, mock, reference: str):
    running, standby = several
    answer = await running.post(PATH, {"model": reference, "prompt": "p"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "MODEL_NOT_FOUND")
    assert (error["type"], error["param"]) == ("not_found_error", "model")
    unknown = await running.post(PATH, {"model": "x", "prompt": "p"})
    assert error["message"].partition("'")[2].partition("'")[2] == unknown.json()["error"]["message"][13:]
    assert not mock.requests
    assert not standby.requests


@pytest.mark.covers("P-5")
@pytest.mark.parametrize("reference", ["d1", "accounts/acme/models/org/model"])
async def test_these_forms_are_no_other_apis(several, reference: str):
    running, _ = several
    for path in ("/v1/completions", "/tokens/v1/completions"):
        answer = await running.post(path, {"model": reference, "prompt": "p"})
        assert answer.status_code == 404


@pytest.mark.covers("P-5", "P-9")
@pytest.mark.parametrize(
    "reference", [MODEL, f"accounts/acme/models/{MODEL}", "d2", "accounts/acme/deployments/d2"]
)
async def test_a_model_of_another_key_is_named_as_it_was_called(several, reference: str):
    running, _ = several
    answer = await running.post(PATH, {"model": reference, "prompt": "p"}, secret="on-secret-part")
    error = page.error(answer)
    assert (answer.status_code, error["code"]) == (403, "MODEL_NOT_ALLOWED")
    assert (error["type"], error["param"]) == ("permission_error", "model")
    if "d2" in reference:
        assert MODEL not in error["message"]


@pytest.mark.covers("P-5")
async def test_a_deployment_stands_alone(several, mock):
    """Its failure moves on to no other."""
    running, standby = several
    mock.say(Behaviour(status=500))
    answer = await running.post(PATH, {"model": "d1", "prompt": "p", "max_tokens": 5})
    assert page.error(answer)["code"] == "UPSTREAM_UNAVAILABLE"
    assert not standby.requests


@pytest.mark.covers("P-5")
async def test_without_a_key_nobody_has_an_account(tmp_path, mock):
    async with gateway(tmp_path, mock, mounts=MOUNTS) as running:
        page.completion(await running.post(PATH, {"model": "d1", "prompt": "p"}), "d1")
        for reference in (f"accounts/acme/models/{MODEL}", "accounts/None/deployments/d1"):
            answer = await running.post(PATH, {"model": reference, "prompt": "p"})
            assert page.error(answer)["code"] == "MODEL_NOT_FOUND"


# P-7


@pytest.mark.covers("P-7")
@streamed
async def test_a_standby_is_told(several, mock, stream: bool):
    running, _ = several
    body = {"prompt": "p", "max_tokens": 5, "stream": stream}
    first = await running.post(PATH, body)
    mock.say(Behaviour(status=500))
    second = await running.post(PATH, body)
    assert [one.headers["x-provider-class"] for one in (first, second)] == ["primary", "fallback"]
    assert first.headers["x-config-version"] == second.headers["x-config-version"] == running.config.version
    for answer in (first, second):
        page.check_headers(answer)
        assert answer.status_code == 200


@pytest.mark.covers("P-7", "P-8")
@streamed
async def test_headers_of_good_answers_and_bad(ours: Ours, stream: bool):
    for body in ({}, {"n": 1}):
        headers = {"idempotency-key": f"try {len(body)}", "x-request-id": "mine"}
        answer = await ours.post({"prompt": "p", "max_tokens": 5, "stream": stream, **body}, headers=headers)
        page.check_headers(answer)
        assert answer.headers["idempotency-key"] == headers["idempotency-key"]
        assert answer.headers["x-request-id"] == "mine"
        assert ("x-provider-class" in answer.headers) == (answer.status_code == 200)
        assert answer.status_code == (400 if body else 200)
    for method, path in (("GET", "/prentis/v1/nothing"), ("GET", PATH), ("PUT", "/prentis/v1/models")):
        answer = await ours.running.client.request(method, path)
        assert page.error(answer)["code"] == "INVALID_REQUEST"
        assert answer.status_code == (404 if path.endswith("nothing") else 405)


# P-11, P-12


@pytest.mark.covers("P-11")
async def test_a_user_is_in_the_log_and_not_in_the_ledger(ours: Ours):
    page.completion(await ours.complete(user="end-user-7"))
    line = json.loads(
        next(line for line in (await ours.running.logged("end-user-7")).splitlines() if "end-user-7" in line)
    )
    assert line["user"] == "end-user-7"
    assert line["path"] == PATH
    entry = await ours.running.entry()
    assert entry.state is State.SETTLED
    assert "end-user-7" not in repr(entry)


@pytest.mark.covers("P-12")
async def test_models_and_keys(ours: Ours):
    client = ours.running.client
    for headers in ({"x-api-key": SECRET}, {"authorization": f"Bearer {SECRET}"}):
        answer = await client.get("/prentis/v1/models", headers=headers)
        assert answer.status_code == 200
        page.check_headers(answer)
        assert [model["id"] for model in answer.json()["data"]] == [MODEL]
        assert answer.json()["data"][0]["capabilities"]
        answer = await client.post(
            PATH, json={"model": MODEL, "prompt": "p", "max_tokens": 3}, headers=headers
        )
        page.completion(answer)
    answer = await client.get("/prentis/v1/models")
    assert (answer.status_code, page.error(answer)["code"]) == (401, "INVALID_API_KEY")


@pytest.mark.covers("P-7", "P-9")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /prentis/v1/models HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        (f"GET /prentis/v1/models HTTP/1.1\r\nhost: x\r\nx: {'y' * 70_000}\r\n\r\n", 431),
        ("BREW /prentis/v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 501),
        ("POST /prentis/v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 400),
    ],
    ids=["two hosts", "a large header", "a method", "a coding"],
)
async def test_what_is_no_request_is_answered_in_the_pages_shape(proxied: Gateway, head: str, status: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    writer.write(head.encode())
    async with asyncio.timeout(10):
        text = (await reader.read(-1)).decode()
    writer.close()
    top, _, body = text.partition("\r\n\r\n")
    assert top.startswith(f"HTTP/1.1 {status} ")
    assert "x-request-id: " in top.lower()
    assert "x-config-version" not in top.lower()
    page.ERROR.validate(json.loads(body))
    assert json.loads(body)["error"]["code"] == "INVALID_REQUEST"
