"""Answers that describe models (O-4)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from onward.core.money import format_amount
from onward.routing.catalog import Model


def models_body(models: Iterable[Model]) -> bytes:
    """The list of models."""
    return msgspec.json.encode({"object": "list", "data": [_fields(model) for model in models]})


def model_body(model: Model) -> bytes:
    """One model."""
    return msgspec.json.encode(_fields(model))


def _fields(model: Model) -> dict[str, Any]:
    price = model.price
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "max_model_len": model.context_length,
        "context_length": model.context_length,
        "aliases": list(model.aliases),
        "kind": model.kind,
        "capabilities": sorted(model.capabilities),
        "renderer": model.renderer,
        "renderer_reason": model.renderer_reason,
        "price": None
        if price is None
        else {
            "input": format_amount(price.input),
            "cached_input": format_amount(price.cached_input),
            "output": format_amount(price.output),
        },
    }
