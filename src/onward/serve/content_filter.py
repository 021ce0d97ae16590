"""The content filter of a model over what an engine of ours samples, and over prompts of token IDs."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from onward.core.content_filter import Found, input_refused
from onward.core.delta import ChoiceDelta
from onward.core.filtered_deltas import FilteredDeltas
from onward.core.request import CompletionRequest, OutputOptions, TokensPart
from onward.serve.job import Job
from onward.serve.model import ServedModel

logger = logging.getLogger("onward")
_MANY_TOKENS: Final = 4096
"""IDs from which a prompt is detokenized and searched in a thread."""


def filtered_deltas(job: Job) -> FilteredDeltas | None:
    """What holds a job's output against the patterns of its model; None: it has none."""
    content = job.served.model.content_filter
    if content is None or not content.output:
        return None
    request_id = job.prompts[0].request_id if job.prompts else ""
    model = job.served.model.id

    def found(what: Found) -> None:
        log_found(request_id, model, what)

    return FilteredDeltas(content, stream=job.request.stream, found=found)


async def passing(
    output: FilteredDeltas, deltas: AsyncGenerator[ChoiceDelta, None]
) -> AsyncGenerator[ChoiceDelta, None]:
    """The deltas of one choice as far as they may go on. They are closed once it is blocked, which cancels
    the engine's work.
    """
    async with aclosing(deltas):
        async for delta in deltas:
            for passed in output.push(delta):
                yield passed
            if delta.index in output.blocked:
                return


async def check_token_ids(served: ServedModel, request: OutputOptions, request_id: str) -> None:
    """Hold prompts of token IDs against the patterns of a model's input: their text is what is checked.

    Prompts of text are checked as they were sent. Raises `Failure` (CONTENT_BLOCKED_INPUT).
    """
    content = served.model.content_filter
    if content is None or not content.input or not isinstance(request, CompletionRequest):
        return
    chunks = request.prompt_chunks
    joined = [token for part in chunks or () if isinstance(part, TokensPart) for token in part.tokens]
    prompts = [
        (request.prompt_path(n), ids) for n, ids in enumerate(request.prompts) if isinstance(ids, list)
    ]
    if joined:
        prompts.append(("prompt_chunks", joined))

    def look() -> tuple[str, Found] | None:
        for param, ids in prompts:
            found = content.input_blocked(served.tokenizer.decode(ids))
            if found is not None:
                return param, found
        return None

    many = sum(len(ids) for _, ids in prompts) > _MANY_TOKENS
    blocked = await asyncio.to_thread(look) if many else look()
    if blocked is not None:
        log_found(request_id, served.model.id, blocked[1])
        raise input_refused(blocked[0])


def log_found(request_id: str, model: str, found: Found) -> None:
    """One line for the operator: which pattern it was, never what it matched."""
    if found.slow:
        logger.warning(
            "request_id=%s model=%s content_filter.%s takes too long: it blocked unseen",
            request_id,
            model,
            found.pattern,
        )
    else:
        logger.info("request_id=%s model=%s blocked by content_filter.%s", request_id, model, found.pattern)
