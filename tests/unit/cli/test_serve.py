"""`onward serve` as a user meets it: the real model, one line, a first answer, a clean end."""

import os
import signal
import subprocess
import sys

import pytest

from tests.unit.cli.conftest import start


def test_prints_one_line_that_a_shell_can_take(onward, gguf):
    """Pasted into a shell, it sets what clients read; and the commands find the server by it."""
    process = start("serve", "--port", "0")
    try:
        line = process.stdout.readline()
        shown = subprocess.run(
            ["sh", "-c", f'{line}\necho "$OPENAI_BASE_URL $OPENAI_API_KEY"'],
            capture_output=True,
            text=True,
            check=True,
        )
        url, key = shown.stdout.split()
        assert line.endswith("# model: smollm2-135m-instruct\n")
        assert key
        code, output, errors = onward(
            "complete", "One, two, three,", "--url", url, "--temperature", "0", "--max-tokens", "4"
        )
        assert (code, errors) == (0, "")
        assert "four" in output
        code, output, _ = onward("chat", "--url", url, "--max-tokens", "4", given="Hi\nHi again\n")
        assert code == 0
        assert output.count("\n") >= 2
        assert onward("models", "list", "--url", url)[1].startswith("smollm2-135m-instruct\t")
    finally:
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, ""), errors
    assert "Traceback" not in errors


def test_a_port_that_is_taken_is_one_line(onward, gguf):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, output, errors = onward("serve", "--port", str(taken.getsockname()[1]))
    assert (code, output) == (1, "")
    assert errors.startswith("onward: cannot listen on 127.0.0.1 port")
    assert errors.count("\n") == 1


def test_a_file_that_is_no_model_is_one_line(onward, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF and then nothing that makes sense")
    code, output, errors = onward("serve", "--port", "0", "--model", str(tmp_path / "m.gguf"))
    assert (code, output) == (1, "")
    assert errors.count("\n") == 1, errors
    assert str(tmp_path / "m.gguf") in errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "nosuch.gguf"], "--model: there is no file"),
        (["--model", ""], "--model: is missing"),
        (["--model", "pypi:a/b"], "--model: 'a/b' is no package"),
        (["--host", "999.1.1.1"], "--host: 999.1.1.1 is no address here"),
        (["--host", ""], "--host: must not be empty"),
        (["--host", "192.0.2.1", "--no-auth"], "cannot listen on 192.0.2.1 port 0: "),
    ],
)
def test_faults_name_the_option_that_is_wrong(onward, options, said):
    code, output, errors = onward("serve", "--port", "0", *options)
    assert (code, output) == (1, "")
    assert errors.startswith(f"onward: {said}")
    assert errors.count("\n") == 1


INTERRUPTED = """
import os, sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupts())
from onward.cli.start import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("onward.cli.main", signal.SIGINT),
        ("argparse", signal.SIGINT),
        *[
            (module, number)
            for module in (
                "onward.wiring.config",
                "msgspec",
                "onward.wiring.processes",
                "uvloop",
                "httptools",
            )
            for number in (signal.SIGINT, signal.SIGTERM)
        ],
    ],
)
def test_a_signal_while_it_is_imported_ends_it_well(gguf, module, number):
    """At whatever moment of the first half second it comes."""
    program = INTERRUPTED.format(module=module, number=int(number))
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--model", str(gguf)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr


def test_another_command_says_that_it_was_interrupted():
    program = INTERRUPTED.format(module="onward.cli.sources", number=int(signal.SIGINT))
    command = [sys.executable, "-c", program, "pull", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "onward: interrupted\n")
