"""The command line as a whole: help, exit codes, errors in one line."""

import argparse
import os
import subprocess
import sys

import pytest

import onward
from onward.cli.main import build_parser, main


def commands(parser=None, path=()):
    """Every command and subcommand, as words."""
    for action in (parser or build_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield (*path, name)
                yield from commands(below, (*path, name))


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_command_has_help(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: onward")
    assert len(said.splitlines()) > 3


def test_every_option_says_what_it_does():
    """In every command, every argument has a help text."""

    def look(parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below in action.choices.values():
                    look(below)
            else:
                assert action.help, f"{parser.prog}: {action}"

    look(build_parser())


def test_says_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"onward {onward.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["pull"],
        ["models"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "1e3"],
        ["serve", "--workers", "0"],
        ["serve", "a.toml", "b.toml"],
        ["complete"],
        ["complete", "x", "--temperature", "3"],
        ["complete", "x", "--temperature", "nan"],
        ["complete", "x", "--max-tokens", "0"],
        ["complete", "x", "--wait", "-1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: onward" in capsys.readouterr().err


def test_a_failure_is_1_and_one_line(onward):
    code, output, errors = onward("pull", "/nowhere/at/all.gguf")
    assert (code, output) == (1, "")
    assert errors.startswith("onward: there is no file /nowhere/at/all.gguf; name a .gguf file")
    assert errors.count("\n") == 1


def test_a_fault_of_ours_is_one_line_too(monkeypatch, capsys):
    """Where it happened is shown to those who ask."""

    def broken(_):
        raise ValueError("two\nlines")

    monkeypatch.setattr("onward.cli.sources.pull", broken)
    monkeypatch.delenv("ONWARD_DEBUG", raising=False)
    assert main(["pull", "x"]) == 1
    said = capsys.readouterr().err
    assert said == "onward: ValueError: two lines; this is a fault of ours: ONWARD_DEBUG=1 shows where\n"
    monkeypatch.setenv("ONWARD_DEBUG", "1")
    with pytest.raises(ValueError, match="two"):
        main(["pull", "x"])


def test_help_imports_nothing_slow():
    """Neither a client nor a server nor a model is needed to read the help."""
    program = (
        "import sys\nfrom onward.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'asyncio', 'httpx', 'msgspec', 'httptools', 'numpy', 'jinja2', 'tqdm', 'onward.wiring'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_pull_prints_where_the_model_lies(onward, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert onward("pull", str(tmp_path / "m.gguf")) == (0, f"{tmp_path / 'm.gguf'}\n", "")


def test_check_is_silent_when_all_is_well(onward, tmp_path):
    (tmp_path / "x.toml").write_text("[server]\nport = 1\n")
    assert onward("check", str(tmp_path / "x.toml")) == (0, "", "")


def test_check_says_every_fault(onward, tmp_path):
    (tmp_path / "x.toml").write_text("[server]\nport = 'x'\n[sever]\n")
    code, output, errors = onward("check", str(tmp_path / "x.toml"))
    assert (code, output) == (1, "")
    assert errors.splitlines() == [
        "sever: is not a setting; did you mean server?",
        "server.port: must be an integer, not a string",
    ]


def test_serve_starts_nothing_with_a_bad_config(onward, tmp_path):
    (tmp_path / "x.toml").write_text("[server]\nport = 'x'\n[sever]\n")
    code, output, errors = onward("serve", str(tmp_path / "x.toml"))
    assert (code, output) == (1, "")
    assert errors.splitlines() == [
        "onward: sever: is not a setting; did you mean server?",
        "onward: server.port: must be an integer, not a string",
    ]


def test_serve_refuses_to_listen_to_everybody_without_a_key(onward):
    code, _, errors = onward("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert code == 1
    assert "Make a key with 'onward keys create NAME'" in errors
    assert "--no-auth" in errors


def test_a_new_key_goes_into_a_config_as_it_is_printed(onward, tmp_path):
    """The config knows the hash alone; the key is in a comment."""
    code, output, _ = onward("keys", "new", 'a "name"')
    assert code == 0
    secret = output.splitlines()[0].rpartition(" ")[2]
    assert secret.startswith("on-")
    assert len(secret) == 46
    (tmp_path / "x.toml").write_text("[server]\nhost = '0.0.0.0'\n" + output)
    assert onward("check", str(tmp_path / "x.toml"))[0] == 0
    assert onward("keys", "new", "b")[1] != output


def test_a_reader_that_goes_away_is_no_error(stand_in):
    """As in `onward complete … | head -1`."""
    stand_in.pieces = ["word "] * 50_000
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "onward.cli.main", "complete", "x"], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert os.read(read, 4) == b"word"
    os.close(read)
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode == 1
