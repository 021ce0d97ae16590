"""Models of our own whose tokens cost money: each token is charged, seen or not, and none twice."""

import asyncio
from types import SimpleNamespace

import pytest

from onward.admission.ledger import State
from onward.core.failure import Failure, FailureKind
from onward.core.generate import Chunk, EngineFinish, ScoredToken
from onward.core.usage import Usage
from onward.engines.scripted import ScriptedEngine
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from tests.http.gateway import Gateway, cost, data_of, gateway, units
from tests.http.harness import SlowEngine, until

PAYS = {"balance": "1.00"}
IDS = [504, 3575, 282, 4649]
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def endless() -> ScriptedEngine:
    return ScriptedEngine([260] * 200)


@pytest.fixture
def engine() -> ScriptedEngine:
    return endless()


@pytest.fixture
async def paid(text_side, tmp_path, engine):
    async with gateway(tmp_path, engine, text_side=text_side, tenant=PAYS) as running:
        yield running


async def charged(running: Gateway, prompt: int, completion: int, cached: int = 0) -> None:
    entry = await running.entry()
    assert (entry.state, entry.usage) == (State.SETTLED, Usage(prompt, completion, cached))
    assert entry.charged == cost(prompt, completion, cached) <= entry.held
    assert (entry.estimated, entry.overdraft) == (False, False)
    assert await running.balance() == units("1.00") - entry.charged


@pytest.mark.parametrize("path", ["/v1/completions", "/tokens/v1/completions"])
@streamed
@pytest.mark.parametrize(
    ("fields", "prompts", "completion"),
    [
        ({"max_tokens": 7}, 1, 7),
        ({"max_tokens": 7, "n": 3}, 1, 21),
        ({"max_tokens": 7, "n": 2, "prompt": [IDS, IDS]}, 2, 28),
        ({"max_tokens": 1}, 1, 1),
    ],
    ids=str,
)
async def test_what_is_held_and_charged_is_exact(paid: Gateway, path, fields, prompts, completion, stream):
    answer = await paid.complete(**{"prompt": IDS, "path": path, "stream": stream, **fields})
    assert answer.status_code == 200, answer.text
    await charged(paid, 4 * prompts, completion)
    assert (await paid.entry()).held == cost(4 * prompts, completion)
    if stream:
        assert data_of(answer.text)[-1] == "[DONE]"
    else:
        assert answer.json()["usage"]["completion_tokens"] == completion


async def test_the_losers_of_best_of_are_charged(paid: Gateway):
    assert (await paid.complete(prompt=IDS, max_tokens=6, n=2, best_of=4)).status_code == 200
    await charged(paid, 4, 24)


async def test_a_prompt_alone_is_charged(paid: Gateway):
    answer = await paid.complete(prompt=IDS, max_tokens=0, echo=True, logprobs=1)
    assert answer.status_code == 200, answer.text
    entry = await paid.entry()
    assert (entry.charged, entry.usage) == (cost(4, 0), Usage(4, 0))


@streamed
async def test_a_broken_tool_choice_is_charged(text_side, tmp_path, engine, stream: bool):
    """422: the caller gets no call, and the tokens were made for it."""
    renderer = NativeRenderer(registry.BY_NAME["qwen3"], text_side.tokenizer)
    side = SimpleNamespace(tokenizer=text_side.tokenizer, renderer=renderer, context_length=8192)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
        "tool_choice": "required",
        "max_tokens": 9,
        "stream": stream,
    }
    async with gateway(tmp_path, engine, text_side=side, tenant=PAYS) as running:
        answer = await running.post("/v1/chat/completions", body)
        error = data_of(answer.text)[-1] if stream else answer.json()
        assert error["error"]["code"] == "tool_choice_broken"
        entry = await running.entry()
        assert (entry.state, entry.outcome) == (State.SETTLED, "tool_choice_broken")
        await charged(running, len(engine.requests[0].prompt), 9)


