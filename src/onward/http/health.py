"""Probes, metrics and the plain pages at the root."""

import asyncio
from collections.abc import Callable

import msgspec

from onward import __version__
from onward.http.exchange import Exchange, Headers
from onward.http.lifecycle import Lifecycle
from onward.http.metrics import CONTENT_TYPE, Metrics
from onward.http.routes import Route, Routes
from onward.http.served import Models

_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
_BUSY: Headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]


class Health:
    """`/healthz` says that the process lives, `/readyz` that it can answer, or why not."""

    def __init__(
        self,
        models: Models,
        metrics: Metrics,
        lifecycle: Lifecycle,
        mounts: list[str],
        troubles: Callable[[], list[str]],
    ) -> None:
        """`troubles`: why nothing can be admitted, in words."""
        self._models = models
        self._troubles = troubles
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._mounts = mounts

    def add_to(self, routes: Routes) -> None:
        """Hang every page at its path."""
        for path, endpoint in (
            ("/healthz", self.healthz),
            ("/health", self.readyz),
            ("/readyz", self.readyz),
            ("/metrics", self.metrics),
            ("/version", self.version),
            ("/", self.index),
        ):
            routes.add("GET", path, Route(endpoint=endpoint, surface=path, open=True, quiet=True))

    async def healthz(self, exchange: Exchange) -> None:
        await exchange.respond(200, b'{"status":"ok"}')

    async def readyz(self, exchange: Exchange) -> None:
        lifecycle = self._lifecycle
        reasons = ["shutting down"] if lifecycle.draining else self._models.unready(lifecycle.newcomers)
        reasons += self._troubles()
        if reasons:
            body = msgspec.json.encode({"status": "not ready", "reasons": reasons})
            await exchange.respond(503, body, list(_BUSY))
        else:
            await exchange.respond(200, b'{"status":"ready"}')

    async def metrics(self, exchange: Exchange) -> None:
        self._metrics.hand_on()
        text = await asyncio.to_thread(self._metrics.text)
        await exchange.respond(200, text, [(b"content-type", CONTENT_TYPE)])

    async def version(self, exchange: Exchange) -> None:
        await exchange.respond(200, msgspec.json.encode({"version": __version__}))

    async def index(self, exchange: Exchange) -> None:
        lines = [f"Onward {__version__} serves language models here.", ""]
        lines += [f"API: {mount}  (description: {mount}/openapi.json)" for mount in self._mounts]
        lines += ["Probes: /healthz /readyz   Metrics: /metrics", ""]
        await exchange.respond(200, "\n".join(lines).encode(), list(_TEXT))
