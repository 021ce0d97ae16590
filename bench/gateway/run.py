"""Onward as a gateway beside nginx and LiteLLM: the same provider, the same load, in turn.

    python bench/gateway/run.py [--rounds 3] [--requests 4000] [--litellm PYTHON] [--only MODE,...]

`upstream.c` answers as a provider, `load.c` asks: both are far faster than what is measured. Each
gateway runs on the first core alone, everything else on the second. Rounds alternate, because a
shared machine is never equally fast for long; figures are medians. CPU time is that of the gateway's
processes, all together. nginx passes bytes on and does nothing else; LiteLLM's proxy needs a Python
that has `litellm[proxy]`. PostgreSQL and Redis are taken from DATABASE_URL and REDIS_URL.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "serve"))

import measure  # noqa: E402

SECRET = "on-a-key-of-this-benchmark-only"
MODEL = "mock-model"
BODY = {
    "model": MODEL,
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say hello to the mock."}],
}
EVENTS = 100
SINGLE_US = 10_000
"""Between events of a stream that come one at a time, as those of real models do."""

NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048; keepalive_requests 1000000;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

ONWARD = """
[server]
port = {port}
workers = {workers}
[dialects]
openai = "/v1"
[store]
url = "{store}"
limits = "{limits}"
durability = "{durability}"
[[providers]]
name = "mock"
protocol = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
connections = 10000
[[models]]
id = "{model}"
price = {{ input = "0.10", output = "0.40" }}
  [[models.deployments]]
  name = "bought"
  provider = "mock"
  model = "mock-upstream-name"
{money}
"""

MONEY = """
[[tenants]]
name = "acme"
balance = "1000000.00"
monthly_budget = "1000000.00"
[[keys]]
name = "bench"
tenant = "acme"
sha256 = "{digest}"
monthly_cap = "1000000.00"
requests_per_minute = 100000000
tokens_per_minute = 100000000000
concurrency = 10000
"""

LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{ model: openai/mock, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-none }}
litellm_settings: {{ telemetry: false, num_retries: 0 }}
general_settings: {{ master_key: {secret} }}
"""


@dataclass
class Mode:
    """A way to run a gateway."""

    name: str
    workers: int = 1
    store: str = "none"
    limits: str = "memory"
    durability: str = "process"
    money: bool = False
    named: bool = False
    """Whether every request has an `Idempotency-Key` of its own."""


@dataclass
class Running:
    """A gateway under test and what was measured of it."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    named: bool = False
    figures: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(core: int, *command: object) -> list[str]:
    return ["taskset", "-c", str(core), *map(str, command)]


def modes() -> list[Mode]:
    postgres = os.environ.get("DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
    redis = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
    return [
        Mode("onward, nothing on"),
        Mode("onward, everything on", store="sqlite:{folder}/process.db", money=True),
        Mode("onward, named", store="sqlite:{folder}/named.db", money=True, named=True),
        Mode("onward, disk", store="sqlite:{folder}/disk.db", durability="disk", money=True),
        Mode("onward, PostgreSQL and Redis", store=postgres, limits=redis, money=True),
        Mode("onward, everything on, 2 workers", workers=2, store="sqlite:{folder}/two.db", money=True),
    ]


def start_tools(folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Build the provider and the load, and start the provider; its port."""
    for source, target in (("upstream.c", "upstream"), ("load.c", "load")):
        subprocess.run(["gcc", "-O2", "-o", folder / target, HERE / source, "-lm"], check=True)
    upstream = free_port()
    return upstream, subprocess.Popen(pinned(1, folder / "upstream", "-p", upstream, "-n", EVENTS))


def start_onward(mode: Mode, upstream: int, folder: Path) -> Running:
    port = free_port()
    config = folder / f"{mode.name.replace(' ', '_').replace(',', '')}.toml"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    config.write_text(
        ONWARD.format(
            port=port,
            workers=mode.workers,
            store=mode.store.format(folder=folder),
            limits=mode.limits,
            durability=mode.durability,
            upstream=upstream,
            model=MODEL,
            money=MONEY.format(digest=digest) if mode.money else "",
        )
    )
    command = [sys.executable, "-m", "onward.cli.main", "serve", config]
    with (folder / "onward.log").open("ab") as log:
        process = subprocess.Popen(
            pinned(0, *command) if mode.workers == 1 else list(map(str, command)),
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    return Running(mode.name, port, process, mode.named)


def start_nginx(upstream: int, folder: Path) -> Running:
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
    process = subprocess.Popen(pinned(0, "nginx", "-c", config, "-e", folder / "nginx.err"))
    return Running("nginx", port, process)


def start_litellm(python: str, upstream: int, folder: Path) -> Running:
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(LITELLM.format(model=MODEL, upstream=upstream, secret=SECRET))
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            pinned(
                0, Path(python).parent / "litellm", "--config", config, "--port", port, "--host", "127.0.0.1"
            ),
            stdout=log,
            stderr=log,
            env={
                **{name: one for name, one in os.environ.items() if name != "DATABASE_URL"},
                "LITELLM_LOG": "ERROR",
            },
        )
    return Running("LiteLLM proxy", port, process)


