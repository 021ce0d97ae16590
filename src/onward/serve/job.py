"""What a served request asks of the engine, ready to run."""

import hashlib
from dataclasses import dataclass, field

import msgspec

from onward.core.failure import invalid
from onward.core.generate import GenerateRequest
from onward.core.request import ChatRequest, CompletionRequest, OutputOptions
from onward.core.usage import Usage
from onward.rendering.renderer import RenderedPrompt
from onward.serve.images import Prompt
from onward.serve.model import ServedModel
from onward.serve.prompts import (
    chat_prompt,
    check_tokens_named,
    output_limit,
    prompts_of,
    render,
    stop_ids,
)
from onward.serve.thinking import with_effort
from onward.serve.tool_choice import check_request


@dataclass(slots=True)
class Job:
    """A request whose prompts are token IDs and whose every limit is set.

    Each prompt is sampled `candidates` times; the `n` likeliest are answered (O-1). `usage`
    fills while the job runs and counts everything sampled, losing candidates too.
    """

    served: ServedModel
    request: OutputOptions
    prompts: list[GenerateRequest]
    """One for each prompt; its candidates differ from it by seed alone."""
    candidates: int
    echo: bool = False
    usage: Usage = field(default_factory=Usage)
    rendered: RenderedPrompt | None = None
    """Of a chat: the prompt as it was rendered, whose replies the renderer's parser reads."""


async def prepare_completion(served: ServedModel, request: CompletionRequest, request_id: str) -> Job:
    """Check a completion against its model and make its job. Raises `Failure`."""
    if request.suffix:
        raise invalid(
            "suffix",
            "This model has no tokens for filling in the middle, so it takes no 'suffix'. Leave it out.",
        )
    check_tokens_named(served, request)
    prompts = await prompts_of(served, request)
    stops = stop_ids(served, request, served.tokenizer.end_token_ids)
    generations: list[GenerateRequest] = []
    for position, prompt in enumerate(prompts):
        limit = output_limit(served, request, prompt.length, request.prompt_path(position))
        generations.append(
            _generation(served, request, prompt, limit, stops, request_id=request_id, scored=request.echo)
        )
    return Job(
        served, request, generations, request.best_of or request.n, request.echo, _prompt_usage(prompts)
    )


async def prepare_chat(served: ServedModel, request: ChatRequest, request_id: str) -> Job:
    """Render a conversation and make its job. Raises `Failure`."""
    check_tokens_named(served, request)
    check_request(served, request)
    if request.thinking is not None:
        request = with_effort(served, request)
    rendered = await render(served, request)
    prompt = await chat_prompt(served, request, rendered)
    limit = output_limit(served, request, prompt.length, "messages")
    stops = stop_ids(served, request, rendered.stop_token_ids)
    generation = _generation(served, request, prompt, limit, stops, request_id=request_id, scored=False)
    usage = _prompt_usage([prompt])
    return Job(served, request, [generation], request.n, usage=usage, rendered=rendered)


def worst_output(job: Job) -> tuple[int, int]:
    """How many choices are sampled, losing candidates too, and the most tokens that one of them can have."""
    return job.candidates * len(job.prompts), max(prompt.max_tokens for prompt in job.prompts)


def lower(job: Job, max_tokens: int) -> None:
    """Let no choice have more than `max_tokens`."""
    job.prompts = [
        msgspec.structs.replace(prompt, max_tokens=min(prompt.max_tokens, max_tokens))
        for prompt in job.prompts
    ]


def candidate(generation: GenerateRequest, number: int) -> GenerateRequest:
    """The prompt's candidate `number`: the same request, with a seed of its own if one was given.

    Its seed is a hash, not `seed + number`: requests with neighbouring seeds share no choices.
    """
    seed = generation.sampling.seed
    if seed is None or number == 0:
        return generation
    digest = hashlib.blake2b(b"%d:%d" % (seed, number), digest_size=8).digest()
    own = int.from_bytes(digest, "little", signed=True)
    return msgspec.structs.replace(
        generation, sampling=msgspec.structs.replace(generation.sampling, seed=own)
    )


def _generation(
    served: ServedModel,
    request: OutputOptions,
    prompt: Prompt,
    limit: int,
    stops: list[int],
    *,
    request_id: str,
    scored: bool,
) -> GenerateRequest:
    alternatives = request.logprobs
    if alternatives is None and isinstance(request, CompletionRequest) and (request.best_of or 1) > request.n:
        alternatives = 0  # the candidates are compared by their log probabilities
    return GenerateRequest(
        request_id=request_id,
        prompt=prompt.ids,
        images=prompt.images,
        max_tokens=limit,
        sampling=request.sampling,
        stop_token_ids=stops,
        min_tokens=request.min_tokens,
        alternatives=alternatives,
        prompt_alternatives=request.logprobs if scored else None,
        adapter=served.adapter.name if served.adapter else None,
        adapter_path=served.adapter.path if served.adapter else None,
    )


def _prompt_usage(prompts: list[Prompt]) -> Usage:
    return Usage(prompt_tokens=sum(prompt.length for prompt in prompts))
