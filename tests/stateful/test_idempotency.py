"""Named requests under everything that can happen to them, in any order: one call, one charge, equal bytes.

`ONWARD_EXAMPLES` sets how many histories are tried (a few by default).
"""

import asyncio
import os
import shutil
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from onward.admission.ledger import State
from onward.core.failure import Failure, FailureKind
from onward.core.generate import Chunk, EngineFinish, ScoredToken
from onward.engines.scripted import ScriptedEngine
from onward.http.recording import Recording
from onward.stores.limits import MemoryLimits
from onward.stores.postgres import PostgresStore
from onward.stores.sqlite import SqliteStore
from onward.wiring.authority import Authority
from tests.contract.stores import PLACES, POSTGRES, SCHEMA, abandon
from tests.http.gateway import Caller, Gateway, cost, gateway, units
from tests.http.harness import until
from tests.http.test_idempotency import events_of

EXAMPLES = int(os.environ.get("ONWARD_EXAMPLES", "8"))
STEPS = 25
PROMPT = [1, 2, 3]
NAMES = st.sampled_from(["a", "b", "c"])
INDEX = st.integers(0, 9)
BODIES = st.sampled_from([(500, False), (500, True), (501, True)])


class Run:
    """A request as the engine has it: it does what it is told."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[EngineFinish | Failure | None] = asyncio.Queue()
        self.made = 0


class Engine(ScriptedEngine):
    def __init__(self) -> None:
        super().__init__([])
        self.runs: list[Run] = []

    def status(self):
        return msgspec.structs.replace(super().status(), slots=64)

    async def generate(self, request):
        run = Run()
        self.runs.append(run)
        yield Chunk(cached_tokens=0)
        while True:
            order = await run.orders.get()
            if isinstance(order, Failure):
                raise order
            run.made += 1
            yield Chunk([ScoredToken(260)], order)
            if order is not None:
                return


class Name:
    """What we know of a name that is taken."""

    def __init__(self, body: tuple[int, bool], run: Run) -> None:
        self.body = body
        self.run: Run | None = run
        """None: it was answered."""
        self.callers: list[Caller] = []
        self.answer: bytes | None = None
        """What everybody gets; None: nobody has seen it yet."""
        self.charged = 0


class IdempotencyMachine(RuleBasedStateMachine):
    def __init__(self, kind: str, text_side: Any) -> None:
        super().__init__()
        self.kind, self.text_side = kind, text_side
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.files = Path(self.folder.name)
        self.place = PLACES[kind](self.files)
        self.runner.run(self.place.__aenter__())
        self.engine = Engine()
        self.runs = 0
        self.crashes = 0
        self.names: dict[str, Name] = {}
        self.callers: list[AbstractAsyncContextManager[Caller]] = []
        self.runner.run(self.start())

    def teardown(self) -> None:
        self.runner.run(self.finish())
        self.runner.close()
        self.folder.cleanup()

    # What happens.

    @rule(name=NAMES, body=BODIES)
    def ask(self, name: str, body: tuple[int, bool]) -> None:
        self.runner.run(self.asked(name, body))

    @precondition(lambda self: self.running())
    @rule(index=INDEX, count=st.integers(1, 3))
    def make_tokens(self, index: int, count: int) -> None:
        for _ in range(count):
            self.runner.run(self.token(self.one_of(self.running(), index)))

    @precondition(lambda self: self.running())
    @rule(index=INDEX)
    def end(self, index: int) -> None:
        self.runner.run(self.ended(self.one_of(self.running(), index)))

    @precondition(lambda self: self.running())
    @rule(index=INDEX)
    def fail(self, index: int) -> None:
        """A fault of ours, before or after output: it is not charged, and binds nothing."""
        self.runner.run(self.failed(self.one_of(self.running(), index)))

    @precondition(lambda self: self.running())
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        """What was made by then is charged: then this is the answer."""
        self.runner.run(self.cancelled(self.one_of(self.running(), index)))

    @precondition(lambda self: self.followed())
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        name = self.one_of(self.followed(), index)
        callers = self.names[name].callers
        self.runner.run(self.left(name, callers.pop(index % len(callers))))

    @rule()
    def crash(self) -> None:
        self.runner.run(self.crashed())

    @rule()
    def restart(self) -> None:
        self.runner.run(self.restarted())

    # What holds after every step.

    @invariant()
    def one_call_and_one_charge_for_each_answer(self) -> None:
        entries = self.runner.run(self.gateway.entries())
        answered = [known for known in self.names.values() if known.run is None]
        settled = sorted(entry.charged for entry in entries if entry.state is State.SETTLED)
        assert settled == sorted(known.charged for known in answered)
        assert all(not entry.charged for entry in entries if entry.state is not State.SETTLED)
        assert len(self.engine.runs) == len(entries) == self.runs
        assert sum(entry.state is State.HELD for entry in entries) == len(self.names) - len(answered)
        assert self.runner.run(self.gateway.balance()) >= 0

    # How it is done.

    async def start(self) -> None:
        self.context = gateway(
            self.files,
            self.engine,
            text_side=self.text_side,
            tenant={"balance": "1000.00"},
            store=self.open_store,
        )
        self.gateway: Gateway = await self.context.__aenter__()

    async def open_store(self, _: Any):
        if self.kind == "postgres":
            return await PostgresStore.open(POSTGRES, schema=SCHEMA)
        return await SqliteStore.open(self.files / "store.db")

    async def asked(self, name: str, body: tuple[int, bool]) -> None:
        most, stream = body
        context = self.gateway.caller(
            headers={"idempotency-key": name}, prompt=PROMPT, max_tokens=most, stream=stream
        )
        caller = await context.__aenter__()
        self.callers.append(context)
        known = self.names.get(name)
        if known is None:
            self.runs += 1
            await until(lambda: len(self.engine.runs) == self.runs)
            known = self.names[name] = Name(body, self.engine.runs[-1])
        elif known.body != body:
            assert " 409 " in await caller.reads_all()
            return
        elif known.run is None:
            text = await caller.reads_all()
            assert "idempotent-replayed: true" in text
            self.same(known, caller)
            return
        known.callers.append(caller)
        await until(lambda: len(self.recording(name)._followers) == len(known.callers))
        await self.caught_up(known)

    async def token(self, name: str) -> None:
        known = self.names[name]
        run = known.run
        assert run is not None
        made = run.made + 1
        run.orders.put_nowait(None)
        grant = self.grant(name)
        await until(lambda: grant.usage.completion_tokens == made)
        await self.caught_up(known)

    async def ended(self, name: str) -> None:
        known = self.names[name]
        assert known.run is not None
        known.run.orders.put_nowait(EngineFinish.LENGTH)
        known.charged = cost(len(PROMPT), known.run.made + 1)
        await self.answered(name)
        if known.answer is not None:
            assert known.body[1] == known.answer.endswith(b"data: [DONE]\n\n")

    async def failed(self, name: str) -> None:
        known = self.names[name]
        assert known.run is not None
        known.run.orders.put_nowait(Failure(FailureKind.ENGINE_FAILED, "The engine died. Try again."))
        await self.nothing_came_of(name, "The engine died")

    async def cancelled(self, name: str) -> None:
        known, grant = self.names[name], self.grant(name)
        assert known.run is not None
        known.charged = cost(len(PROMPT), known.run.made)
        assert self.gateway.admission.gate.cancel(grant.demand.request_id)
        if known.run.made:
            await self.answered(name)
            assert known.answer is None or b"cancelled this request" in known.answer
        else:
            await self.nothing_came_of(name, "cancelled this request")

    async def left(self, name: str, caller: Caller) -> None:
        recording, count = self.recording(name), len(self.names[name].callers)
        caller.goes()
        await until(lambda: len(recording._followers) == count)

    async def crashed(self) -> None:
        """The process is killed: what was written until then is what the next one finds."""
        await self.gateway.admission.gate.mark()  # as once a second
        self.crashes += 1
        lease, store = self.gateway.admission.lease, self.gateway.store
        if isinstance(store, PostgresStore):
            abandon(store)
        else:
            files = Path(self.folder.name) / f"after-{self.crashes}"
            files.mkdir()
            for file in self.files.glob("store.db*"):
                shutil.copy(file, files / file.name)
            self.files = files
        await self.stop()
        await self.start()
        await Authority(self.gateway.config, self.gateway.store, MemoryLimits(time.monotonic)).bury(lease)

    async def restarted(self) -> None:
        """In a hurry: what runs is told so."""
        callers = [caller for known in self.names.values() if known.run for caller in known.callers]
        await self.gateway.http.drain(0)
        for caller in callers:
            assert "The server is shutting down" in await caller.reads_all()
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        for context in self.callers:
            await context.__aexit__(None, None, None)
        self.callers.clear()
        await self.context.__aexit__(None, None, None)
        self.names = {name: known for name, known in self.names.items() if known.run is None}

    async def finish(self) -> None:
        for name in list(self.names):
            if name in self.running():
                await self.ended(name)
            for _ in range(2):
                await self.asked(name, self.names[name].body)
        await self.gateway.idle()
        spent = sum(known.charged for known in self.names.values())
        assert await self.gateway.balance() == units("1000.00") - spent
        await self.stop()
        await self.place.__aexit__(None, None, None)

    # What we expect.

    def running(self) -> list[str]:
        return [name for name, known in self.names.items() if known.run is not None]

    def followed(self) -> list[str]:
        return [name for name in self.running() if self.names[name].callers]

    def one_of(self, names: list[str], index: int) -> str:
        return names[index % len(names)]

    def recording(self, name: str) -> Recording:
        return self.gateway.admission.recordings["ci", name]

    def grant(self, name: str):
        request_id = self.recording(name).claim.request_id
        [grant] = [one for one in self.gateway.admission.gate.running if one.demand.request_id == request_id]
        return grant

    async def caught_up(self, known: Name) -> None:
        """Whoever follows a stream has read all that was made."""
        assert known.run is not None
        if known.body[1]:
            for caller in known.callers:
                await caller.reads(known.run.made)

    async def answered(self, name: str) -> None:
        known = self.names[name]
        for caller in known.callers:
            await caller.reads_all()
            self.same(known, caller)
        await self.over(name)
        known.run = None
        known.callers.clear()

    async def nothing_came_of(self, name: str, said: str) -> None:
        for caller in self.names[name].callers:
            assert said in await caller.reads_all()
        await self.over(name)
        del self.names[name]

    async def over(self, name: str) -> None:
        await until(lambda: ("ci", name) not in self.gateway.admission.recordings)

    def same(self, known: Name, caller: Caller) -> None:
        head, _, body = caller.text.partition("\r\n\r\n")
        answer = events_of(caller) if "transfer-encoding: chunked" in head else body.encode()
        known.answer = known.answer or answer
        assert answer == known.answer


@pytest.mark.covers("P-8", "O-6")
@pytest.mark.parametrize("kind", sorted(PLACES))
def test_a_named_request_is_one_call_one_charge_and_one_answer(kind: str, text_side):
    run_state_machine_as_test(
        lambda: IdempotencyMachine(kind, text_side),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
