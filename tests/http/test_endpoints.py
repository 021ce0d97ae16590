"""Routes, errors, request IDs, keys, probes, metrics and the log."""

import json
import re

import msgspec
import pytest

from onward import __version__
from onward.core.failure import Failure, FailureKind
from onward.core.generate import Chunk, ScoredToken
from onward.dialects import DIALECTS
from onward.dialects.schema import Header, HeaderValue
from onward.engines.scripted import ScriptedEngine
from tests.http.harness import JSON, MODEL, SECRET, edge

ERROR_KEYS = {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nothing",
        "/v1",
        "/v1/",
        "/nothing",
        "/v1/completions/",
        "/v2/completions",
        "/%2e%2e",
        "/v1/models/",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.covers("O-5")
async def test_unknown_routes(text_side, tmp_path, path: str, method: str):
    async with edge(text_side, tmp_path) as running:
        response = await running.client.request(method, path, content=b"" if method == "POST" else None)
        assert response.status_code == 404
        assert set(response.json()["error"]) == ERROR_KEYS
        assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/completions", "/v1/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/models/", "/v1/models"),
        ("/models/", "/v1/models"),
        (f"/models/{MODEL}", f"/v1/models/{MODEL}"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v2/completions", "/v1/completions"),
        ("/healthz/", "/healthz"),
        ("/v1/embeddings", None),
        ("/favicon.ico", None),
        ("/v1", None),
        ("/v1/" + "x" * 5000, None),
    ],
)
async def test_an_unknown_route_says_what_was_probably_meant(
    text_side, tmp_path, path: str, meant: str | None
):
    async with edge(text_side, tmp_path) as running:
        message = (await running.client.post(path)).json()["error"]["message"]
        assert len(message) < 300
        assert message.endswith(f"Did you mean {meant}?") if meant else "mean" not in message


@pytest.mark.parametrize("dialect", ["openai", "tinker"])
async def test_headers_of_a_dialect(text_side, tmp_path, monkeypatch, dialect: str):
    """What its data names is sent, on failures too where it says so."""
    headers = (
        Header(name="X-Request-Id", value=HeaderValue.REQUEST_ID),
        Header(name="x-trace", value=HeaderValue.REQUEST_ID),
        Header(name="x-class", value=HeaderValue.PROVIDER_CLASS, on_failures=False),
        Header(name="x-version", value=HeaderValue.CONFIG_VERSION, on_failures=False),
        Header(name="Idempotency-Key", value=HeaderValue.IDEMPOTENCY_KEY),
    )
    monkeypatch.setitem(DIALECTS, dialect, msgspec.structs.replace(DIALECTS[dialect], headers=headers))
    async with edge(text_side, tmp_path, dialects={dialect: "/v1"}) as running:
        for stream in (False, True):
            running.client.headers["idempotency-key"] = f"key {stream:d}"
            sent = (await running.complete(stream=stream)).headers
            assert sent["x-trace"] == sent["x-request-id"]
            assert sent.get_list("x-request-id") == [sent["x-trace"]]
            assert sent["x-class"] == "primary"
            assert re.fullmatch("[0-9a-f]{12}", sent["x-version"])
            assert sent["idempotency-key"] == f"key {stream:d}"
        listed = await running.client.get("/v1/models")
        assert "x-class" not in listed.headers
        assert listed.headers["x-version"] == sent["x-version"]
        for failed in (await running.complete(model="nobody"), await running.client.get("/v1/nothing")):
            assert failed.headers["x-trace"] == failed.headers["x-request-id"]
            assert failed.headers["idempotency-key"] == "key 1"
            assert not {"x-class", "x-version"} & set(failed.headers)
        running.client.headers["idempotency-key"] = "k" * 256
        assert "idempotency-key" not in (await running.complete()).headers
        refused = await running.raw(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert b"\r\nx-trace: " in refused
        assert b"x-version" not in refused


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/completions", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", f"/v1/models/{MODEL}", "GET, HEAD"),
        ("OPTIONS", "/v1/completions", "POST"),
        ("HEAD", "/v1/completions", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/tokenize", "POST"),
    ],
)
async def test_wrong_methods(text_side, tmp_path, method: str, path: str, allow: str):
    async with edge(text_side, tmp_path) as running:
        response = await running.client.request(method, path, headers={"origin": "https://example.com"})
        assert response.status_code == 405
        assert response.headers["allow"] == allow
        assert not [name for name in response.headers if name.startswith("access-control")]
        if method != "HEAD":
            assert set(response.json()["error"]) == ERROR_KEYS


