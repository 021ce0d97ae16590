"""Requests with an Idempotency-Key: each runs once, and everybody who repeats it gets its answer (P-8, O-6)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from onward.admission.ledger import State
from onward.http.limits import Limits
from onward.wiring.config import Tenant
from onward.wiring.directory import keys_of, tenants_of
from tests.contract.stores import postgres
from tests.http.gateway import MODEL, Caller, Gateway, another_key, cost, data_of, gateway, units
from tests.http.harness import SlowEngine, until
from tests.http.test_gateway_shared import open_postgres
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

pytestmark = pytest.mark.covers("P-8", "O-6")
NAMED = {"idempotency-key": "order 7"}
PAYS = {"balance": "1.00"}
MOUNTS = {"openai": "/v1", "tokens": "/tokens/v1", "tinker": "/tinker/v1", "prentis": "/prentis/v1"}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture(params=["sqlite", "postgres"])
async def start(request, tmp_path, mock) -> AsyncIterator:
    """Starts a gateway over a new store of each sort."""
    async with AsyncExitStack() as stack:
        options: dict[str, Any] = {}
        if request.param == "postgres":
            await stack.enter_async_context(postgres(tmp_path))
            options["store"] = open_postgres

        async def start(*sources, **more) -> Gateway:
            values = {"tenant": PAYS, "mounts": MOUNTS} | options | more
            return await stack.enter_async_context(gateway(tmp_path, *(sources or [mock]), **values))

        yield start


def same(first, again) -> None:
    """The second is the first one's answer, and says so."""
    assert (again.status_code, again.content) == (first.status_code, first.content)
    for name in ("content-type", "x-provider-class", "idempotency-key"):
        assert again.headers.get(name) == first.headers.get(name), name
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def events_of(caller: Caller) -> bytes:
    """The body of a chunked answer."""
    body, rest = b"", caller.text.partition("\r\n\r\n")[2].encode()
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


async def refused(running: Gateway, status: int, code: str, **asked: Any):
    answer = await running.complete(headers=NAMED, **asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    return answer


# The replay


@streamed
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {}),
        ("/v1/chat/completions", {"prompt": None, "messages": [{"role": "user", "content": "hi"}]}),
        ("/tokens/v1/completions", {}),
        ("/prentis/v1/completions", {}),
    ],
    ids=["completions", "chat", "tokens", "prentis"],
)
async def test_a_replay_is_the_first_answer(start, mock, stream: bool, path: str, asked):
    running = await start()
    first = await running.complete(path=path, headers=NAMED, stream=stream, **asked)
    assert first.status_code == 200, first.text
    assert first.headers["idempotency-key"] == "order 7"
    for _ in range(2):
        same(first, await running.complete(path=path, headers=NAMED, stream=stream, **asked))
    assert len(mock.requests) == 1
    entry = await running.entry()
    assert (entry.state, entry.charged > 0) == (State.SETTLED, True)
    assert await running.balance() == units("1.00") - entry.charged
    await running.idle()
    await running.logged(f'"repeats":"{entry.request_id}"')


@streamed
@pytest.mark.parametrize("mount", ["/v1", "/tinker/v1"])
async def test_a_model_of_ours_is_replayed_too(text_side, start, mount: str, stream: bool):
    engine = SlowEngine(260, 0)
    running = await start(engine, text_side=text_side)
    asked = {"path": f"{mount}/completions", "headers": NAMED, "stream": stream, "prompt": [1, 2, 3]}
    first = await running.complete(**asked)
    assert first.status_code == 200, first.text
    same(first, await running.complete(**asked))
    assert len(engine.requests) == 1
    assert (await running.entry()).charged == cost(3, 5)


