"""SQL in files: every query has a name and a sentence, and is used."""

import re
from pathlib import Path

import pytest

import onward.stores
from onward.stores.statements import read_migrations, read_queries

FOLDER = Path(onward.stores.__file__).parent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queries.sql"


def test_queries_by_name(file: Path):
    file.write_text(
        "-- name: one\n-- The first.\nSELECT 1;\n\n-- name: two\n-- The second.\nSELECT\n    ';';\n"
    )
    assert read_queries(file) == {"one": "SELECT 1", "two": "SELECT\n    ';'"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;\n",
        "-- name: one\nSELECT 1;\n",
        "-- name: one\n-- No sentence\nSELECT 1;\n",
        "-- name: one\n-- A.\nSELECT 1;\n-- name: one\n-- B.\nSELECT 2;\n",
    ],
)
def test_a_query_without_a_name_of_its_own_and_a_sentence(file: Path, text: str):
    file.write_text(text)
    with pytest.raises(ValueError):
        read_queries(file)


def test_names_are_unique_over_files(file: Path):
    file.write_text("-- name: one\n-- The first.\nSELECT 1;\n")
    with pytest.raises(ValueError):
        read_queries(file, file)


def test_migrations_are_numbered_without_a_gap(tmp_path: Path):
    (tmp_path / "0001_first.sql").write_text("1")
    (tmp_path / "0002_then.sql").write_text("2")
    (tmp_path / "notes.txt").write_text("")
    assert [(step.number, step.sql) for step in read_migrations(tmp_path)] == [(1, "1"), (2, "2")]
    (tmp_path / "0004_gap.sql").write_text("4")
    with pytest.raises(ValueError):
        read_migrations(tmp_path)


@pytest.mark.parametrize(
    "folder", sorted(path.name for path in FOLDER.iterdir() if (path / "queries").is_dir())
)
def test_every_query_is_used(folder: str):
    code = "".join(path.read_text() for path in (FOLDER / folder).glob("*.py"))
    used = set(re.findall(r'"(\w+)"', code))
    names = set(read_queries(*sorted((FOLDER / folder / "queries").glob("*.sql"))))
    assert names - used == set()
