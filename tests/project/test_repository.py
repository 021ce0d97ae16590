"""The repository itself: sizes, names, what may stand in a file."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LONGEST = 400
"""Lines of a file of code."""
FOREIGN = "|".join(
    [
        r"pypi\.(?:org|python)",
        r"python" + r"hosted",
        r"registry\." + r"npmjs",
        r"(?<![\w.)\"'}/-])/" + r"work(?:/|\b)",
        r"(?<![\w.)}/-])/" + r"tmp/\w",
    ]
)
"""Package registries, and paths of one machine."""
VAGUE = re.compile(r"(?:manager|helper|utils?|service|misc|common)s?(?:\.py)?", re.IGNORECASE)


def tracked():
    """The text files that git keeps, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone")
    paths = [ROOT / name for name in names]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def code():
    """Files of Python."""
    return [path for path in tracked() if path.suffix == ".py"]


def test_files_stay_short():
    """A file that grows has more than one subject."""
    long = {
        str(path.relative_to(ROOT)): count
        for path in code()
        if path.is_relative_to(ROOT / "src") and (count := len(path.read_text().splitlines())) >= LONGEST
    }
    assert long == {}


def test_architecture_stays_short():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < 200


def test_nothing_names_a_registry_or_a_path_of_one_machine():
    """Which index is used is the user's choice; and what is written here is true on any machine."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked()
        if path != Path(__file__) and path.name != "package-lock.json"
        for match in re.finditer(FOREIGN, path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_names_say_what_things_are():
    files = [str(path.relative_to(ROOT)) for path in tracked() if VAGUE.fullmatch(path.name)]
    classes = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in code()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and re.search(r"(?:Manager|Helper|Util|Service)s?$", node.name)
    ]
    assert files + classes == []


def test_every_module_says_what_it_is():
    bare = [
        str(path.relative_to(ROOT))
        for path in code()
        if path.is_relative_to(ROOT / "src") and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert bare == []


def test_only_dialects_know_which_api_is_imitated():
    """Nobody else compares the name of a dialect."""
    names = {"openai", "tinker", "tokens", "prentis"}
    found = []
    for path in code():
        if not path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "src/onward/dialects"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                values = [node.left, *node.comparators]
                if any(isinstance(value, ast.Constant) and value.value in names for value in values):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_the_version_is_the_same_everywhere():
    import tomllib

    import onward

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == onward.__version__
    assert f"## {onward.__version__}" in (ROOT / "CHANGELOG.md").read_text()