@streamed
@pytest.mark.parametrize("mount", ["/v1", "/prentis/v1"])
async def test_messages_are_replayed_too(text_side, start, mount: str, stream: bool):
    engine = SlowEngine(260, 0)
    running = await start(engine, text_side=text_side)
    asked = {"messages": [{"role": "user", "content": "hi"}], "prompt": None, "stream": stream}
    first = await running.complete(path=f"{mount}/messages", headers=NAMED, **asked)
    assert first.status_code == 200, first.text
    again = await running.complete(path=f"{mount}/messages", headers=NAMED, **asked)
    same(first, again)
    assert again.headers["request-id"] == again.headers["x-request-id"]
    assert len(engine.requests) == 1
    other = await running.complete(path=f"{mount}/messages", headers=NAMED, **{**asked, "max_tokens": 2})
    assert (other.status_code, other.json()["type"]) == (409, "error")


async def test_every_name_has_an_answer_of_its_own(start, mock):
    running = await start(keys=[another_key("bob")])
    names = ["a", "b", "!" * 255, "a b"]  # the pages know no pattern, only the length
    for name in names:
        assert (await running.complete(headers={"idempotency-key": name})).status_code == 200
    assert len(mock.requests) == 4
    await running.complete(headers={"idempotency-key": "a"}, secret="on-secret-bob")
    assert len(mock.requests) == 5  # names of one key are not those of another
    await running.complete()
    await running.complete()
    assert len(mock.requests) == 7  # without a name every request is its own
    await running.complete(headers={"idempotency-key": "a"})
    assert len(mock.requests) == 7


async def test_a_replay_takes_neither_quota_nor_money(start, mock):
    running = await start(key={"requests_per_minute": 1, "concurrency": 1}, tenant={"balance": "0.000027"})
    mock.say(Behaviour(counts="17/5"))
    first = await running.complete(headers=NAMED)
    assert (await running.complete(headers={"idempotency-key": "order 8"})).status_code == 429
    assert await running.balance() == 0
    for _ in range(3):
        same(first, await running.complete(headers=NAMED))


# What is refused


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "tab\there", "\u00e9"], ids=["none", "long", "tab", "accent"]
)
async def test_a_name_that_cannot_be_is_refused(start, mock, name: str):
    running = await start()
    answer = await running.client.post(
        "/prentis/v1/completions",
        content=json.dumps({"model": MODEL, "prompt": "hi"}),
        headers=[
            (b"authorization", b"Bearer on-a-key-of-these-tests"),
            (b"content-type", b"application/json"),
            (b"idempotency-key", name.encode("latin-1")),
        ],
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "INVALID_REQUEST", "Idempotency-Key")
    assert "255 characters of printable ASCII" in error["message"]
    assert "idempotency-key" not in answer.headers
    assert not mock.requests
    assert not await running.entries()


@pytest.mark.parametrize("second", ["two", "one"])
async def test_two_names_are_none(start, mock, second):
    """Which of them counts would depend on their order: the request could run once for each."""
    running = await start()
    answer = await running.client.post(
        "/v1/completions",
        content=json.dumps({"model": MODEL, "prompt": "hi"}),
        headers=[
            (b"authorization", b"Bearer on-a-key-of-these-tests"),
            (b"content-type", b"application/json"),
            (b"idempotency-key", b"one"),
            (b"idempotency-key", second.encode()),
        ],
    )
    assert answer.status_code == (200 if second == "one" else 400), answer.text
    assert len(mock.requests) == (second == "one")
    if second == "two":
        assert "sent once" in answer.json()["error"]["message"]
        assert "idempotency-key" not in answer.headers


