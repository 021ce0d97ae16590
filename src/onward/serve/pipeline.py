"""Running a job: engine steps in, deltas out. An unstreamed answer is the fold of these.

Each candidate of each prompt is a *branch*: one engine iterator and one token path. A job of one
branch is iterated directly; several run side by side, at most as many as the engine has slots,
and their deltas meet in one bounded queue, so that a slow reader slows the engine and not us.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from onward.core.delta import ChoiceDelta, fold
from onward.core.failure import Failure, FailureKind
from onward.core.filtered_deltas import FilteredDeltas
from onward.core.generate import Chunk, EngineFinish, GenerateRequest, ScoredToken
from onward.core.request import ChatRequest
from onward.rendering.renderer import ReplyParser
from onward.rendering.token_path import TokenPath, prompt_delta
from onward.serve.content_filter import filtered_deltas, passing
from onward.serve.job import Job, candidate, prepare_chat, prepare_completion
from onward.serve.tool_choice import ToolCheck

__all__ = ["Job", "prepare_chat", "prepare_completion", "run"]

_QUEUED_DELTAS: Final = 64
_FULL_QUEUE_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class _Branch:
    """One candidate of one prompt."""

    index: int
    """The choice's index, prompt by prompt (1.4)."""
    generation: GenerateRequest
    first: bool
    """The first candidate of its prompt: it alone scores the prompt and counts what was cached."""
    scores: asyncio.Future[list[ScoredToken] | None] | None
    """The prompt's log probabilities, which the first candidate hands to the others."""


async def run(job: Job) -> AsyncGenerator[ChoiceDelta, None]:
    """The deltas of every choice, as they are made. Closing it cancels the engine's work.

    Raises `Failure` when the engine refuses or breaks; `job.usage` then holds what was sampled.
    """
    output = filtered_deltas(job)
    if job.candidates > job.request.n:
        deltas = _best(job)
        if output is not None:
            deltas = passing(output, deltas)
    else:
        branches = _branches(job, job.candidates)
        if len(branches) == 1:
            deltas = _branch(job, branches[0])
            if output is not None:
                deltas = passing(output, deltas)
        else:
            deltas = _merged(job, branches, output=output)
    check = ToolCheck(job.request) if isinstance(job.request, ChatRequest) else None
    async with aclosing(deltas):
        async for delta in deltas:
            if check is not None and check.needed:
                check.see(delta)
            yield delta


def _branches(job: Job, candidates: int) -> list[_Branch]:
    shared = job.echo and job.request.logprobs is not None and candidates > 1
    branches: list[_Branch] = []
    for prompt in job.prompts:
        scores = asyncio.get_running_loop().create_future() if shared else None
        for number in range(candidates):
            generation = candidate(prompt, number)
            if number and shared:
                generation = generation.unscored()
            branches.append(_Branch(len(branches), generation, number == 0, scores))
    return branches


async def _best(job: Job) -> AsyncGenerator[ChoiceDelta, None]:
    """The `n` likeliest of all candidates of each prompt, by mean log probability (O-1)."""
    wanted, made = job.request.n, job.candidates
    deltas: list[ChoiceDelta] = []
    likelihoods: dict[int, float] = {}
    async with aclosing(_merged(job, _branches(job, made), likelihoods)) as merged:
        async for delta in merged:
            deltas.append(delta)  # noqa: PERF401 - an async comprehension would hide the closing
    choices = fold(deltas)
    for prompt in range(len(job.prompts)):
        group = choices[prompt * made : (prompt + 1) * made]
        group.sort(key=lambda choice: (-likelihoods[choice.index], choice.index))
        for rank, choice in enumerate(group[:wanted]):
            choice.index = prompt * wanted + rank
            yield choice