async def test_head_is_get_without_a_body(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for path in ("/v1/models", "/healthz", "/", "/v1/openapi.json"):
            whole = await running.client.get(path)
            head = await running.client.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize(
    "path",
    [f"/v1/models/{MODEL}", "/v1/models/org%2Fscripted", "/v1/models/org%2fscripted", "/v1/models/alias"],
)
@pytest.mark.covers("O-4")
async def test_a_model_whose_id_holds_a_slash(text_side, tmp_path, path: str):
    async with edge(text_side, tmp_path) as running:
        assert (await running.client.get(path)).json()["id"] == MODEL


async def test_an_unknown_model(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for response in (await running.client.get("/v1/models/a/b"), await running.complete(model="a/b")):
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-1.2_X", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ('a"b', False), ("", False)],
)
async def test_request_ids(text_side, tmp_path, sent: str, kept: bool):
    """A plain one is kept as a label; ours is another, and names the answer."""
    async with edge(text_side, tmp_path) as running:
        content = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 1})
        response = await running.client.post(
            "/v1/completions", content=content, headers={**JSON, "x-request-id": sent}
        )
        shown = response.headers["x-request-id"]
        assert (shown == sent) == kept
        (line,) = await running.logged("/v1/completions")
        assert response.json()["id"] == f"cmpl-{line['request_id']}"
        assert line.get("client_request_id") == (sent if kept else None)
        assert line["request_id"] != sent
        assert shown in (sent, line["request_id"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer on-wrong"}, 401),
        ({"authorization": f"Basic {SECRET}"}, 401),
        ({"authorization": SECRET}, 401),
        ({"x-api-key": "on-wrong"}, 401),
        ({"authorization": f"Bearer {SECRET}"}, 200),
        ({"authorization": f"bearer {SECRET}"}, 200),
        ({"x-api-key": SECRET}, 200),
    ],
)
@pytest.mark.covers("O-5")
async def test_keys(text_side, tmp_path, headers: dict[str, str], status: int):
    """Once there is a key every caller needs one; nobody reads the body of one who has none."""
    async with edge(text_side, tmp_path, keys=True) as running:
        assert (await running.client.get("/v1/models", headers=headers)).status_code == status
        body = b"{" if status == 401 else json.dumps({"model": MODEL, "prompt": "hello"}).encode()
        response = await running.client.post("/v1/completions", content=body, headers={**JSON, **headers})
        assert response.status_code == status
        for open_path in ("/healthz", "/readyz", "/metrics", "/v1/openapi.json"):
            assert (await running.client.get(open_path)).status_code == 200
        if status == 401:
            assert response.json()["error"]["code"] == "invalid_api_key"
        shown = "".join(response.headers.values()) + response.text + running.log_path.read_text()
        for secret in (SECRET, "on-wrong"):
            assert secret not in shown


