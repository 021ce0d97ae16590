"""Failover of a server with several HTTP processes: each learns by itself, the metrics sum over all."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer, free_port, start_server
from tests.http.harness import until
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

TOKEN = "an-admin-token-of-these-tests"
CONFIG = """
[server]
workers = 2
[routing]
breaker_failures = 2
breaker_open_s = 0.5
breaker_open_most_s = 0.5
[[providers]]
name = "ill"
protocol = "openai"
base_url = "{ill}"
[[providers]]
name = "several"
protocol = "openai"
base_urls = ["{gone}", "{well}"]
[[models]]
id = "m"
price = {{ input = "0", output = "0" }}
  [[models.deployments]]
  name = "first"
  provider = "ill"
  model = "theirs"
  [[models.deployments]]
  name = "second"
  provider = "several"
  model = "theirs"
"""


@pytest.fixture
def ill():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def well():
    with MockProvider() as provider:
        yield provider


@pytest.fixture
async def server(tmp_path: Path, ill: MockProvider, well: MockProvider, monkeypatch):
    monkeypatch.setenv("ONWARD_ADMIN_TOKEN", TOKEN)
    gone = f"http://127.0.0.1:{free_port()}/v1"
    config = CONFIG.format(ill=ill.base_url, gone=gone, well=well.base_url)
    running = start_server(tmp_path, config=config)
    try:
        await asyncio.to_thread(running.wait_ready)
        yield running
        assert await asyncio.to_thread(running.stop) == 0, running.log.read_text()
    finally:
        running.process.kill()
        await asyncio.to_thread(running.process.wait)


async def call(server: RunningServer) -> int:
    """A completion on a connection of its own, so that either process may get it."""
    body = {"model": "m", "prompt": "two words", "max_tokens": 5}
    async with httpx.AsyncClient(verify=False, timeout=20) as client:
        return (await client.post(f"{server.base_url}/v1/completions", json=body)).status_code


async def gauge(server: RunningServer, name: str) -> float:
    async with httpx.AsyncClient(verify=False, timeout=20) as client:
        text = (await client.get(f"{server.base_url}/metrics")).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def explained(server: RunningServer) -> dict:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "onward.cli.main", "models", "explain", "m", "--json"],
        *["--url", f"{server.base_url}/v1"],
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ONWARD_ADMIN_TOKEN": TOKEN},
    )
    said, _ = await process.communicate()
    return json.loads(said)


async def test_each_process_learns_and_the_metrics_sum(server: RunningServer, ill, well):
    ill.always(Behaviour(status=500))
    async with asyncio.timeout(60):
        while await gauge(server, 'onward_deployment_resting{deployment="first"}') < 2:
            assert await call(server) == 200
        while await gauge(server, 'onward_replica_resting{provider="several",replica="1"}') < 2:
            assert await call(server) == 200
    assert await gauge(server, 'onward_replica_resting{provider="several",replica="2"}') == 0
    for told in ("deployment=first", "provider=several replica=1"):
        await until(lambda name=told: server.log.read_text().count(f"{name} rests for 0.5 s") >= 2)
    told = await explained(server)
    assert told["process"] != server.process.pid, "a worker answers"
    assert [one["name"] for one in told["deployments"]] == ["first", "second"]
    ill.always(Behaviour())
    async with asyncio.timeout(60):
        while await gauge(server, 'onward_deployment_resting{deployment="first"}'):
            assert await call(server) == 200
            await asyncio.sleep(0.02)
    served = len(well.requests)
    assert {await call(server) for _ in range(10)} == {200}
    assert len(well.requests) == served, "the first one answers everything again"
