"""What the pages say of keys, tenants and money works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from onward.cli.main import main
from onward.http.admin.admin import Admin
from tests.http.operated import TOKEN, operated

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = (DOCS / "how-to.md").read_text(encoding="utf-8")
SECTION = HOW_TO[HOW_TO.index("## Keys, tenants, money") : HOW_TO.index("## Send token IDs")]


def lines(language: str) -> list[list[str]]:
    """The commands of the section's one block in a language, as words."""
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def test_commands_do_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = {}
    for words in lines("sh"):
        assert words[0] == "onward"
        assert main(words[1:]) == 0, words
        said[" ".join(words[1:3])] = capsys.readouterr().out
    assert said["keys create"].startswith("on-")
    assert "15.00" in said["tenants list"]
    assert "ci" in said["keys list"]
    assert "revoked_at" in said["keys revoke"]


async def test_requests_are_answered(text_side, tmp_path):
    """In their order, each with the token in its variable."""
    answers = {}
    async with operated(text_side, tmp_path) as it:
        variable, *requests = lines("bash")
        assert variable[1].startswith("ONWARD_ADMIN_TOKEN=")
        for words in requests:
            assert words[0] == "curl"
            headers = dict(
                words[n + 1].replace("$ONWARD_ADMIN_TOKEN", TOKEN).split(": ")
                for n, word in enumerate(words)
                if word == "-H"
            )
            body = words[words.index("-d") + 1].encode() if "-d" in words else None
            path = words[1].removeprefix("http://127.0.0.1:8000/admin/v1")
            answer = await it.ask("POST" if body else "GET", path, body, headers=headers, token=None)
            assert answer.status_code == 200, answer.text
            answers[path] = answer
    assert answers["/keys"].json()["secret"].startswith("on-")
    assert answers["/tenants/zeta/credits"].json()["balance"] == "15.00"
    assert answers["/usage?group_by=model,day&format=csv"].text.startswith("model,day,requests,")


async def test_every_route_is_on_the_page():
    page = (DOCS / "admin.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([A-Z]+) (\S+)` \|", page, re.MULTILINE)
    nothing: dict = dict.fromkeys(
        ("token", "roster", "store", "gate", "models", "held", "changed", "breakers", "dialects")
    )
    assert told == list(Admin(config={}, **nothing).endpoints)


@pytest.mark.parametrize("page", ["how-to.md", "admin.md"])
def test_times_and_amounts_on_the_pages_are_taken(page):
    from onward.core.money import parse_amount
    from onward.http.admin.asking import time_of

    text = (DOCS / page).read_text(encoding="utf-8")
    for amount in re.findall(r'"(?:amount|balance|monthly_cap)": "([^"]*)"', text):
        parse_amount(amount)
    for moment in re.findall(r"`(2026-[\dT:Z-]+)`", text):
        assert time_of({"from": moment}, "from")
