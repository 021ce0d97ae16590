"""A short turn of the soak, whose long one is `python bench/soak/run.py --seconds 300`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_holds_under_fire_for_a_while(gguf):
    """Disconnects, nonsense and a killed engine: no hang, no leak, every answer well formed."""
    done = subprocess.run(
        [sys.executable, "bench/soak/run.py", "--seconds", "20"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kills of the engine" in done.stdout
    assert done.stdout.endswith("passed\n")
