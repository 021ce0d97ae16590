"""P-9: every code of the page is reached, at its status, with its type, `param` and `Retry-After`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.image import ImageSpan
from onward.engines.scripted import ScriptedEngine
from onward.http.limits import Limits
from onward.wiring import config as settings
from tests.dialects import prentis_page as page
from tests.http.gateway import UPSTREAM, FrailStore, Gateway, another_key, gateway
from tests.mock_answers import SECRET as THEIR_SECRET
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider
from tests.pictures import part, picture, png

PATH = "/prentis/v1/completions"
CHAT = "/prentis/v1/chat/completions"
MOUNTS = {"openai": "/v1", "prentis": "/prentis/v1"}
PAYS = {"balance": "1.00"}
TOKEN = "an-admin-token-of-these-tests"
REQUEST, PERMISSION, SERVER = "invalid_request_error", "permission_error", "server_error"
BUSY, BILLING, RATE = "service_unavailable", "billing_error", "rate_limit_error"


@dataclass
class Stage:
    """What a case is made of."""

    folder: Path
    mock: MockProvider
    text_side: Any
    seeing: Any
    """The text side of a model that takes images."""

    def gateway(self, *sources: Any, **options: Any) -> Any:
        """A gateway before these, or before the mock provider, to a key of a tenant that pays."""
        return gateway(
            self.folder,
            *(sources or (self.mock,)),
            text_side=self.text_side,
            mounts=MOUNTS,
            **{"tenant": PAYS, **options},
        )

    def fails(self, kind: FailureKind, **more: Any) -> ScriptedEngine:
        """An engine that raises a failure."""
        return ScriptedEngine(lambda _: [Failure(kind, "The engine has its reasons.", **more)])


@pytest.fixture
def stage(tmp_path: Path, text_side: Any, seeing: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    with MockProvider() as mock:
        yield Stage(tmp_path, mock, text_side, seeing)


@dataclass(frozen=True)
class Row:
    """How a code is reached, and what stands beside it."""

    code: str
    status: int
    type: str
    reach: Callable[[Stage, bool], Awaitable[httpx.Response]]
    param: str | None = None
    retry_after: str | None = None

    @property
    def id(self) -> str:
        return f"{self.code}-{self.reach.__name__}"


async def ask(running: Gateway, stream: bool, **body: Any) -> httpx.Response:
    return await running.complete(path=PATH, stream=stream, **body)


def asked(options: Callable[[Stage], dict[str, Any]] | dict[str, Any], name: str, **body: Any) -> Any:
    """One request to a gateway with these options."""

    async def reach(stage: Stage, stream: bool) -> httpx.Response:
        made = options if isinstance(options, dict) else options(stage)
        sources = made.get("sources", ())
        async with stage.gateway(
            *sources, **{name: value for name, value in made.items() if name != "sources"}
        ) as running:
            return await ask(running, stream, **body)

    reach.__name__ = name
    return reach


def said(name: str, *behaviours: Behaviour, provider: dict[str, Any] | None = None, **body: Any) -> Any:
    """One request that the provider answers so."""

    async def reach(stage: Stage, stream: bool) -> httpx.Response:
        stage.mock.say(*behaviours)
        async with stage.gateway(provider=provider or {}) as running:
            answer = await ask(running, stream, **body)
            assert THEIR_SECRET not in answer.text
            return answer

    reach.__name__ = name
    return reach


async def a_wrong_key(stage: Stage, stream: bool) -> httpx.Response:
    async with stage.gateway() as running:
        return await ask(running, stream, secret="on-wrong")


async def no_key(stage: Stage, stream: bool) -> httpx.Response:
    async with stage.gateway() as running:
        return await ask(running, stream, secret=None)


async def anothers_model(stage: Stage, stream: bool) -> httpx.Response:
    keys = [another_key("narrow", tenant="acme", models=["org/second"])]
    async with stage.gateway(keys=keys, models={"org/second": [stage.mock]}) as running:
        return await ask(running, stream, secret="on-secret-narrow")


async def two_in_a_minute(stage: Stage, stream: bool) -> httpx.Response:
    async with stage.gateway(key={"requests_per_minute": 1}) as running:
        assert (await ask(running, stream)).status_code == 200
        return await ask(running, stream)


async def two_at_once(stage: Stage, stream: bool) -> httpx.Response:
    stage.mock.say(Behaviour(hold=0))
    async with stage.gateway(key={"concurrency": 1}) as running:
        first = asyncio.create_task(ask(running, stream))
        await stage.mock.comes(lambda: bool(stage.mock.requests))
        answer = await ask(running, stream)
        stage.mock.let_go()
        assert (await first).status_code == 200
        return answer


async def another_body(stage: Stage, stream: bool) -> httpx.Response:
    headers = {"idempotency-key": "once"}
    async with stage.gateway() as running:
        first = await running.post(PATH, {"prompt": "a", "stream": stream}, headers=headers)
        assert first.status_code == 200
        return await running.post(PATH, {"prompt": "b", "stream": stream}, headers=headers)


async def an_operator_cancels(stage: Stage, stream: bool) -> httpx.Response:
    stage.mock.say(Behaviour(never=True))
    admin = {"authorization": f"Bearer {TOKEN}"}
    async with stage.gateway() as running:
        call = asyncio.create_task(ask(running, stream))
        await stage.mock.comes(lambda: bool(stage.mock.requests))
        [one] = (await running.client.get("/admin/v1/requests", headers=admin)).json()["data"]
        await running.client.delete(f"/admin/v1/requests/{one['request_id']}", headers=admin)
        return await call


async def the_store_is_down(stage: Stage, stream: bool) -> httpx.Response:
    async with stage.gateway() as running:
        assert isinstance(running.store, FrailStore)
        running.store.broken = True
        try:
            return await ask(running, stream)
        finally:
            running.store.broken = False


async def a_fault_of_ours(stage: Stage, stream: bool) -> httpx.Response:
    engine = ScriptedEngine(lambda _: [RuntimeError("their-own-name broke")])
    async with stage.gateway(engine) as running:
        return await ask(running, stream)


def an_image(name: str, image: dict[str, Any], *, sees: bool = True) -> Any:
    """One chat with an image, to a model of ours that takes images or none."""

    async def reach(stage: Stage, stream: bool) -> httpx.Response:
        engine = ScriptedEngine([5] * 9, image=ImageSpan(tokens=9))
        declared = {"capabilities": ["chat", *(["images"] if sees else [])]}
        messages = [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]
        stage.text_side = stage.seeing
        async with stage.gateway(engine, model=declared) as running:
            return await running.post(CHAT, {"messages": messages, "max_tokens": 5, "stream": stream})

    reach.__name__ = name
    return reach


def an_image_for_a_provider(image: dict[str, Any], name: str) -> Any:
    """The same, where a provider runs a model that declares no images."""

    async def reach(stage: Stage, stream: bool) -> httpx.Response:
        messages = [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]
        async with stage.gateway() as running:
            answer = await running.post(CHAT, {"messages": messages, "max_tokens": 5, "stream": stream})
        assert stage.mock.requests == []
        return answer

    reach.__name__ = name
    return reach


def filtered(**patterns: Any) -> dict[str, Any]:
    return {"model": {"content_filter": settings.ContentFilter(**patterns)}}


def says_a_secret(stage: Stage) -> dict[str, Any]:
    engine = ScriptedEngine(stage.text_side.tokenizer.encode_prompt("secret words of ours"))
    return {"sources": [engine], **filtered(block_output=["secret"])}


def full(stage: Stage) -> dict[str, Any]:
    return {"sources": [stage.fails(FailureKind.ENGINE_FULL, retry_after=7)]}


def starting(stage: Stage) -> dict[str, Any]:
    return {"sources": [stage.fails(FailureKind.ENGINE_STARTING, retry_after=3)]}


def short_context(stage: Stage) -> dict[str, Any]:
    return {"sources": [ScriptedEngine([260] * 9)]}


ROWS = [
    Row("INVALID_API_KEY", 401, "authentication_error", a_wrong_key),
    Row("INVALID_API_KEY", 401, "authentication_error", no_key),
    Row("TENANT_SUSPENDED", 403, PERMISSION, asked({"tenant": {"status": "suspended"}}, "suspended")),
    Row("MODEL_NOT_ALLOWED", 403, PERMISSION, anothers_model, param="model"),
    Row("AGREEMENT_REQUIRED", 403, PERMISSION, asked({"model": {"agreement": True}}, "terms"), param="model"),
    Row("INVALID_REQUEST", 400, REQUEST, asked({}, "a_field", echo=True), param="echo"),
    Row("INVALID_REQUEST", 400, REQUEST, said("a_providers_400", Behaviour(status=400))),
    Row("MODEL_NOT_FOUND", 404, "not_found_error", asked({}, "nobody", model="nobody"), param="model"),
    Row(
        "MODEL_CAPABILITY_UNSUPPORTED",
        400,
        REQUEST,
        asked({"model": {"capabilities": ["chat"]}}, "no_completions"),
        param="model",
    ),
    Row(
        "CONTEXT_LENGTH_EXCEEDED",
        400,
        REQUEST,
        asked(short_context, "too_long", prompt="word " * 9000),
        param="prompt",
    ),
    Row(
        "CONTEXT_LENGTH_EXCEEDED",
        400,
        REQUEST,
        asked(short_context, "too_many", max_tokens=9000),
        param="max_tokens",
    ),
    Row("IDEMPOTENCY_CONFLICT", 409, REQUEST, another_body, param="Idempotency-Key"),
    Row(
        "MEDIA_TOO_LARGE",
        413,
        REQUEST,
        asked({"limits": Limits(body_bytes=1000)}, "a_large_body", prompt="word " * 1000),
    ),
    Row(
        "MEDIA_TOO_LARGE",
        413,
        REQUEST,
        an_image("many_pixels", part(png(50_000, 50_000, b""))),
        param="messages[0].content[1].image_url",
    ),
    Row(
        "MEDIA_FETCH_FAILED",
        400,
        REQUEST,
        an_image("an_address", {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}),
        param="messages[0].content[1].image_url.url",
    ),
    Row(
        "MEDIA_UNSUPPORTED",
        400,
        REQUEST,
        an_image("for_the_blind", part(picture()), sees=False),
        param="messages[0].content[1]",
    ),
    Row(
        "MEDIA_UNSUPPORTED",
        400,
        REQUEST,
        an_image("no_image", part(b"no image at all")),
        param="messages[0].content[1].image_url",
    ),
    *[
        Row(
            "MEDIA_UNSUPPORTED",
            400,
            REQUEST,
            an_image_for_a_provider({"type": "image_url", "image_url": {"url": url}}, name),
            param="messages[0].content[1].image_url.url",
        )
        for name, url in [
            ("for_a_blind_provider", "data:image/png;base64,AAAA"),
            ("an_address_for_a_blind_provider", "https://example.org/x.png"),
        ]
    ],
    Row("TENANT_RATE_LIMITED", 429, RATE, two_in_a_minute),
    Row("TENANT_RATE_LIMITED", 429, RATE, two_at_once),
    Row("TENANT_BUDGET_EXCEEDED", 429, BILLING, asked({"tenant": {"monthly_budget": "0"}}, "a_budget")),
    Row("TENANT_BUDGET_EXCEEDED", 429, BILLING, asked({"key": {"monthly_cap": "0"}}, "a_cap")),
    Row("INSUFFICIENT_BALANCE", 402, BILLING, asked({"tenant": {"balance": "0"}}, "no_money")),
    Row("PAYMENT_REQUIRED", 402, BILLING, asked({"tenant": {"status": "unpaid"}}, "unpaid")),
    Row("UPSTREAM_RATE_LIMITED", 429, RATE, said("busy", Behaviour(status=429)), retry_after="1"),
    Row(
        "UPSTREAM_RATE_LIMITED",
        429,
        RATE,
        said("busy_for_long", Behaviour(status=429, retry_after="17")),
        retry_after="17",
    ),
    Row("UPSTREAM_UNAVAILABLE", 503, BUSY, said("broken", Behaviour(status=500))),
    Row("UPSTREAM_UNAVAILABLE", 503, BUSY, said("no_entry", Behaviour(status=401))),
    Row("UPSTREAM_UNAVAILABLE", 503, BUSY, said("cut", Behaviour(drop=True))),
    Row("UPSTREAM_UNAVAILABLE", 503, BUSY, asked(full, "a_full_engine"), retry_after="7"),
    Row(
        "UPSTREAM_TIMEOUT",
        504,
        SERVER,
        said("silent", Behaviour(never=True), provider={"first_byte_timeout_s": 0.1}),
    ),
    Row("DEPLOYMENT_SCALING_UP", 503, BUSY, asked(starting, "an_engine_that_starts"), retry_after="3"),
    Row("REQUEST_CANCELLED", 499, REQUEST, an_operator_cancels),
    Row("STORAGE_UNAVAILABLE", 503, BUSY, the_store_is_down),
    Row("INTERNAL", 500, SERVER, a_fault_of_ours),
    Row(
        "CONTENT_BLOCKED_INPUT",
        400,
        REQUEST,
        asked(filtered(block_input=["two"]), "a_word_sent"),
        param="prompt",
    ),
    Row("CONTENT_BLOCKED_OUTPUT", 400, REQUEST, asked(says_a_secret, "a_word_made")),
    Row("UPSTREAM_CONTENT_REJECTED", 400, REQUEST, said("rejected", Behaviour(status=400, rejects=True))),
    Row("CONTENT_BLOCKED_OUTPUT", 400, REQUEST, asked(filtered(block_output=["w0"]), "a_word_passed")),
]
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.mark.covers("P-9", "P-7")
@streamed
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_a_code_is_reached(stage: Stage, row: Row, stream: bool) -> None:
    answer = await row.reach(stage, stream)
    error = page.error(answer)
    assert error["code"] == row.code, error
    assert (answer.status_code, error["type"], error["param"]) == (row.status, row.type, row.param)
    assert ("retry-after" in answer.headers) == (row.status in (429, 503))
    assert row.retry_after in (None, answer.headers.get("retry-after"))
    # the page lists the codes that a status may have
    assert row.status in page.STATUSES or row.code in ("IDEMPOTENCY_CONFLICT", "REQUEST_CANCELLED")


@pytest.mark.covers("P-9")
async def test_our_deadline(stage: Stage) -> None:
    stage.mock.always(Behaviour(never=True))
    async with stage.gateway(limits=Limits(request_s=0.2)) as running:
        for stream in (False, True):
            answer = await ask(running, stream)
            error = page.error(answer)
            assert (answer.status_code, error["code"]) == (504, "REQUEST_DEADLINE_EXCEEDED")
            assert (error["type"], error["param"]) == (SERVER, None)


IN_A_STREAM = [
    # code, type, what the provider does after two events, settings of the provider
    ("PARTIAL_RESPONSE_TIMEOUT", SERVER, Behaviour(stall=2), {"idle_timeout_s": 0.1}),
    ("UPSTREAM_UNAVAILABLE", BUSY, Behaviour(cut=2), {}),
    ("UPSTREAM_UNAVAILABLE", BUSY, Behaviour(error_event=2), {}),
]


@pytest.mark.covers("P-9")
@pytest.mark.parametrize(("code", "kind", "does", "provider"), IN_A_STREAM, ids=["silence", "cut", "error"])
async def test_after_output_a_code_is_in_an_event(
    stage: Stage, code: str, kind: str, does: Behaviour, provider: dict[str, Any]
) -> None:
    """The last of its stream, which then has no usage and no mark of an end."""
    stage.mock.say(does)
    async with stage.gateway(provider=provider) as running:
        answer = await ask(running, stream=True)
    assert answer.status_code == 200
    *pieces, last = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [piece["choices"][0]["text"] for piece in pieces] == [" w0", " w1"]
    page.ERROR.validate(last)
    assert (last["error"]["code"], last["error"]["type"]) == (code, kind)
    assert list(last["error"]) == ["message", "type", "code", "param"]
    assert UPSTREAM not in answer.text
    assert THEIR_SECRET not in answer.text


@pytest.mark.covers("P-9")
def test_no_code_is_left_out() -> None:
    reached = {row.code for row in ROWS} | {row[0] for row in IN_A_STREAM} | {"REQUEST_DEADLINE_EXCEEDED"}
    assert set(page.CODES) == reached
