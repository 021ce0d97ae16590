"""How endpoints of operators answer."""

from typing import Any

import msgspec

from onward.http.exchange import JSON, Exchange, HeldBodies
from onward.http.generation import read_body
from onward.http.limits import Limits

_BODIES = Limits(body_bytes=64 * 1024)
"""Longer bodies are refused."""
NOT_KEPT = (b"cache-control", b"no-store")


async def answer(exchange: Exchange, shown: Any) -> None:
    """One thing. Nobody between us and the operator keeps it: it may hold a fresh secret."""
    await exchange.respond(200, msgspec.json.encode(shown), [JSON, NOT_KEPT])


async def answer_page(exchange: Exchange, data: list[Any], next_cursor: str | None) -> None:
    """A page of things; `next_cursor` gets the page behind it, None: this was the last."""
    await answer(exchange, {"data": data, "next_cursor": next_cursor})


async def read_object(exchange: Exchange, held: HeldBodies) -> dict[str, Any]:
    """The object in a body. Raises `Failure`."""
    _, body = await read_body(exchange, _BODIES, held)
    return body


async def read_nothing(exchange: Exchange, held: HeldBodies) -> None:
    """Take whatever body there is, so that the connection can go on."""
    await exchange.read_body(_BODIES, held)
