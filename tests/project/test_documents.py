"""What the documents show works as it stands there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from onward.cli.main import build_parser
from onward.wiring import config

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def examples(*languages):
    """The code blocks of the pages: where each stands, and its text."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if match[1] in languages:
                line = text[: match.start()].count("\n") + 1
                found.append(pytest.param(match[2], id=f"{page.name}:{line}"))
    return found


def anchors(page):
    """What a link into a page may name after its #."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        file = (page.parent / parts.path).resolve() if parts.path else page
        assert file.exists(), target
        assert not parts.fragment or parts.fragment in anchors(file), target


@pytest.mark.parametrize("text", examples("toml"))
def test_settings_pass_the_check(text, tmp_path):
    path = tmp_path / "onward.toml"
    path.write_text(text, encoding="utf-8")
    assert config.check(path) == []


@pytest.mark.parametrize("text", examples("json"))
def test_json_is_json(text):
    json.loads(text)


@pytest.mark.parametrize("text", examples("python"))
def test_python_runs(text, server):
    """Against a real server, as it stands there but for the address."""
    program = text.replace("http://127.0.0.1:8000", server.base_url)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("text", [one for one in examples("sh") if "curl " in one.values[0]])
def test_requests_are_answered(text, server):
    """What curl is told to send."""
    path = re.search(r"curl http://127\.0\.0\.1:8000(\S+)", text)[1]
    body = json.loads(re.search(r" -d '(.*?)'", text, re.DOTALL)[1])
    answer = httpx.post(server.base_url + path, json=body, timeout=120)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("text", examples("sh"))
def test_commands_are_commands(text):
    """The shell reads them, and each `onward` command has the arguments that stand there."""
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    for body in re.findall(r" -d '(.*?)'", text, re.DOTALL):
        json.loads(body)
    bodiless = re.sub(r" -d '.*?'", "", text, flags=re.DOTALL)
    for line in bodiless.replace("\\\n", " ").splitlines():
        words = shlex.split(re.sub(r"[{}&;|]+", " ; ", line), comments=True)
        while ";" in words:
            words, rest = words[: words.index(";")], words[words.index(";") + 1 :]
            read_command(words)
            words = rest
        read_command(words)


def read_command(words):
    """Parse an `onward` command; anything else is let be."""
    if words and words[0].rpartition("/")[2] == "onward":
        build_parser().parse_args(words[1:])


def test_commands_in_the_text_exist():
    """Each `onward …` in a sentence."""
    known = set(next(action for action in build_parser()._actions if action.choices).choices)
    for page in PAGES:
        for name in re.findall(r"`onward (\w+)", page.read_text(encoding="utf-8")):
            assert name in known, f"{page.name}: {name}"


def test_the_readme_has_its_two_commands():
    """One installs, serves and answers; one installs and passes the tests."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert all("pip install" in command for command in commands)
    assert commands[1].endswith("/python scripts/check")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    reads = re.search(r"^command=.*$", script, re.MULTILINE)[0]
    taken = subprocess.run(
        ["bash", "-c", f'{reads}\necho "$command"'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert taken.stdout == commands[1] + "\n"


def test_pages_made_from_code_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_statements_are_listed_once():
    """The list that coverage is counted against has no doubles."""
    from tests.plugins.covers import FAULTS, STATEMENTS

    assert len(set(STATEMENTS)) == len(STATEMENTS) == 59
    assert len(set(FAULTS)) == len(FAULTS) == 25