def wait_for(running: Running, path: str) -> None:
    deadline = time.monotonic() + 180
    while True:
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{running.name} does not start")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{running.port}{path}", timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)


def load(
    folder: Path, port: int, *options: object, stream: bool, singles: bool = False, named: bool = False
) -> dict[str, float]:
    body = folder / ("stream.json" if stream else "body.json")
    asked = {**BODY, **({"stream": True, "stream_options": {"include_usage": True}} if stream else {})}
    if singles:
        asked["messages"] = [{"role": "user", "content": f"Say hello. [[gap={SINGLE_US}]]"}]
    body.write_text(json.dumps(asked))
    flags = ["-s"] if stream else []
    flags += ["-I"] if named else []
    done = subprocess.run(
        pinned(1, folder / "load", "-p", port, "-k", SECRET, "-f", body, "-T", 120, *flags, *options),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def measured(
    running: Running,
    folder: Path,
    name: str,
    count: int,
    *options: object,
    stream: bool,
    singles: bool = False,
) -> None:
    before = measure.cpu_seconds(running.process.pid)
    flags = {"stream": stream, "singles": singles, "named": running.named}
    result = load(folder, running.port, "-n", count, *options, **flags)
    spent = (measure.cpu_seconds(running.process.pid) - before) * 1e6
    if result["err"]:
        raise SystemExit(f"{running.name}: {result['err']} requests failed: {result['lasterr']}")
    running.figures[f"{name} us"].append(spent / count)
    running.figures[f"{name} p50"].append(result["p50"])
    running.figures[f"{name} p99"].append(result["p99"])
    running.figures[f"{name} per s"].append(result["rps"])


def one_round(running: Running, folder: Path, options: argparse.Namespace) -> None:
    few = running.name.startswith("LiteLLM")
    count = max(64, options.requests // 20) if few else options.requests
    measured(running, folder, "request", count, "-c", 64, stream=False)
    measured(running, folder, "stream", max(32, count // 10), "-c", 64, stream=True)
    if not few:
        measured(running, folder, "singles", 64, "-c", 64, stream=True, singles=True)
    rate = 20 if few else 500
    measured(running, folder, "paced", rate * options.seconds, "-c", 256, "-r", rate, stream=False)


def report(all_running: list[Running]) -> None:
    """Medians. What a stream costs beyond a plain request is its events."""
    base = {name: statistics.median(values) for name, values in all_running[0].figures.items()}
    base_event = (base["stream us"] - base["request us"]) / EVENTS
    base_single = (base["singles us"] - base["request us"]) / EVENTS
    names = ("us/request", "x nginx", "us/event", "x nginx", "us/single", "x nginx", "p50 ms", "p99 ms", "MB")
    print(" " * 34 + "".join(f"{name:>11}" for name in names))
    for running in all_running:
        figures = {name: statistics.median(values) for name, values in running.figures.items()}
        request = figures["request us"]
        event = (figures["stream us"] - request) / EVENTS
        single = (figures.get("singles us", math.nan) - request) / EVENTS
        row = (
            f"{request:.1f}",
            f"{request / base['request us']:.2f}",
            f"{event:.2f}",
            f"{event / base_event:.2f}",
            f"{single:.1f}",
            f"{single / base_single:.2f}",
            f"{(figures['paced p50'] - base['paced p50']) / 1000:+.2f}",
            f"{(figures['paced p99'] - base['paced p99']) / 1000:+.2f}",
            f"{figures['memory']:.0f}",
        )
        print(f"{running.name:34}" + "".join(f"{one:>11}" for one in row))
    print("us/event: of those that come in bursts; us/single: of those that come one at a time.")
    print("p50 and p99: added to nginx's at 500 requests/s (LiteLLM: at 20).")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--seconds", type=int, default=4, help="of the paced load")
    parser.add_argument("--litellm", help="a Python with litellm[proxy]; absent: it is left out")
    parser.add_argument("--only", help="words of modes, with commas")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gateway-"))
    upstream, provider = start_tools(folder)
    running: list[Running] = []
    try:
        running.append(start_nginx(upstream, folder))
        wait_for(running[-1], "/v1/models")
        for mode in modes():
            if options.only and not any(word in mode.name for word in options.only.split(",")):
                continue
            running.append(start_onward(mode, upstream, folder))
            wait_for(running[-1], "/readyz")
        if options.litellm:
            running.append(start_litellm(options.litellm, upstream, folder))
            wait_for(running[-1], "/health/liveliness")
        for one in running:  # nobody's first requests count
            load(folder, one.port, "-n", 64, "-c", 16, stream=False)
        for _ in range(options.rounds):
            for one in running:
                one_round(one, folder, options)
        for one in running:
            one.figures["memory"].append(measure.memory(one.process.pid) / 1e6)
        report(running)
    finally:
        for one in running:
            one.process.terminate()
        provider.terminate()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
