"""The embedded engine as a process: its queue, its cancellations, its deaths."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onward.core.failure import Failure, FailureKind
from onward.engines.llama.client import LlamaEngine
from onward.engines.llama.process import FAILURES_IN_A_ROW, pause
from onward.engines.protocol import EngineState

from .conftest import QUEUE, SLOTS, collect, ids, prompt, request

LONG = 900
"""More tokens than any of these tests waits for."""


async def test_cancelling_frees_the_slot_running_prefilling_or_waiting(embedded, eventually):
    engine = embedded.client
    jobs = [
        asyncio.create_task(collect(engine, request(prompt(300, n * 500), max_tokens=LONG))) for n in range(6)
    ]
    await eventually(lambda: engine.status().running == SLOTS and engine.status().waiting == 2)
    for job in jobs:
        job.cancel()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await eventually(lambda: engine.status().running == 0 and engine.status().waiting == 0)


async def test_a_lost_connection_cancels_its_requests(embedded, eventually):
    other = LlamaEngine(embedded.socket_path, start_wait=30)
    job = asyncio.create_task(collect(other, request(max_tokens=LONG)))
    await eventually(lambda: other.status().running == 1)
    await other.close()
    with pytest.raises(Failure) as caught:
        await job
    assert caught.value.kind is FailureKind.ENGINE_FAILED
    await collect(embedded.client, request(max_tokens=1))
    await eventually(lambda: embedded.client.status().running == 0)


async def test_a_full_queue_refuses_and_says_when_to_come_back(embedded, eventually):
    engine = embedded.client
    jobs = [asyncio.create_task(collect(engine, request(max_tokens=LONG))) for _ in range(SLOTS + QUEUE)]
    await eventually(lambda: engine.status().waiting == QUEUE)
    with pytest.raises(Failure) as caught:
        await collect(engine, request())
    assert caught.value.kind is FailureKind.ENGINE_FULL
    assert caught.value.retry_after >= 1
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert len(ids(await collect(engine, request()))) == 8


async def test_decoding_goes_on_while_a_long_prompt_is_prefilled(embedded):
    """Between the first and the last chunk of a long prompt, a running request gets tokens."""
    engine = embedded.client
    running = engine.generate(request(max_tokens=LONG))
    await anext(running)
    long = asyncio.create_task(collect(engine, request(prompt(320, 30000), max_tokens=1)))
    during = 0
    while not long.done():
        during += len((await anext(running)).tokens)
    await running.aclose()
    await long
    assert during >= 4  # it has five chunks


async def test_a_short_prompt_does_not_wait_for_a_long_one(embedded):
    engine = embedded.client
    long = asyncio.create_task(collect(engine, request(prompt(400, 31000), max_tokens=1)))
    await asyncio.sleep(0)
    assert len(ids(await collect(engine, request(max_tokens=1)))) == 1
    assert not long.done()
    await long


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"ids": [1, 49152]}, FailureKind.INVALID_REQUEST, "prompt"),
        ({"ids": [-1]}, FailureKind.INVALID_REQUEST, "prompt"),
        ({"ids": []}, FailureKind.INVALID_REQUEST, "prompt"),
        ({"ids": [1] * 1025}, FailureKind.CONTEXT_LENGTH_EXCEEDED, "prompt"),
        ({"stop_token_ids": [99999]}, FailureKind.INVALID_REQUEST, "stop_token_ids"),
        ({"adapter": "unknown"}, FailureKind.INVALID_REQUEST, "adapter"),
    ],
)
async def test_what_would_break_the_library_is_refused(embedded, fields, kind, param):
    with pytest.raises(Failure) as caught:
        await collect(embedded.client, request(**fields))
    assert (caught.value.kind, caught.value.param) == (kind, param)


async def test_a_stuck_engine_is_ended_and_the_next_ones_work(make_embedded, eventually):
    """A process that gives no sign of life is as good as dead, though it does not end by itself."""
    async with make_embedded() as engine:
        client = LlamaEngine(engine.socket_path, start_wait=30, stall_after=5)
        job = asyncio.create_task(collect(client, request(max_tokens=LONG)))
        await eventually(lambda: client.status().running == 1)
        stuck = engine.process.pid
        os.kill(stuck, signal.SIGSTOP)
        with pytest.raises(Failure) as caught:
            await job
        assert caught.value.kind is FailureKind.ENGINE_FAILED
        assert len(ids(await collect(client, request()))) == 8
        assert engine.process.pid != stuck
        await client.close()


def test_only_deaths_in_a_row_make_the_next_child_wait():
    assert [pause(failures) for failures in (0, 1, 2, 3, 4, 20)] == [0, 0, 0.5, 1, 2, 30]


async def test_a_child_that_was_ready_for_long_is_started_again_at_once(make_embedded, monkeypatch):
    """However often: such deaths are no sign of a fault that stays."""
    paused: list[float] = []

    def note(failures: int) -> float:
        paused.append(pause(failures))
        return 0.0

    monkeypatch.setattr("onward.engines.llama.process.pause", note)
    async with make_embedded() as engine:
        await engine.process.wait_settled()
        for steady, expected in ((-1.0, [0, 0]), (1000.0, [0, 0.5])):
            monkeypatch.setattr("onward.engines.llama.process.STEADY", steady)
            paused.clear()
            for _ in expected:
                child = engine.process.pid
                os.kill(child, signal.SIGKILL)
                async with asyncio.timeout(30):
                    while engine.process.pid in (child, None):
                        await asyncio.sleep(0.01)
                    await engine.process.wait_settled()
            assert paused == expected


async def test_signals_are_not_for_the_child(make_embedded):
    async with make_embedded() as engine:
        await engine.process.wait_settled()
        child = engine.process.pid
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGINT)
        assert len(ids(await collect(engine.client, request()))) == 8
        assert engine.process.pid == child


async def test_a_kill_ends_running_requests_and_the_next_ones_work(make_embedded, eventually):
    async with make_embedded() as engine:
        client = engine.client
        jobs = [asyncio.create_task(collect(client, request(max_tokens=LONG))) for _ in range(SLOTS + 2)]
        await eventually(lambda: client.status().running == SLOTS)
        killed = engine.process.pid
        os.kill(killed, signal.SIGKILL)
        for result in await asyncio.gather(*jobs, return_exceptions=True):
            assert isinstance(result, Failure)
            assert result.kind is FailureKind.ENGINE_FAILED
        assert len(ids(await collect(client, request()))) == 8
        assert engine.process.pid != killed
        assert engine.process.restarts == 1
        assert client.status().restarts == 1


async def test_requests_wait_for_an_engine_that_starts_but_not_for_ever(make_embedded):
    async with make_embedded() as engine:
        assert engine.client.status().state is EngineState.STARTING
        assert len(ids(await collect(engine.client, request()))) == 8
    impatient = LlamaEngine(engine.socket_path, start_wait=0.05)
    with pytest.raises(Failure) as caught:
        await collect(impatient, request())
    assert caught.value.kind is FailureKind.ENGINE_STARTING
    assert caught.value.retry_after >= 1
    await impatient.close()


async def test_a_file_that_is_no_model_fails_with_the_reason(make_embedded, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    async with make_embedded(model_path=str(broken)) as engine:
        assert await engine.process.wait_settled() is EngineState.FAILED
        assert str(broken) in engine.process.detail
        assert engine.process.restarts == 0
        with pytest.raises(Failure) as caught:
            await collect(engine.client, request())
        assert caught.value.kind is FailureKind.ENGINE_FAILED
        assert str(broken) in caught.value.message
        assert engine.client.status().state is EngineState.FAILED


async def test_a_child_that_always_dies_is_not_started_for_ever(make_embedded, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    async with make_embedded() as engine:
        assert await engine.process.wait_settled() is EngineState.FAILED
        assert engine.process.restarts == FAILURES_IN_A_ROW - 1
        assert engine.process.detail


async def test_it_ends_with_its_supervisor(gguf, tmp_path, eventually):
    """The supervisor is killed, so it cannot say goodbye."""
    code = (
        "import asyncio, sys\n"
        "from onward.engines.llama.process import EngineProcess\n"
        "from onward.engines.llama.settings import LlamaSettings\n"
        "async def main():\n"
        "    process = EngineProcess(LlamaSettings(model_path=sys.argv[1], context_length=256), sys.argv[2])\n"
        "    await process.start()\n"
        "    await process.wait_settled()\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(gguf), str(tmp_path / "e.sock")], stdout=subprocess.PIPE, text=True
    )
    child = int(supervisor.stdout.readline())
    assert _alive(child)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    await eventually(lambda: not _alive(child))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_client_needs_neither_numpy_nor_the_library():
    code = (
        "import sys, onward.engines.llama.client, onward.engines.llama.process\n"
        "print([name for name in ('numpy', 'cffi', 'xllamacpp') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


async def test_it_opens_no_port(embedded):
    await collect(embedded.client, request(max_tokens=1))
    proc = Path(f"/proc/{embedded.process.pid}")
    links = {str(entry.readlink()) for entry in (proc / "fd").iterdir()}
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        rows = (proc / "net" / table).read_text().splitlines()[1:]
        assert inodes.isdisjoint(row.split()[9] for row in rows)


async def test_it_sleeps_when_idle(embedded, eventually):
    """No computing and no waking: the process's counters stand still."""
    await collect(embedded.client, request(max_tokens=1))
    await eventually(lambda: embedded.client.status().running == 0)
    await asyncio.sleep(0.3)

    def counters() -> list[str]:
        lines = Path(f"/proc/{embedded.process.pid}/status").read_text().splitlines()
        return [line for line in lines if "ctxt_switches" in line]

    before = counters()
    await asyncio.sleep(1)
    assert counters() == before
