"""The content filter of a model over what its callers send."""

import asyncio
from typing import Any, Final

from onward.core.content_filter import input_refused
from onward.core.failure import Failure, invalid
from onward.http.exchange import Exchange
from onward.http.served import Target
from onward.serve.content_filter import log_found
from onward.serve.model import ServedModel
from onward.wire.input_text import blocked_text, unreadable_prompt

_LARGE_BODY: Final = 16 * 1024
"""Bytes from which a body is searched in a thread, so that nobody else waits for it."""


async def check_texts(
    exchange: Exchange, target: Target, surface: str, body: dict[str, Any], size: int
) -> None:
    """Hold every text of a body of `size` bytes against the patterns of its model's input.

    Raises `Failure` (CONTENT_BLOCKED_INPUT).
    """
    content = target.model.content_filter
    if content is None or not content.input:
        return
    fields = None
    if all(isinstance(one, ServedModel) for one in target.deployments):
        read = exchange.dialect.surfaces[surface].fields
        fields = frozenset(name for field in read for name in (field.name, *field.aliases))
    if size < _LARGE_BODY:
        blocked = blocked_text(content, body, fields)
    else:
        blocked = await asyncio.to_thread(blocked_text, content, body, fields)
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