@streamed
@pytest.mark.parametrize("after", [0, 3])
async def test_an_engine_that_fails_is_not_charged(text_side, tmp_path, stream: bool, after: int):
    steps = [[260]] * after + [Failure(FailureKind.ENGINE_FAILED, "The engine died. Try again.")]
    engine = ScriptedEngine(lambda _: steps)
    async with gateway(tmp_path, engine, text_side=text_side, tenant=PAYS) as running:
        answer = await running.complete(stream=stream)
        if stream and after:
            assert data_of(answer.text)[-1]["error"]["code"] == "engine_failed"
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")
        entry = await running.entry()
        assert (entry.state, entry.charged, entry.outcome) == (State.RELEASED, 0, "engine_failed")
        assert await running.balance() == units("1.00")


@pytest.mark.covers("K-10")
@streamed
async def test_a_limit_is_lowered_and_holds(text_side, tmp_path, engine, stream: bool):
    """4 of prompt and 50 of output cost 0.000104: not one unit more is spent."""
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "0.000104"}) as running:
        answer = await running.complete(
            path="/tokens/v1/completions", prompt=IDS, max_tokens=100, stream=stream
        )
        assert answer.status_code == 200
        entry = await running.entry()
        assert (entry.charged, entry.held, entry.usage) == (104_000, 104_000, Usage(4, 50))
        assert engine.requests[0].max_tokens == 50
        assert await running.balance() == 0


async def test_openai_lowers_nothing(text_side, tmp_path, engine):
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "0.000104"}) as running:
        await running.refused(402, "insufficient_balance", prompt=IDS, max_tokens=51)
        assert not engine.requests
        assert (await running.complete(prompt=IDS, max_tokens=50)).status_code == 200


async def test_what_does_not_fit_costs_nothing(paid: Gateway):
    await paid.refused(400, "context_length_exceeded", prompt=[1] * 9000)
    await paid.refused(400, "invalid_request", prompt=IDS, temperature=9)
    assert not await paid.entries()


async def test_cached_tokens_cost_less(text_side, tmp_path):
    class Remembering(ScriptedEngine):
        async def generate(self, request):
            yield Chunk(cached_tokens=3)
            yield Chunk([ScoredToken(260)] * request.max_tokens, EngineFinish.LENGTH)

    async with gateway(tmp_path, Remembering([260] * 9), text_side=text_side, tenant=PAYS) as running:
        assert (await running.complete(prompt=IDS, max_tokens=2)).status_code == 200
        await charged(running, 4, 2, cached=3)


async def test_a_slow_reader_is_charged_for_no_more_than_was_made(text_side, tmp_path):
    """It reads nothing, then leaves: the engine had stopped with it."""
    engine = SlowEngine(260, 0)
    async with gateway(tmp_path, engine, text_side=text_side, tenant={"balance": "100"}) as running:
        async with running.caller(stream=True, max_tokens=8000, logprobs=5) as caller:
            caller.writer.transport.pause_reading()
            await until(lambda: engine.steps > 100)
            steps = -1
            while steps != engine.steps:
                steps = engine.steps
                await asyncio.sleep(0.1)
            assert steps < 8000
            caller.goes()
            entry = await running.entry()
        assert (entry.outcome, entry.usage.completion_tokens) == ("disconnected", engine.steps)


async def test_progress_is_marked(text_side, tmp_path):
    """So that after a crash what was made is charged."""
    engine = SlowEngine(260)
    async with gateway(tmp_path, engine, text_side=text_side, tenant=PAYS) as running:
        async with running.caller(stream=True, prompt=IDS, max_tokens=1000):
            await until(lambda: engine.steps > 3)
            await running.admission.gate.mark()
            [entry] = await running.entries()
            assert entry.state is State.HELD
            await running.authority.bury(running.admission.lease)
            [entry] = await running.entries()
            assert (entry.state, entry.estimated) == (State.EXPIRED, True)
            assert entry.charged == cost(4, entry.usage.completion_tokens) > cost(4, 1)
        await until(lambda: not list(running.admission.gate.running))
        assert [one.charged for one in await running.entries()] == [entry.charged]  # it ends once