async def _merged(
    job: Job,
    branches: list[_Branch],
    likelihoods: dict[int, float] | None = None,
    output: FilteredDeltas | None = None,
) -> AsyncGenerator[ChoiceDelta, None]:
    queue: asyncio.Queue[ChoiceDelta | BaseException | None] = asyncio.Queue(_QUEUED_DELTAS)
    at_once = asyncio.Semaphore(max(1, job.served.engine.status().slots))
    admitted = asyncio.Event()

    async def feed(branch: _Branch) -> None:
        try:
            made = _branch(job, branch, admitted, likelihoods)
            if output is not None:
                made = passing(output, made)
            async with at_once, aclosing(made) as deltas:
                async for delta in deltas:
                    await queue.put(delta)
            await queue.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by the reader of the queue
            await queue.put(error)

    tasks = [asyncio.create_task(feed(branch)) for branch in branches]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _branch(
    job: Job,
    branch: _Branch,
    admitted: asyncio.Event | None = None,
    likelihoods: dict[int, float] | None = None,
) -> AsyncGenerator[ChoiceDelta, None]:
    generation, usage = branch.generation, job.usage
    if generation.max_tokens == 0 and generation.prompt_alternatives is None:
        yield await _echo_alone(job, branch)
        return
    path: ReplyParser | None = None
    opened: ChoiceDelta | None = None
    logprobs, counted = 0.0, 0
    async with aclosing(_steps(job, generation, admitted)) as steps:
        async for chunk in steps:
            if branch.first and chunk.cached_tokens:
                usage.cached_tokens += chunk.cached_tokens
            if path is None:
                opened = _opening(job, branch, await _share(branch, chunk))
                path = _path(job, branch, len(opened.text) if opened else 0)
            for token in chunk.tokens:
                path.push(token)
            for token in chunk.tokens[: path.count - counted]:
                logprobs += token.logprob or 0.0
            usage.completion_tokens += path.count - counted
            counted = path.count
            ended = path.stopped or chunk.finish is not None
            delta = path.finish(chunk.finish) if ended else path.take()
            if opened is not None:
                delta, opened = fold([opened, delta])[0], None
            if not delta.is_empty():
                yield delta
            if ended:
                break
    if likelihoods is not None:
        likelihoods[branch.index] = logprobs / max(1, counted)


async def _echo_alone(job: Job, branch: _Branch) -> ChoiceDelta:
    """A choice for which nothing is sampled or scored: its prompt, and that is all."""
    scored = await asyncio.shield(branch.scores) if branch.scores else None
    opened = _opening(job, branch, scored) or ChoiceDelta(index=branch.index)
    return fold([opened, _path(job, branch, len(opened.text)).finish(EngineFinish.LENGTH)])[0]


def _opening(job: Job, branch: _Branch, scored: list[ScoredToken] | None) -> ChoiceDelta | None:
    """What a choice begins with: the echoed prompt and its IDs, as far as they are asked for."""
    delta: ChoiceDelta | None = None
    ids = branch.generation.prompt
    if job.echo:
        want_entries = job.request.logprobs is not None
        delta = prompt_delta(job.served.tokenizer, branch.index, ids, scored, want_entries=want_entries)
    if job.request.return_token_ids and not branch.generation.images:
        delta = delta or ChoiceDelta(index=branch.index)
        delta.prompt_token_ids = ids
    return delta


def _path(job: Job, branch: _Branch, offset: int) -> ReplyParser:
    request, renderer, ends = job.request, job.served.renderer, frozenset(branch.generation.stop_token_ids)
    if isinstance(request, ChatRequest) and renderer is not None and job.rendered is not None:
        return renderer.parser(request, job.rendered, index=branch.index, end_token_ids=ends)
    return TokenPath(
        job.served.tokenizer,
        index=branch.index,
        stops=request.stop,
        end_token_ids=ends,
        want_entries=request.logprobs is not None,
        want_ids=request.return_token_ids,
        offset=offset,
    )


async def _steps(
    job: Job, generation: GenerateRequest, admitted: asyncio.Event | None
) -> AsyncGenerator[Chunk, None]:
    """The engine's steps. Once a request is admitted its other branches wait for a full queue."""
    while True:
        try:
            async with aclosing(job.served.engine.generate(generation)) as chunks:
                async for chunk in chunks:
                    if admitted is not None:
                        admitted.set()
                    yield chunk
        except Failure as failure:
            if failure.kind is not FailureKind.ENGINE_FULL or admitted is None or not admitted.is_set():
                raise
        else:
            return
        await asyncio.sleep(_FULL_QUEUE_PAUSE_S)


async def _share(branch: _Branch, chunk: Chunk) -> list[ScoredToken] | None:
    """The log probabilities of the prompt, computed once for all its candidates."""
    if branch.scores is None:
        return chunk.prompt_tokens
    if branch.first:
        if not branch.scores.done():
            branch.scores.set_result(chunk.prompt_tokens)
        return chunk.prompt_tokens
    return await asyncio.shield(branch.scores)
