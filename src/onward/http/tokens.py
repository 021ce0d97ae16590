"""Endpoints about tokens that generate nothing (O-4): tokenize, detokenize, render, tokenizer_info."""

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

from onward.core.failure import Failure, FailureKind
from onward.core.tokenizing import DetokenizeRequest, TokenizeRequest
from onward.http.exchange import Exchange, HeldBodies
from onward.http.generation import read_request
from onward.http.limits import Limits
from onward.http.served import Models
from onward.serve.model import ServedModel
from onward.serve.prompts import LONG_TEXT, check_vocabulary, render
from onward.wire.requests import detokenize_request, render_request, tokenize_request
from onward.wire.tokens import detokenize_body, render_body, tokenize_body, tokenizer_info_body

_LONGEST_TEXT = 2_000_000
_MANY_TOKENS = 16_384


class Tokens:
    """Texts and conversations to token IDs and back. `templates` is by model ID."""

    def __init__(
        self, models: Models, templates: Mapping[str, str | None], limits: Limits, held: HeldBodies
    ) -> None:
        self._models = models
        self._templates = templates
        self._limits = limits
        self._held = held

    async def tokenize(self, exchange: Exchange) -> None:
        request: TokenizeRequest = await read_request(exchange, self._limits, self._held, tokenize_request)
        served = await self._find(exchange, request.model)
        if request.chat is not None:
            ids = (await render(served, request.chat)).ids
        else:
            ids = await self._encode(served, request.prompt or "", request.add_special_tokens)
        await exchange.respond(200, tokenize_body(ids, served.model.context_length))

    async def detokenize(self, exchange: Exchange) -> None:
        request: DetokenizeRequest = await read_request(
            exchange, self._limits, self._held, detokenize_request
        )
        served = await self._find(exchange, request.model)
        check_vocabulary(served, request.tokens, "tokens")
        if len(request.tokens) < _MANY_TOKENS:
            text = served.tokenizer.decode(request.tokens)
        else:
            text = await asyncio.to_thread(served.tokenizer.decode, request.tokens)
        await exchange.respond(200, detokenize_body(text))

    async def render(self, exchange: Exchange) -> None:
        request = await read_request(exchange, self._limits, self._held, render_request)
        served = await self._find(exchange, request.model)
        prompt = await render(served, request)
        text = served.tokenizer.decode(prompt.ids)
        await exchange.respond(200, render_body(prompt.ids, text, prompt.stop_token_ids))

    async def tokenizer_info(self, exchange: Exchange) -> None:
        query = parse_qs(exchange.head.query.decode("latin-1"), max_num_fields=20)
        served = await self._find(exchange, query.get("model", [""])[0])
        tokenizer = served.tokenizer

        def spelled(token: int | None) -> str | None:
            return None if token is None else tokenizer.spelling(token)

        body = tokenizer_info_body(
            bos_token=spelled(tokenizer.bos_id),
            eos_token=spelled(tokenizer.eos_id),
            pad_token=spelled(tokenizer.pad_id),
            chat_template=self._templates[served.model.id],
            vocab_size=tokenizer.vocab_size,
        )
        await exchange.respond(200, body)

    async def _find(self, exchange: Exchange, reference: str) -> ServedModel:
        served = await self._models.served(exchange.dialect, reference or None, exchange.key)
        exchange.record.model = served.model.id
        return served

    @staticmethod
    async def _encode(served: ServedModel, text: str, special: bool) -> list[int]:
        if len(text) > _LONGEST_TEXT:
            raise Failure(
                FailureKind.INVALID_REQUEST,
                f"'prompt' has {len(text)} characters; at most {_LONGEST_TEXT} are taken. Send it in pieces.",
                param="prompt",
            )
        tokenizer = served.tokenizer

        def encode() -> list[int]:
            return tokenizer.encode_prompt(text) if special else tokenizer.encode(text, control=True)

        return encode() if len(text) <= LONG_TEXT else await asyncio.to_thread(encode)
