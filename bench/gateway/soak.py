"""Memory of the gateway over 100,000 requests, and 5,000 slow streams at once on one worker.

    python bench/gateway/soak.py [--requests 100000] [--streams 5000]

Everything is on: a key with limits, a prepaid tenant, the ledger in SQLite.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "serve"))

import measure  # noqa: E402
import run  # noqa: E402

MB = 1e6


def slow_body(folder: Path, gap_us: int) -> Path:
    """A stream whose events come `gap_us` apart, about."""
    body = folder / "slow.json"
    message = {"role": "user", "content": f"[[gap={gap_us}]] Say hello slowly."}
    body.write_text(json.dumps({**run.BODY, "messages": [message], "stream": True}))
    return body


def many_requests(gateway: run.Running, folder: Path, count: int) -> bool:
    # Caches of the ledger fill first: 2 MB of pages, and the index of a log of up to 64 MiB.
    run.load(folder, gateway.port, "-n", count // 2, "-c", 64, stream=False)
    before = measure.memory(gateway.process.pid)
    run.load(folder, gateway.port, "-n", count, "-c", 64, stream=False)
    after = measure.memory(gateway.process.pid)
    drift = (after - before) / before
    print(f"memory: {before / MB:.1f} MB, after {count} requests {after / MB:.1f} MB ({drift:+.1%})")
    return drift < 0.05


def many_streams(gateway: run.Running, folder: Path, count: int) -> bool:
    peak = 0
    running = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not running.is_set():
            peak = max(peak, measure.memory(gateway.process.pid))
            time.sleep(0.5)

    before = measure.memory(gateway.process.pid)
    watcher = threading.Thread(target=watch)
    watcher.start()
    spent = measure.cpu_seconds(gateway.process.pid)
    done = subprocess.run(
        run.pinned(
            1,
            folder / "load",
            *("-p", gateway.port, "-k", run.SECRET, "-f", slow_body(folder, 200_000), "-T", 300),
            *("-s", "-n", count, "-c", count),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    running.set()
    watcher.join()
    result = json.loads(done.stdout)
    spent = measure.cpu_seconds(gateway.process.pid) - spent
    print(
        f"{count} streams at once of {run.EVENTS} events: {result['ok']} whole, {result['err']} not, in"
        f" {result['secs']:.0f} s; {spent:.1f} s of CPU; memory {before / MB:.0f} MB, at most"
        f" {peak / MB:.0f} MB"
    )
    return result["ok"] == count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-") as place:
        folder = Path(place)
        upstream, provider = run.start_tools(folder)
        mode = run.Mode("everything", store="sqlite:{folder}/soak.db", money=True)
        gateway = run.start_onward(mode, upstream, folder)
        try:
            run.wait_for(gateway, "/readyz")
            good = many_requests(gateway, folder, options.requests)
            good = many_streams(gateway, folder, options.streams) and good
        finally:
            gateway.process.terminate()
            gateway.process.wait(60)
            provider.terminate()
    print("passed" if good else "failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
