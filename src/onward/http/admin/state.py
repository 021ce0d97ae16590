"""`/admin/v1/models` and `deployments`: what is loaded, and how it does."""

from collections.abc import Sequence
from typing import Any

from onward.core.money import format_amount
from onward.core.price import Price
from onward.dialects import DIALECTS
from onward.http.admin.answers import answer_page
from onward.http.admin.asking import limit_of, place_of, read_query
from onward.http.admin.explain import replica_views
from onward.http.exchange import Exchange
from onward.http.served import Models, Target
from onward.serve.model import Deployment, ServedModel


class StateEndpoints:
    """What a process has loaded."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def models(self, exchange: Exchange) -> None:
        """Every model, in the order of the config."""
        await _answer_some(exchange, [_model(target) for target in await self._targets()])

    async def deployments(self, exchange: Exchange) -> None:
        """Every deployment, in the order in which they are tried."""
        targets = await self._targets()
        await _answer_some(
            exchange, [_deployment(target.model.id, one) for target in targets for one in target.deployments]
        )

    async def _targets(self) -> Sequence[Target]:
        plain = DIALECTS["openai"]
        return [await self._models.target(plain, one.id, None) for one in self._models.visible(None)]


async def _answer_some(exchange: Exchange, every: list[dict[str, Any]]) -> None:
    """A page of a list that only another config changes; its cursor is a place in it."""
    given = read_query(exchange, "limit", "cursor")
    start = place_of(given)
    end = start + limit_of(given)
    await answer_page(exchange, every[start:end], str(end) if end < len(every) else None)


def _model(target: Target) -> dict[str, Any]:
    model = target.model
    return {
        "id": model.id,
        "aliases": list(model.aliases),
        "repo": model.repo,
        "kind": model.kind,
        "capabilities": sorted(model.capabilities),
        "renderer": model.renderer,
        "renderer_reason": model.renderer_reason,
        "context_length": model.context_length,
        "default_max_tokens": model.default_max_tokens,
        "price": _price(model.price),
        "agreement": model.agreement,
        "deployments": [one.deployment for one in target.deployments],
    }


def _price(price: Price | None) -> dict[str, str] | None:
    """Per million tokens."""
    if price is None:
        return None
    return {
        "input": format_amount(price.input),
        "cached_input": format_amount(price.cached_input),
        "output": format_amount(price.output),
    }


def _deployment(model: str, one: Deployment) -> dict[str, Any]:
    named = {"name": one.deployment, "model": model}
    if isinstance(one, ServedModel):
        engine = one.engine.status()
        return named | {
            "engine": {
                "state": engine.state.value,
                "detail": engine.detail,
                "slots": engine.slots,
                "running": engine.running,
                "waiting": engine.waiting,
                "cached_prefixes": engine.cached_prefixes,
                "context_length": engine.context_length,
                "restarts": engine.restarts,
            },
            "provider": None,
        }
    provider = one.provider
    status = provider.status()
    return named | {
        "engine": None,
        "provider": {
            "name": provider.name,
            "protocol": provider.protocol.value,
            "surfaces": sorted(provider.surfaces),
            "connections": {"open": status.open, "busy": status.busy, "waiting": status.waiting},
            "replicas": replica_views(status),
        },
    }