async def test_a_refused_key_is_told_before_the_body_is_sent(text_side, tmp_path):
    async with edge(text_side, tmp_path, keys=True) as running:
        answer = await running.raw(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\nexpect: 100-continue\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 401")


async def test_a_key_for_other_models(text_side, tmp_path):
    async with edge(text_side, tmp_path, keys=True, models=["another"]) as running:
        running.client.headers["x-api-key"] = SECRET
        response = await running.complete()
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"
        assert (await running.client.get(f"/v1/models/{MODEL}")).status_code == 404
        assert (await running.client.get("/v1/models")).json()["data"] == []


@pytest.mark.covers("O-4")
async def test_tokens_in_and_out(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for mount in ("", "/v1"):

            async def post(path: str, body: dict, mount=mount) -> dict:
                response = await running.client.post(mount + path, content=json.dumps(body), headers=JSON)
                assert response.status_code == 200, response.text
                return response.json()

            tokens = (await post("/tokenize", {"prompt": "Hello <|im_end|> there"}))["tokens"]
            assert 2 in tokens
            assert (await post("/detokenize", {"tokens": tokens}))["prompt"] == "Hello <|im_end|> there"
            rendered = await post("/render", {"messages": [{"role": "user", "content": "Hi <|im_end|>"}]})
            assert rendered["prompt_token_ids"].count(2) == rendered["prompt"].count("<|im_end|>") - 1
            as_tokens = await post("/tokenize", {"messages": [{"role": "user", "content": "Hi <|im_end|>"}]})
            assert as_tokens["tokens"] == rendered["prompt_token_ids"]
            info = (await running.client.get(f"{mount}/tokenizer_info")).json()
            assert info["eos_token"] == "<|im_end|>"
            long = await post("/tokenize", {"prompt": "a " * 50_000})
            assert long["count"] == len(long["tokens"]) > 40_000


async def test_long_texts_to_tokenize_are_bounded(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        response = await running.client.post(
            "/tokenize", content=json.dumps({"prompt": "a" * 2_000_001}), headers=JSON
        )
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "prompt"
        response = await running.client.post(
            "/detokenize", content=json.dumps({"tokens": [1, 99_999_999]}), headers=JSON
        )
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "tokens[1]"


async def test_probes_and_pages(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for path in ("/healthz", "/readyz", "/health"):
            assert (await running.client.get(path)).status_code == 200
        assert (await running.client.get("/version")).json() == {"version": __version__}
        assert "/v1" in (await running.client.get("/")).text
        document = (await running.client.get("/v1/openapi.json")).json()
        assert "/completions" in document["paths"]
        running.built.lifecycle.draining = True
        response = await running.client.get("/readyz")
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["reasons"] == ["shutting down"]


async def test_metrics_count_and_stay_bounded(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        for number in range(3):
            await running.complete(stream=number == 2)
            await running.complete(model=f"made-up-{number}")
            await running.client.get(f"/made/up/{number}")
        text = (await running.client.get("/metrics")).text
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert lines[f'onward_requests_total{{model="{MODEL}",status="200",surface="completions"}}'] == "3.0"
        assert lines['onward_requests_total{model="none",status="404",surface="completions"}'] == "3.0"
        assert lines['onward_requests_total{model="none",status="404",surface="none"}'] == "3.0"
        assert lines[f'onward_completion_tokens_total{{model="{MODEL}"}}'] == "9.0"
        assert lines[f'onward_prompt_tokens_total{{model="{MODEL}"}}'] == "3.0"
        assert lines[f'onward_time_to_first_token_seconds_count{{model="{MODEL}"}}'] == "3.0"
        assert lines[f'onward_time_per_output_token_seconds_count{{model="{MODEL}"}}'] == "3.0"
        assert lines["onward_requests_in_flight"] == "1.0"
        assert lines['onward_engine_up{deployment="local"}'] == "1.0"
        assert 'onward_engine_running{deployment="local"}' in lines
        assert 'onward_engine_waiting{deployment="local"}' in lines
        assert "made" not in text


async def test_the_log_has_a_line_for_each_request(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        prompt = "a prompt that must stay secret"
        response = await running.complete(prompt=prompt, user="someone", stream=True)
        await running.complete(prompt=prompt, temperature=9)
        good, bad = await running.logged("/v1/completions", 2)
        assert good["status"] == 200
        assert good["model"] == MODEL
        assert good["user"] == "someone"
        assert good["stream"] is True
        assert good["finish"] == ["length"]
        assert good["completion_tokens"] == 3
        assert good["prompt_tokens"] > 1
        assert good["cached_tokens"] == 0
        assert 0 <= good["ttft_ms"] <= good["duration_ms"]
        assert good["request_id"] == response.headers["x-request-id"]
        assert (bad["status"], bad["failure"]) == (400, "invalid_request")
        assert "secret" not in running.log_path.read_text()
        await running.client.get("/healthz")
        await running.client.get("/v1/models")
        await running.logged("/v1/models")
        assert '"/healthz"' not in running.log_path.read_text()


@pytest.mark.parametrize("kind", [FailureKind.ENGINE_FULL, FailureKind.ENGINE_STARTING])
@pytest.mark.parametrize("stream", [True, False])
async def test_refusals_of_the_engine_have_a_status(text_side, tmp_path, kind: FailureKind, stream: bool):
    """A full engine is told before the 200, streamed or not."""

    class Refusing(ScriptedEngine):
        async def generate(self, request):
            raise Failure(kind, "No room. Try again soon.", retry_after=7)
            yield

    async with edge(text_side, tmp_path, Refusing([])) as running:
        response = await running.complete(stream=stream)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "7"
        assert set(response.json()["error"]) == ERROR_KEYS


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_of_ours_is_a_500_and_the_server_goes_on(text_side, tmp_path, stream: bool, caplog):
    async with edge(
        text_side,
        tmp_path,
        ScriptedEngine(
            lambda request: [ZeroDivisionError("secret detail")] if request.max_tokens == 9 else [[260]]
        ),
    ) as running:
        response = await running.complete(max_tokens=9, stream=stream)
        assert response.status_code == 500
        error = response.json()["error"]
        assert error["type"] == "server_error"
        assert "secret detail" not in response.text
        assert response.headers["x-request-id"] in error["message"]
        (record,) = [record for record in caplog.records if record.exc_info]
        assert response.headers["x-request-id"] in record.getMessage()
        assert (await running.complete()).status_code == 200


@pytest.mark.parametrize(
    "error", [Failure(FailureKind.ENGINE_FAILED, "The engine died."), ZeroDivisionError("secret detail")]
)
@pytest.mark.covers("O-5")
async def test_failures_in_the_middle_of_a_stream(text_side, tmp_path, error: Exception, caplog):
    """An error event, then the end: no finish, no usage, no [DONE]."""
    async with edge(text_side, tmp_path, ScriptedEngine(lambda _: [[260], [261], error])) as running:
        response = await running.complete(stream=True, stream_options={"include_usage": True})
        assert response.status_code == 200
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        last = json.loads(events[-1])
        assert set(last) == {"error"}
        assert "secret detail" not in response.text
        assert "[DONE]" not in response.text
        for event in events[:-1]:
            assert json.loads(event)["choices"][0]["finish_reason"] is None
        (line,) = await running.logged("/v1/completions")
        assert line["failure"] in ("engine_failed", "internal")


async def test_streams_say_how_they_are_to_be_passed_on(text_side, tmp_path):
    async with edge(text_side, tmp_path) as running:
        response = await running.complete(stream=True)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.text.endswith("data: [DONE]\n\n")
        assert response.headers["date"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("label", [None, "mine-1"])
async def test_a_fault_of_ours_names_the_request_as_its_header_does(text_side, tmp_path, stream, label):
    class Broken(ScriptedEngine):
        async def generate(self, request):
            yield Chunk([ScoredToken(260)])
            raise RuntimeError("a secret of ours")

    async with edge(text_side, tmp_path, Broken([])) as running:
        if label:
            running.client.headers["x-request-id"] = label
        answer = await running.complete(stream=stream)
        assert answer.status_code == (200 if stream else 500)
        assert answer.headers["x-request-id"] in answer.text
        assert "secret" not in answer.text
        (line,) = await running.logged("/v1/completions")
        assert line["failure"] == "internal"
        assert answer.headers["x-request-id"] in (line["request_id"], line.get("client_request_id"))