@streamed
async def test_another_body_or_path_is_a_conflict(start, mock, stream: bool):
    running = await start()
    first = await running.complete(headers=NAMED, stream=stream)
    for asked in (
        {"stream": stream, "max_tokens": 4},
        {"stream": not stream},
        {"stream": stream, "path": "/tokens/v1/completions"},
    ):
        answer = await refused(running, 409, "idempotency_conflict", **asked)
        assert "Idempotency-Key" in answer.json()["error"]["message"]
        assert "retry-after" not in answer.headers
    answer = await running.complete(path="/prentis/v1/completions", headers=NAMED, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert answer.headers["idempotency-key"] == "order 7"
    same(first, await running.complete(headers=NAMED, stream=stream))
    assert len(mock.requests) == 1


async def test_a_replay_needs_what_a_request_needs(start, mock):
    """Key, tenant, agreement: as they are now."""
    running = await start(
        tenants=[Tenant(name="shut", status="suspended")],
        keys=[another_key("shut", tenant="shut")],
        model={"agreement": True},
        tenant={"balance": "1.00", "agreements": [MODEL]},
    )
    first = await running.complete(headers=NAMED)
    assert first.status_code == 200
    assert (await running.complete(headers=NAMED, secret="wrong")).status_code == 401
    assert (await running.complete(headers=NAMED, secret="on-secret-shut")).status_code == 403
    keys, before, tenants = running.admission.keys, keys_of(running.config), tenants_of(running.config)
    without = [msgspec.structs.replace(tenant, agreements=frozenset()) for tenant in tenants]
    keys.replace(before, without, closed=True)
    await refused(running, 403, "agreement_required")
    barred = [msgspec.structs.replace(key, models=frozenset({"another"})) for key in before]
    keys.replace(barred, tenants, closed=True)
    await refused(running, 404, "model_not_found")
    keys.replace(before, tenants, closed=True)
    same(first, await running.complete(headers=NAMED))
    assert len(mock.requests) == 1


# Failures


@streamed
@pytest.mark.parametrize(
    ("behaviour", "status"),
    [(Behaviour(status=503), 503), (Behaviour(status=400), 400), (Behaviour(drop=True), 503)],
    ids=["503", "400", "drop"],
)
async def test_what_failed_before_any_output_does_not_bind(start, mock, stream: bool, behaviour, status: int):
    running = await start()
    mock.say(behaviour)
    failed = await running.complete(headers=NAMED, stream=stream)
    assert failed.status_code == status
    answer = await running.complete(headers=NAMED, stream=stream)
    assert answer.status_code == 200
    assert "idempotent-replayed" not in answer.headers
    same(answer, await running.complete(headers=NAMED, stream=stream))
    entries = await running.ended(2)
    assert [entry.charged for entry in entries] == [0, cost(2, 5)]


@streamed
async def test_what_was_refused_does_not_bind(start, mock, stream: bool):
    running = await start(key={"concurrency": 1}, tenant={"balance": "0"})
    asked = {"headers": NAMED, "stream": stream}
    assert (await running.complete(**asked)).status_code == 402
    assert (await running.complete(model="no-such", **asked)).status_code == 404
    assert (await running.complete(max_tokens="many", **asked)).status_code == 400
    await running.store.credit("acme", units("1.00"), note="", at_ms=1)
    assert (await running.complete(**asked)).status_code == 200
    assert len(mock.requests) == 1


async def test_a_failure_after_output_is_replayed_as_it_was(start, mock):
    running = await start()
    mock.say(Behaviour(cut=3))
    first = await running.complete(headers=NAMED, stream=True)
    assert "[DONE]" not in data_of(first.text)
    assert "error" in data_of(first.text)[-1]
    same(first, await running.complete(headers=NAMED, stream=True))
    entry = await running.entry()
    assert (entry.state, entry.charged) == (State.SETTLED, cost(entry.usage.prompt_tokens, 3))
    assert len(mock.requests) == 1


async def test_a_whole_answer_that_took_too_long_is_charged_once(text_side, start):
    """It was made and is charged, so its failure is the answer."""
    engine = SlowEngine(260, 0.01)
    running = await start(engine, text_side=text_side, limits=Limits(request_s=0.3))
    asked = {"headers": NAMED, "prompt": [1, 2, 3], "max_tokens": 1000}
    first = await running.complete(**asked)
    assert (first.status_code, first.json()["error"]["code"]) == (504, "deadline_exceeded")
    same(first, await running.complete(**asked))
    assert (await running.entry()).charged > 0


# While it runs


async def test_a_second_caller_follows_from_the_first_byte(start, mock):
    running = await start()
    mock.say(Behaviour(hold=2))
    asked = {"path": "/prentis/v1/completions", "headers": NAMED, "stream": True}
    async with running.caller(**asked) as first, running.caller(**asked) as second:
        await first.reads(2)
        await second.reads(2)
        await mock.comes(lambda: len(mock.requests) == 1)
        mock.let_go()
        await first.reads_all()
        await second.reads_all()
    assert events_of(first) == events_of(second)
    assert data_of(first.text)[-1] == "[DONE]"
    for caller in (first, second):
        assert "x-provider-class: primary" in caller.text
        assert "idempotent-replayed" not in caller.text
    assert len(mock.requests) == 1
    kept = await running.complete(**asked)
    assert kept.content == events_of(first)
    assert (await running.entry()).charged == cost(2, 5)


async def test_whole_answers_are_followed_too(start, mock):
    running = await start()
    mock.say(Behaviour(hold=0))
    calls = [asyncio.create_task(running.complete(headers=NAMED)) for _ in range(20)]
    await mock.comes(lambda: len(mock.requests) == 1)
    mock.let_go()
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.headers["x-request-id"] for answer in answers}) == 20
    assert len(mock.requests) == 1
    assert (await running.entry()).charged == cost(2, 5)


