"""`onward serve` as processes: signals, deaths, workers, refusals to start. With the real model."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer, free_port, start_server

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the tests are about
MODEL = "smollm2-135m-instruct"
LONG = {
    "model": MODEL,
    "prompt": "Once upon a time",
    "max_tokens": 150,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


def children(pid: int) -> dict[int, str]:
    """The processes that a process started, and theirs, with their command lines."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found |= children(int(entry.name))
    return found


def named(pid: int, word: str) -> list[int]:
    return sorted(child for child, command in children(pid).items() if word in command)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], object], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@contextlib.contextmanager
def running(folder: Path, *options: str, config: str | None = None) -> Iterator[RunningServer]:
    server = start_server(folder, *options, config=config)
    try:
        server.wait_ready()
        yield server
    finally:
        left = children(server.process.pid)
        server.process.kill()
        server.process.wait()
        until(lambda: not any(alive(child) for child in left))


def complete(server: RunningServer, **body) -> httpx.Response:
    content = {
        "model": MODEL,
        "prompt": "The capital of France is",
        "max_tokens": 3,
        "temperature": 0,
        **body,
    }
    return httpx.post(f"{server.base_url}/v1/completions", json=content, timeout=60, verify=False)


def streamed(server: RunningServer, body: dict):
    """The answer to a completion, as it comes."""
    return httpx.stream("POST", f"{server.base_url}/v1/completions", json=body, timeout=60, verify=False)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A server keeps its store where it is started, and two of them cannot share one."""
    monkeypatch.chdir(tmp_path)


def test_a_dead_engine_ends_its_requests_and_comes_back(gguf, tmp_path):
    with running(tmp_path) as server:
        (engine,) = named(server.process.pid, "onward.engines.llama")
        events = []
        with streamed(server, LONG) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line:
                    events.append(line.removeprefix("data: "))
                if len(events) == 3:
                    os.kill(engine, signal.SIGKILL)
        last = json.loads(events[-1])
        assert last["error"]["code"] == "engine_failed"
        assert "[DONE]" not in events
        answer = complete(server)
        assert answer.status_code in (200, 503)
        server.wait_ready()
        assert complete(server).json()["choices"][0]["text"].strip()
        assert named(server.process.pid, "onward.engines.llama") != [engine]
        assert httpx.get(f"{server.base_url}/healthz", verify=False).status_code == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_finishes_what_runs(gguf, tmp_path, workers: str):
    with running(tmp_path, "--workers", workers) as server:
        left = children(server.process.pid)
        lines = []
        with streamed(server, LONG) as response:
            for line in response.iter_lines():
                lines.append(line)
                if len(lines) == 3:
                    server.process.send_signal(signal.SIGTERM)
        assert "data: [DONE]" in lines
        assert server.process.wait(30) == 0
        assert not any(alive(child) for child in left)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.base_url}/healthz", verify=False)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)])
def test_a_second_signal_ends_at_once(gguf, tmp_path, workers: str, signals):
    with running(tmp_path, "--workers", workers) as server:
        left = children(server.process.pid)
        endless = {**LONG, "max_tokens": 8000}
        lines = []
        with streamed(server, endless) as response:
            for line in response.iter_lines():
                if line:
                    lines.append(line.removeprefix("data: "))
                if len(lines) == 3:
                    server.process.send_signal(signals[0])
                if len(lines) == 6:
                    server.process.send_signal(signals[1])
        error = json.loads(lines[-1])["error"]
        assert error["code"] == "engine_failed"
        assert "shutting down" in error["message"]
        assert server.process.wait(20) == 0
        assert not any(alive(child) for child in left)
        (record,) = [line for line in server.log.read_text().splitlines() if "/v1/completions" in line]
        assert 'failure="engine_failed"' in record
        assert "disconnected" not in record


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_supervisor_leaves_nobody_behind(gguf, tmp_path, workers: str):
    with running(tmp_path, "--workers", workers) as server:
        left = children(server.process.pid)
        assert len(left) == (1 if workers == "1" else 3)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        until(lambda: not any(alive(child) for child in left))


def test_a_killed_worker_is_replaced_and_its_counts_stay(gguf, tmp_path):
    with running(tmp_path, "--workers", "2") as server:
        workers = named(server.process.pid, "onward.wiring.worker")
        assert len(workers) == 2
        for _ in range(6):
            assert complete(server).status_code == 200
        until(lambda: counted(server) == 6)  # an answer is counted after its last byte
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(set(named(server.process.pid, "onward.wiring.worker")) - set(workers)) == 1)
        for _ in range(6):
            until(lambda: answers(server))
        until(lambda: counted(server) >= 12)  # they are handed on a moment later
        assert server.stop() == 0


def answers(server: RunningServer) -> bool:
    """Whether a request is answered; one that the dead process had accepted is lost with it."""
    try:
        return complete(server).status_code == 200
    except httpx.TransportError:
        return False


def counted(server: RunningServer) -> int:
    text = httpx.get(f"{server.base_url}/metrics", verify=False).text
    line = f'onward_requests_total{{model="{MODEL}",status="200",surface="completions"}} '
    (value,) = [one.removeprefix(line) for one in text.splitlines() if one.startswith(line)]
    return int(float(value))


def refused(*options: str, config: Path | None = None) -> str:
    """What is said when a server refuses to start."""
    arguments = [
        sys.executable,
        "-m",
        "onward.cli.main",
        "serve",
        *([str(config)] if config else []),
        *options,
    ]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert not ended.stdout
    return ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_while_the_server_starts(gguf, tmp_path, workers: str):
    server = start_server(tmp_path, "--workers", workers)
    try:
        until(lambda: named(server.process.pid, "onward.engines.llama"))
        left = children(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0, server.log.read_text()
        assert not any(alive(child) for child in left)
    finally:
        server.process.kill()
        server.process.wait()


def test_signals_to_the_whole_group_are_for_the_supervisor(gguf, tmp_path):
    """What a service manager sends to every process does not cut what runs in a worker or an engine."""
    with running(tmp_path, "--workers", "2") as server:
        lines = []
        with streamed(server, LONG) as response:
            for line in response.iter_lines():
                lines.append(line)
                if len(lines) == 3:
                    for child in children(server.process.pid):
                        os.kill(child, signal.SIGTERM)
                        os.kill(child, signal.SIGINT)
        assert "data: [DONE]" in lines


def test_a_port_in_use(gguf):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused("--port", str(port))
        assert str(port) in message
        assert "--port" in message


def test_listening_to_others_needs_a_key(gguf, tmp_path):
    message = refused("--host", EVERYWHERE, "--port", str(free_port()))
    assert "onward keys create" in message
    assert "--no-auth" in message
    config = '[[keys]]\nname = "ci"\nsecret_env = "ONWARD_TEST_KEY"\n'
    os.environ["ONWARD_TEST_KEY"] = "on-secret-of-a-test"
    try:
        with running(tmp_path, "--host", EVERYWHERE, config=config) as server:
            assert complete(server).status_code == 401
            headers = {"authorization": "Bearer on-secret-of-a-test"}
            assert httpx.get(f"{server.base_url}/v1/models", headers=headers, verify=False).status_code == 200
            assert server.stop() == 0
            assert "on-secret" not in server.log.read_text()
    finally:
        del os.environ["ONWARD_TEST_KEY"]


def test_no_auth_warns(gguf, tmp_path):
    with running(tmp_path, "--host", EVERYWHERE, "--no-auth") as server:
        assert complete(server).status_code == 200
        assert server.stop() == 0
        assert "no key is needed" in server.log.read_text()


def test_a_file_that_is_no_model(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 100)
    message = refused("--model", str(bad), "--port", str(free_port()))
    assert "bad.gguf" in message
