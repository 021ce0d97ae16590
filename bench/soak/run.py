"""Hold a server under fire: clients that hang up or send nonsense, and an engine that is killed.

python bench/soak/run.py --seconds 300

Starts `onward serve`, lets eight clients loose on it and kills its engine process now and then. Fails
if any request hangs, any answer is malformed, a seeded request answers differently than before, or
memory or open files grow after the warm-up. Linux only: it reads /proc.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent))
from clients import Clients, FaultError

WARM_UP = 0.3
"""The part of the time after which memory must not grow."""
GROWTH = 1.05
READY_S = 60.0
SAMPLE_S = 0.5


class Server:
    """An `onward serve` under test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"

    async def start(self, options: list[str]) -> None:
        """Start it on a free port and wait until it is ready."""
        command = [sys.executable, "-m", "onward.cli.main", "serve", "--port", "0", *options]
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        async with asyncio.timeout(READY_S):
            line = (await self.process.stdout.readline()).decode()
        found = re.search(r"OPENAI_BASE_URL=(\S+)", line)
        if not found:
            raise FaultError(f"the server does not start: {self.log.read_text()[-2000:]}")
        self.base_url = found[1]
        self.origin = self.base_url.rpartition("/v1")[0]

    def engine(self) -> int | None:
        """The process of the engine."""
        for pid, parent, command in processes():
            if parent == self.process.pid and "onward.engines.llama" in command:
                return pid
        return None

    async def stop(self) -> int:
        """SIGTERM; answers the exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        async with asyncio.timeout(60):
            return await self.process.wait()


def processes():
    """Every process: its ID, its parent's, its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(entry.name), parent, (entry / "cmdline").read_text().replace("\0", " ")
            except (OSError, IndexError):
                continue


def memory_mb(pid: int) -> float:
    """Resident memory of a process; 0 if it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_files(pid: int) -> int:
    """How many files and sockets a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Watch:
    """Samples memory until it is stopped: the peaks before and after the warm-up."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.server = server
        self.warm_up = seconds * WARM_UP
        self.peaks = {"http": [0.0, 0.0], "engine": [0.0, 0.0]}
        self.tenths: list[float] = []
        """Memory of the HTTP process at the end of each tenth of the time."""
        self.every = seconds / 10

    async def run(self) -> None:
        began = time.monotonic()
        while True:
            if time.monotonic() >= began + self.every * (len(self.tenths) + 1):
                self.tenths.append(memory_mb(self.server.process.pid))
            late = time.monotonic() > began + self.warm_up
            for name, pid in (("http", self.server.process.pid), ("engine", self.server.engine())):
                if pid is not None:
                    self.peaks[name][late] = max(self.peaks[name][late], memory_mb(pid))
            await asyncio.sleep(SAMPLE_S)

    def faults(self) -> list[str]:
        return [
            f"memory of {name} grew from {early:.1f} to {late:.1f} MB after the warm-up"
            for name, (early, late) in self.peaks.items()
            if late > early * GROWTH
        ]


async def kill_engines(server: Server, seconds: float, chance: random.Random, counts: Counter[str]) -> None:
    """Kill the engine at random moments; each time the server must be ready again soon."""
    end = time.monotonic() + seconds
    async with httpx.AsyncClient() as client:
        while True:
            pause = chance.uniform(6, 10) if seconds < 60 else chance.uniform(20, 40)
            if time.monotonic() + pause > end - 5:
                return
            await asyncio.sleep(pause)
            pid = server.engine()
            if pid is None:
                continue
            os.kill(pid, signal.SIGKILL)
            counts["kills of the engine"] += 1
            await ready(client, server)


async def ready(client: httpx.AsyncClient, server: Server) -> None:
    """Wait until the server is ready. Raises `FaultError`."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if server.process.returncode is not None:
            raise FaultError(f"the server ended: {server.log.read_text()[-2000:]}")
        if (await client.get(f"{server.origin}/readyz", timeout=10)).status_code == 200:
            return
        await asyncio.sleep(0.1)
    raise FaultError(f"the server is not ready {READY_S:.0f} s after its engine was killed")


async def quiet(server: Server) -> list[str]:
    """When all is over, nothing may still run, and the next requests are answered."""
    async with httpx.AsyncClient(timeout=60) as client:
        await ready(client, server)
        end = time.monotonic() + 10
        while (text := busy(await client.get(f"{server.origin}/metrics"))) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        body = {"model": "smollm2-135m-instruct", "prompt": "One, two,", "max_tokens": 4}
        last = await asyncio.gather(
            *(client.post(f"{server.base_url}/completions", json=body) for _ in range(8))
        )
    faults = [f"still running when all clients have gone: {text}"] if text else []
    return faults + [
        f"afterwards a plain request got {one.status_code}" for one in last if one.status_code != 200
    ]


def busy(metrics: httpx.Response) -> str:
    """Gauges that say that something runs."""
    found = re.findall(
        r"^(onward_engine_(?:running|waiting)\{[^}]*\}) ([^0].*|0\.0*[1-9].*)$", metrics.text, re.MULTILINE
    )
    return ", ".join(f"{name} {value}" for name, value in found)


async def soak(chosen: argparse.Namespace, folder: Path) -> int:
    """Run it all; answers the exit code."""
    server = Server(folder)
    await server.start([])
    counts: Counter[str] = Counter()
    faults: list[str] = []
    clients = Clients(server.base_url, chosen.seed, counts, faults)
    watch = Watch(server, chosen.seconds)
    try:
        await clients.learn()
        files = open_files(server.process.pid)
        watching = asyncio.create_task(watch.run())
        killing = asyncio.create_task(
            kill_engines(server, chosen.seconds, random.Random(chosen.seed), counts)
        )
        await clients.run(chosen.clients, chosen.seconds)
        await killing
        watching.cancel()
        faults += await quiet(server)
        faults += watch.faults()
        if (now := open_files(server.process.pid)) > files + 8:
            faults.append(f"open files grew from {files} to {now}")
    except (FaultError, OSError, httpx.TransportError) as error:
        faults.append(f"{type(error).__name__}: {error}")
    finally:
        code = await server.stop()
    if code != 0:
        faults.append(f"the server ended with exit code {code}")
    log = server.log.read_text(errors="replace")
    faults += (
        [f"the log holds a traceback:\n{log[log.index('Traceback') :][:3000]}"] if "Traceback" in log else []
    )
    report(chosen, counts, watch, faults)
    return 1 if faults else 0


def report(chosen: argparse.Namespace, counts: Counter[str], watch: Watch, faults: list[str]) -> None:
    """Print what happened."""
    print(f"{chosen.clients} clients, {chosen.seconds:g} s, seed {chosen.seed}")
    for name, count in sorted(counts.items()):
        print(f"  {count:6}  {name}")
    for name, (early, late) in watch.peaks.items():
        print(f"  memory of {name}: at most {early:.1f} MB in the warm-up, {late:.1f} MB after it")
    print("  memory of http over time:", " ".join(f"{value:.1f}" for value in watch.tenths))
    for fault in faults[:20]:
        print(f"FAULT: {fault}")
    print("failed" if faults else "passed")


def main() -> int:
    """Read the options, run."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--seconds", type=float, default=300)
    reader.add_argument("--clients", type=int, default=8)
    reader.add_argument("--seed", type=int, default=1, help="of the choices that clients make")
    chosen = reader.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(soak(chosen, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
