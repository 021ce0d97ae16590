"""`/admin/v1/config`: what is in force, and reading it again."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.http.admin.answers import NOT_KEPT, answer, read_nothing
from onward.http.admin.asking import read_query
from onward.http.exchange import JSON, Exchange, HeldBodies
from onward.wire.errors import encode_failure

Reload = Callable[[], Awaitable[dict[str, Any]]]
"""Reads the config again; what changed. Raises `ReloadRefused`, `Failure`."""


class ReloadRefused(Exception):  # noqa: N818 - a result that the operator sees, not a bug
    """A config with faults. `faults` has a line for each, with its path. Nothing has changed."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class ConfigEndpoints:
    """`shown`: what is told of the config, without a secret. `reload` None: nothing can be read again."""

    def __init__(self, shown: dict[str, Any], held: HeldBodies, reload: Reload | None) -> None:
        self._shown = shown
        self._held = held
        self._reload = reload

    async def show(self, exchange: Exchange) -> None:
        read_query(exchange)
        await answer(exchange, self._shown)

    async def reload(self, exchange: Exchange) -> None:
        """Take up the whole file, or nothing of it. All its faults are told at once."""
        read_query(exchange)
        await read_nothing(exchange, self._held)
        if self._reload is None:
            await _refuse(exchange, ["this server has no config file that could be read again"])
            return
        try:
            shown = await self._reload()
        except ReloadRefused as refused:
            await _refuse(exchange, refused.faults)
        else:
            await answer(exchange, shown)


async def _refuse(exchange: Exchange, faults: list[str]) -> None:
    """400 with every fault: in one sentence, and as a list."""
    failure = Failure(
        FailureKind.INVALID_REQUEST, f"The config was not reloaded, nothing has changed. {'; '.join(faults)}."
    )
    exchange.record.failure = failure.kind
    encoded = encode_failure(exchange.dialect, failure)
    body = json.loads(encoded.body)
    body["error"]["faults"] = faults
    await exchange.respond(encoded.status, msgspec.json.encode(body), [JSON, NOT_KEPT])