@streamed
async def test_who_follows_what_fails_gets_the_failure(start, mock, stream: bool):
    running = await start()
    mock.say(Behaviour(hold=0, drop=True))
    calls = [asyncio.create_task(running.complete(headers=NAMED, stream=stream)) for _ in range(3)]
    await mock.comes(lambda: len(mock.requests) == 1)
    await asyncio.sleep(0.05)
    mock.let_go()
    answers = await asyncio.gather(*calls)
    assert [answer.status_code for answer in answers] == [503] * 3
    assert (await running.complete(headers=NAMED, stream=stream)).status_code == 200


@streamed
async def test_a_request_runs_to_its_end_whoever_leaves(start, mock, stream: bool):
    running = await start()
    mock.say(Behaviour(hold=2 if stream else 0))
    async with running.caller(headers=NAMED, stream=stream) as caller:
        await (caller.reads(2) if stream else mock.comes(lambda: len(mock.requests) == 1))
        caller.goes()
    await until(lambda: running.http.connections == 0)
    assert [entry.state for entry in await running.entries()] == [State.HELD]
    mock.let_go()
    entry = await running.entry()
    assert (entry.state, entry.outcome, entry.charged) == (State.SETTLED, "ok", cost(2, 5))
    answer = await running.complete(headers=NAMED, stream=stream)
    assert answer.headers["idempotent-replayed"] == "true"
    assert (
        data_of(answer.text)[-1] == "[DONE]" if stream else answer.json()["usage"]["completion_tokens"] == 5
    )
    assert len(mock.requests) == 1


async def test_a_request_whose_callers_all_left_can_be_followed_again(start, mock):
    running = await start()
    mock.say(Behaviour(hold=2))
    async with running.caller(headers=NAMED, stream=True) as first:
        await first.reads(2)
        first.goes()
    async with running.caller(headers=NAMED, stream=True) as again:
        await again.reads(2)
        mock.let_go()
        await again.reads_all()
    assert data_of(again.text)[-1] == "[DONE]"
    assert (await running.complete(headers=NAMED, stream=True)).content == events_of(again)
    assert len(mock.requests) == 1


