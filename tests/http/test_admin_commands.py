"""Commands of operators while a server runs on the same store: it notices within seconds."""

import asyncio
import json
import sys
import time

import pytest

from tests.http.operated import Operated, operated

NOTICED_S = 5
"""What is promised; it asks each second."""


@pytest.fixture
async def it(text_side, tmp_path):
    async with operated(text_side, tmp_path) as running:
        yield running


async def onward(folder, *words) -> str:
    """Run a command in the folder of the server, beside it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "onward.cli.main",
        *words,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors
    return output.decode()


async def answered(it: Operated, secret: str | None, status: int) -> None:
    """Wait until callers with a secret are answered so, for as long as is promised."""
    until = time.monotonic() + NOTICED_S
    while (answer := await it.complete(secret)).status_code != status:
        assert time.monotonic() < until, answer.text
        await asyncio.sleep(0.05)


async def test_g27_a_running_server_notices_what_commands_change(it: Operated, tmp_path):
    """A key that a command made, and revoked again."""
    assert (await it.complete(None)).status_code == 200
    secret = (await onward(tmp_path, "keys", "create", "ci")).strip()
    await answered(it, None, 401)
    await answered(it, secret, 200)
    await onward(tmp_path, "keys", "revoke", "ci")
    await answered(it, secret, 401)
    assert (await it.complete(None)).status_code == 401


async def test_money_that_a_command_pays_in_or_out_counts_at_once(it: Operated, tmp_path):
    await it.post("/tenants", {"name": "acme", "balance": "0.000010"})
    secret = (await it.post("/keys", {"name": "ci", "tenant": "acme"}))["secret"]
    assert (await it.complete(secret)).status_code == 402
    await onward(tmp_path, "tenants", "credit", "acme", "0.000001")
    assert (await it.complete(secret)).status_code == 200
    await onward(tmp_path, "tenants", "credit", "acme", "-0.000004")
    assert (await it.complete(secret)).status_code == 402
    assert (await it.get("/tenants/acme"))["balance"] == "0.00"
    [newest] = json.loads(await onward(tmp_path, "ledger", "--json", "--limit", "1"))
    assert (newest["key"], newest["tenant"], newest["charged"]) == ("ci", "acme", "0.000007")
