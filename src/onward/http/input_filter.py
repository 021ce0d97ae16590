"""The content filter of a model over what its callers send."""

import asyncio
from typing import Any, Final

from onward.core.content_filter import Found, input_refused
from onward.core.failure import Failure, excerpt, invalid
from onward.http.exchange import Exchange
from onward.http.served import Target
from onward.serve.content_filter import log_found
from onward.serve.model import ServedModel
from onward.wire.input_text import blocked_text, sent_twice, unreadable_prompt

_LARGE_BODY: Final = 16 * 1024
"""Bytes from which a body is searched in a thread, so that nobody else waits for it."""


async def check_texts(
    exchange: Exchange, target: Target, surface: str, body: dict[str, Any], raw: bytes
) -> None:
    """Hold every text of a body, which came as `raw`, against the patterns of its model's input.

    Raises `Failure` (CONTENT_BLOCKED_INPUT).
    """
    content = target.model.content_filter
    if content is None or not content.input:
        return
    fields = None
    if all(isinstance(one, ServedModel) for one in target.deployments):
        read = exchange.dialect.surfaces[surface].fields
        fields = frozenset(name for field in read for name in (field.name, *field.aliases))

    def look() -> tuple[str, Found] | None:
        twice = sent_twice(raw) if fields is None else None
        if twice is not None:
            shown = excerpt(twice, 60)
            raise invalid(None, f"'{shown}' is twice in one object of the body. Send it once.")
        return blocked_text(content, body, fields)

    blocked = look() if len(raw) < _LARGE_BODY else await asyncio.to_thread(look)
    if blocked is not None:
        param, found = blocked
        log_found(exchange.request_id, target.model.id, found)
        raise input_refused(param)


def require_text(target: Target, body: dict[str, Any]) -> None:
    """Refuse a prompt of token IDs for a provider: nobody here could read it. Raises `Failure`."""
    content = target.model.content_filter
    if content is None or not content.input:
        return
    param = unreadable_prompt(body)
    if param is not None:
        raise unreadable(param)


def unreadable(param: str) -> Failure:
    """The failure of a prompt that the content filter cannot read."""
    return invalid(
        param,
        f"This model has a content filter, which reads text alone: send '{param}' as text, not as token IDs.",
    )