async def test_comments_are_for_one_caller_alone(start, mock):
    running = await start(limits=Limits(silence_s=0.05))
    mock.say(Behaviour(hold=1))
    asked = {"headers": NAMED, "stream": True}
    async with running.caller(**asked) as first:
        await first.reads(2, ": keep-alive")
        async with running.caller(**asked) as second:
            await second.reads(1, ": keep-alive")
            mock.let_go()
            await first.reads_all()
            await second.reads_all()
    assert data_of(first.text) == data_of(second.text)
    kept = await running.complete(**asked)
    assert ": keep-alive" not in kept.text
    assert data_of(kept.text) == data_of(first.text)


async def test_a_failure_behind_a_comment_is_an_event(start, mock):
    running = await start(limits=Limits(silence_s=0.05))
    mock.say(Behaviour(delay=0.2, drop=True))
    async with running.caller(headers=NAMED, stream=True) as caller:
        await caller.reads(1, ": keep-alive")
        await caller.reads_all()
    assert data_of(caller.text)[-1]["error"]["code"] == "upstream_unavailable"
    assert (await running.complete(headers=NAMED, stream=True)).status_code == 200  # it bound nothing


async def test_an_operator_cancels_a_named_request(start, mock):
    running = await start()
    mock.say(Behaviour(hold=2))
    asked = {"headers": NAMED, "stream": True}
    async with running.caller(**asked) as first, running.caller(**asked) as second:
        await first.reads(2)
        await second.reads(2)
        [grant] = running.admission.gate.running
        assert running.admission.gate.cancel(grant.demand.request_id)
        await first.reads_all()
        await second.reads_all()
    assert data_of(first.text)[-1]["error"]["code"] == "request_cancelled"
    assert events_of(first) == events_of(second)
    assert (await running.complete(**asked)).content == events_of(first)
    entry = await running.entry()
    assert (entry.outcome, entry.charged) == ("cancelled", cost(entry.usage.prompt_tokens, 2))


@streamed
async def test_the_time_of_a_request_whose_caller_left_is_bounded(start, mock, stream: bool):
    running = await start(limits=Limits(request_s=0.5))
    mock.say(Behaviour(hold=2 if stream else 0))
    asked = {"headers": NAMED, "stream": stream}
    async with running.caller(**asked) as caller:
        await (caller.reads(2) if stream else mock.comes(lambda: len(mock.requests) == 1))
        caller.goes()
    entry = await running.entry()
    assert entry.outcome == "deadline_exceeded"
    answer = await running.complete(**asked)
    if stream:  # something was made, and is charged
        assert data_of(answer.text)[-1]["error"]["code"] == "deadline_exceeded"
        assert entry.charged > 0
    else:
        assert (answer.status_code, entry.charged) == (200, 0)


# Bounds


@pytest.mark.parametrize("bound", ["kept_answer_bytes", "recorded_bytes"])
async def test_a_stream_too_large_to_be_kept(text_side, start, bound: str):
    """Those who follow it get all of it, at their pace; later ones are told why they get nothing."""
    engine = SlowEngine(260, 0.0001)
    limits = Limits(stream_buffer_bytes=2048, **{bound: 20_000})
    running = await start(engine, text_side=text_side, limits=limits)
    asked = {"headers": NAMED, "stream": True, "prompt": [1, 2, 3], "max_tokens": 2000}
    async with running.caller(**asked) as first, running.caller(**asked) as second:
        await second.reads(1)
        await until(lambda: engine.steps > 300)
        if bound == "kept_answer_bytes":  # which more of the stream does not make smaller again
            late = await running.complete(**asked)
            assert (late.status_code, late.json()["error"]["code"]) == (409, "idempotency_conflict")
        await first.reads_all()
        await second.reads_all()
    assert events_of(first) == events_of(second)
    assert data_of(first.text)[-1] == "[DONE]"
    answer = await running.complete(**asked)
    assert answer.status_code == 409
    assert "too large to be kept" in answer.json()["error"]["message"]
    assert (await running.entry()).charged == cost(3, 2000)
    assert len(engine.requests) == 1
