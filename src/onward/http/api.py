"""Hangs the surfaces of a dialect under its mount."""

import msgspec

from onward import __version__
from onward.dialects.openapi import openapi
from onward.dialects.schema import Dialect
from onward.http.exchange import Exchange
from onward.http.generation import Generation
from onward.http.routes import Endpoint, Route, Routes
from onward.http.served import Models
from onward.http.tokens import Tokens
from onward.wire.models import model_body, models_body


class Listing:
    """What there is to know about models."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def models(self, exchange: Exchange) -> None:
        await exchange.respond(200, models_body(self._models.visible(exchange.key)))

    async def model(self, exchange: Exchange) -> None:
        found = await self._models.target(exchange.dialect, exchange.tail, exchange.key)
        await exchange.respond(200, model_body(found.model))


def endpoints(generation: Generation, tokens: Tokens, models: Models) -> dict[str, Endpoint]:
    """What answers each surface, by the surface's name."""
    listing = Listing(models)
    return {
        "completions": generation.completions,
        "chat": generation.chat,
        "messages": generation.messages,
        "models": listing.models,
        "model": listing.model,
        "tokenize": tokens.tokenize,
        "detokenize": tokens.detokenize,
        "tokenizer_info": tokens.tokenizer_info,
        "render": tokens.render,
    }


def mount(routes: Routes, path: str, dialect: Dialect, answers: dict[str, Endpoint]) -> None:
    """Answer every surface of a dialect below `path`.

    A surface that also stands at the root does so for the first dialect that has it.
    """
    for surface in dialect.surfaces.values():
        route = Route(endpoint=answers[surface.name], surface=surface.name, dialect=dialect, table=surface)
        routes.add(surface.method, path + surface.path, route)
        if surface.at_root and not routes.has(surface.method, surface.path):
            routes.add(surface.method, surface.path, route)
    document = msgspec.json.encode(openapi(dialect, path, __version__))

    async def describe(exchange: Exchange) -> None:
        await exchange.respond(200, document)

    routes.add("GET", f"{path}/openapi.json", Route(endpoint=describe, surface="openapi", open=True))
