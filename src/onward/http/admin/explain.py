"""`/admin/v1/models/{id}/explain`: where a request would go now, and why, as this process sees it."""

import os
from collections.abc import Sequence
from typing import Any, Final

from onward.dialects import DIALECTS
from onward.dialects.schema import Dialect
from onward.http.admin.answers import answer
from onward.http.admin.asking import read_query
from onward.http.exchange import Exchange
from onward.http.served import Models, Target
from onward.http.tries import in_order, is_up
from onward.providers.protocol import ProviderStatus
from onward.routing.breaker import Breakers, State, View
from onward.serve.model import Deployment, ProxiedModel, ServedModel
from onward.wire.translating.ways import WAYS

_NEEDS: Final = {"completions": "completions", "chat": "chat", "messages": "chat"}
"""What a model must declare for each generating surface."""
_LAST: Final = "asked only where no other can answer"


class ExplainEndpoint:
    """Nothing is asked of anybody: what is told is what the requests so far have shown."""

    def __init__(self, models: Models, breakers: Breakers, dialects: Sequence[Dialect]) -> None:
        """`dialects`: those that are served."""
        self._models = models
        self._breakers = breakers
        self._dialects = dialects

    async def explain(self, exchange: Exchange) -> None:
        """One model. Raises UNKNOWN_MODEL."""
        read_query(exchange)
        target = await self._models.target(DIALECTS["openai"], exchange.tail, None)
        primaries = self._models.primaries()
        shown = {
            "model": target.model.id,
            "process": os.getpid(),
            "deployments": [
                {"name": one.deployment, "primary": one.deployment in primaries, **self._health(one)}
                for one in target.deployments
            ],
            "routes": [
                self._route(dialect, name, target)
                for dialect in self._dialects
                for name in dialect.surfaces
                if name in _NEEDS
            ],
        }
        await answer(exchange, shown)

    def _route(self, dialect: Dialect, surface: str, target: Target) -> dict[str, Any]:
        """Who is asked on one route of one API, in this order, and who is not."""
        reasons = {one.deployment: cannot(dialect, surface, one) for one in target.deployments}
        able = [one for one in target.deployments if reasons[one.deployment] is None]
        return {
            "dialect": dialect.name,
            "surface": surface,
            "asked": [
                {
                    "deployment": one.deployment,
                    "translated": translated(dialect, surface, one),
                    "why": self._why(one),
                }
                for one in in_order(self._breakers, able)
            ],
            "not_asked": [
                {"deployment": name, "why": reason} for name, reason in reasons.items() if reason is not None
            ],
        }

    def _health(self, one: Deployment) -> dict[str, Any]:
        shown = {
            "breaker": breaker_view(self._breakers.view(one.deployment)),
            "engine": None,
            "provider": None,
        }
        if isinstance(one, ServedModel):
            status = one.engine.status()
            shown["engine"] = {"state": status.state.value, "detail": status.detail}
        else:
            replicas = replica_views(one.provider.status())
            shown["provider"] = {"name": one.provider.name, "replicas": replicas}
        return shown

    def _why(self, one: Deployment) -> str:
        if not is_up(one):
            assert isinstance(one, ServedModel)  # noqa: S101 - a provider is always up
            return f"its engine is {one.engine.status().state.value}: {_LAST}"
        return _told(self._breakers.view(one.deployment))


def cannot(dialect: Dialect, surface: str, one: Deployment) -> str | None:
    """Why a deployment is not asked on a route, whatever its health; None: it is."""
    needed = _NEEDS[surface]
    if needed not in one.model.capabilities:
        return f"the model does not declare {needed}"
    if isinstance(one, ProxiedModel):
        if surface not in dialect.passed:
            return f"{dialect.name} asks engines of ours alone"
        if surface not in one.provider.surfaces and translated(dialect, surface, one) is None:
            return f"the provider {one.provider.name} has no {surface}"
    elif needed == "chat" and one.renderer is None:
        return "it has no chat format"
    return None


def translated(dialect: Dialect, surface: str, one: Deployment) -> str | None:
    """What a provider is asked for instead, where it has no such route; None: for what the caller asked."""
    if not isinstance(one, ProxiedModel) or surface in one.provider.surfaces:
        return None
    way = WAYS.get(surface)
    possible = way is not None and dialect.passing.translates and way.surface in one.provider.surfaces
    return way.surface if way is not None and possible else None


def breaker_view(view: View) -> dict[str, Any]:
    """A breaker, as operators see it."""
    return {
        "state": view.state.value,
        "failures": view.failures,
        "last_failure": None if view.last_failure is None else view.last_failure.value,
        "last_failure_s": None if view.last_failure_s is None else round(view.last_failure_s, 3),
        "probe_s": None if view.probe_s is None else round(view.probe_s, 3),
        "probing": view.probing,
    }


def replica_views(status: ProviderStatus) -> list[dict[str, Any]]:
    """The addresses of a provider that has several, by their place in the config."""
    return [
        {
            "name": one.name,
            "in_flight": one.in_flight,
            "connections": {"open": one.open, "busy": one.busy, "waiting": one.waiting},
            "breaker": breaker_view(one.health),
        }
        for one in status.replicas
    ]


def _told(view: View) -> str:
    """The state of a breaker in words."""
    if not view.failures and view.state is State.CLOSED:
        return "healthy"
    count = f"{view.failures} failure{'s' if view.failures != 1 else ''} in a row"
    last = (
        f", the last {view.last_failure.value} {view.last_failure_s:.1f} s ago" if view.last_failure else ""
    )
    if view.state is State.CLOSED:
        return count + last
    if view.probing:
        return f"a request finds out whether it has recovered from {count}{last}: until then {_LAST}"
    if view.state is State.HALF_OPEN:
        return f"the next request finds out whether it has recovered from {count}{last}"
    return f"rests for {view.probe_s:.1f} s more after {count}{last}: {_LAST}"
