"""From what a caller sent to prompt IDs that fit the model, or a refusal that says why not."""

import asyncio
from collections.abc import Collection

from onward.core.failure import Failure, FailureKind, invalid
from onward.core.request import (
    ChatRequest,
    CompletionRequest,
    ImagePart,
    Message,
    OutputOptions,
    PromptPart,
    TextPart,
)
from onward.rendering.renderer import RenderedPrompt
from onward.serve.images import Prompt, SentImage, place_images, require_images
from onward.serve.model import ServedModel

LONG_TEXT = 16_384
"""Characters from which a text is tokenized in a thread, so that nobody else waits for it."""


async def prompts_of(served: ServedModel, request: CompletionRequest) -> list[Prompt]:
    """The token IDs of every prompt; given IDs stay as they are (TC-3). Raises `Failure`."""
    if request.prompt_chunks is not None:
        return [await _joined(served, request.prompt_chunks)]
    prompts: list[Prompt] = []
    for position, prompt in enumerate(request.prompts):
        param = request.prompt_path(position)
        if isinstance(prompt, str):
            ids = await tokenize(served, prompt, param)
            if not ids:
                raise invalid(param, f"'{param}' is empty: send text or at least one token ID.")
        else:
            check_vocabulary(served, prompt, param)
            ids = prompt
        prompts.append(Prompt(ids))
    return prompts


async def _joined(served: ServedModel, chunks: list[PromptPart]) -> Prompt:
    """A prompt in parts, one after the other (TC-10)."""
    ids: list[int] = []
    images: list[SentImage] = []
    for position, chunk in enumerate(chunks):
        param = f"prompt_chunks[{position}]"
        if isinstance(chunk, ImagePart):
            require_images(served, param)
            images.append(SentImage(len(ids), chunk, param))
        else:
            check_vocabulary(served, chunk.tokens, f"{param}.tokens")
            ids += chunk.tokens
    return await place_images(served, ids, images, check_marks=True) if images else Prompt(ids)


async def tokenize(served: ServedModel, text: str, param: str) -> list[int]:
    """A text prompt as the model's tokenizer reads it, control tokens and BOS included."""
    if len(text) < LONG_TEXT:
        return served.tokenizer.encode_prompt(text)
    return await asyncio.to_thread(_tokenize_long, served, text, param)


def _tokenize_long(served: ServedModel, text: str, param: str) -> list[int]:
    """As `tokenize`; what cannot fit the context is refused before all its tokens take memory."""
    limit = served.model.context_length
    least = served.tokenizer.least_tokens(text, limit)
    if least > limit:
        raise Failure(
            FailureKind.CONTEXT_LENGTH_EXCEEDED,
            f"'{param}' has {len(text)} characters, at least {least} tokens; the context of this model "
            f"is {limit} tokens. Send a shorter one.",
            param=param,
        )
    return served.tokenizer.encode_prompt(text)


def check_vocabulary(served: ServedModel, ids: list[int], param: str) -> None:
    """Refuse IDs that the model has no token for."""
    size = served.tokenizer.vocab_size
    if ids and min(ids) >= 0 and max(ids) < size:
        return
    for position, token in enumerate(ids):
        if not 0 <= token < size:
            raise invalid(
                f"{param}[{position}]",
                f"'{param}[{position}]' is token ID {token}; this model has IDs from 0 to {size - 1}.",
            )


def output_limit(served: ServedModel, request: OutputOptions, prompt_tokens: int, param: str) -> int:
    """The number of tokens that may be sampled: always explicit, never past the context (TC-4)."""
    context = served.model.context_length
    wanted = request.max_tokens
    room = context - prompt_tokens
    if room < 0 or (room == 0 and wanted != 0):
        raise Failure(
            FailureKind.CONTEXT_LENGTH_EXCEEDED,
            f"The prompt has {prompt_tokens} tokens and the context of this model is {context} tokens"
            f"{', which leaves no room for output' if room == 0 else ''}. Send a shorter prompt.",
            param=param,
        )
    if wanted is not None and wanted > room and not request.clip_to_context:
        raise Failure(
            FailureKind.CONTEXT_LENGTH_EXCEEDED,
            f"The prompt has {prompt_tokens} tokens and {wanted} more are asked for, "
            f"{prompt_tokens + wanted} in all; the context of this model is {context} tokens. "
            f"Ask for at most {room} or send a shorter prompt.",
            param="max_tokens",
        )
    limits = [limit for limit in (wanted, room) if limit is not None]
    if wanted is None and request.unset_max_tokens is not None:
        limits.append(request.unset_max_tokens)
    if wanted is None and request.model_max_tokens and served.model.default_max_tokens is not None:
        limits.append(served.model.default_max_tokens)
    limit = min(limits)
    if request.min_tokens > limit:
        unset = (
            " because 'max_tokens' is not set" if limit == request.unset_max_tokens and wanted is None else ""
        )
        raise invalid(
            "min_tokens",
            f"'min_tokens' is {request.min_tokens}, but at most {limit} tokens are generated{unset}. "
            "Lower it or raise 'max_tokens'.",
        )
    return limit


def check_tokens_named(served: ServedModel, request: OutputOptions) -> None:
    """Refuse stop IDs and biases of tokens that the model does not have."""
    check_vocabulary(served, request.stop_token_ids, "stop")
    size = served.tokenizer.vocab_size
    for token in request.sampling.logit_bias:
        if not 0 <= token < size:
            raise invalid(
                "logit_bias", f"'logit_bias' names token ID {token}; this model has IDs from 0 to {size - 1}."
            )


def stop_ids(served: ServedModel, request: OutputOptions, own: Collection[int]) -> list[int]:
    """The token IDs that end generation: the model's `own`, and the caller's.

    A stop string that spells exactly one control token stops at its ID too: control tokens are
    no text that could be matched.
    """
    tokenizer = served.tokenizer
    ids = set(request.stop_token_ids)
    if not request.ignore_eos:
        ids |= set(own)
    for stop in request.stop:
        control = tokenizer.control_id(stop)
        if control is not None:
            ids.add(control)
    return sorted(ids)


async def render(served: ServedModel, request: ChatRequest) -> RenderedPrompt:
    """A conversation as prompt IDs, by the model's own renderer."""
    renderer = served.renderer
    if renderer is None:
        raise Failure(
            FailureKind.SURFACE_UNSUPPORTED,
            f"The model '{served.model.id}' has no chat format. Send its prompts to completions.",
            param="model",
        )
    if request.tools and served.model.kind == "base":
        raise invalid(
            "tools",
            f"'{served.model.id}' is a base model, which calls no tools: leave 'tools' out.",
        )
    size = sum(_characters(message) for message in request.messages)
    if size < LONG_TEXT:
        return renderer.render(request)
    return await asyncio.to_thread(renderer.render, request)


async def chat_prompt(served: ServedModel, request: ChatRequest, rendered: RenderedPrompt) -> Prompt:
    """A rendered conversation with its images."""
    if not rendered.images:
        return Prompt(rendered.ids)
    paths = {
        id(part): part.path or f"messages[{place}].content[{number}]"
        for place, message in enumerate(request.messages)
        if isinstance(message.content, list)
        for number, part in enumerate(message.content)
        if isinstance(part, ImagePart)
    }
    sent = [SentImage(position, part, paths[id(part)]) for position, part in rendered.images]
    return await place_images(served, rendered.ids, sent, check_marks=False)


def _characters(message: Message) -> int:
    content = message.content
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) for part in content if isinstance(part, TextPart))
