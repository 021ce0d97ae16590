"""`onward serve` as a user meets it: the real model, one line, a first answer, a clean end."""

import subprocess

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
