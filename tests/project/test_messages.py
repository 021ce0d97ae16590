"""Messages that reach callers are sentences: a capital or a quoted field first, a full stop at the end."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/onward"
POSITION = {"Failure": 1, "invalid": 1, "malformed": 0, "too_slow": 0}
"""Functions that take a message, and where it stands among their arguments."""


def messages() -> Iterator[tuple[str, ast.expr]]:
    """Every message that is written where it is raised, and its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in POSITION:
                position = POSITION[node.func.id]
                if len(node.args) > position:
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.args[position]


def ends(message: ast.expr) -> tuple[str | None, str | None]:
    """How a message begins and ends, as far as it is written out."""
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return message.value[:1], message.value[-1:]
    if isinstance(message, ast.JoinedStr):
        first, last = message.values[0], message.values[-1]
        return (
            first.value[:1] if isinstance(first, ast.Constant) else None,
            last.value[-1:] if isinstance(last, ast.Constant) else None,
        )
    return None, None


@pytest.mark.covers("O-5")
def test_messages_are_sentences():
    found = list(messages())
    assert len(found) > 100
    begun = [place for place, message in found if not begins_well(ends(message)[0])]
    ended = [place for place, message in found if ends(message)[1] not in (None, ".", "?")]
    assert (begun, ended) == ([], [])


def begins_well(letter: str | None) -> bool:
    return letter is None or letter == "'" or letter.isupper()
