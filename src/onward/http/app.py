"""The ASGI application: finds the endpoint, checks the key, shows failures, keeps the record."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from onward.admission.keys import Key, Keys
from onward.core.failure import Failure, FailureKind, excerpt
from onward.core.ids import IdFactory
from onward.dialects.schema import Auth, HeaderValue
from onward.http.exchange import Disconnected, Exchange, Headers, dialect_headers, shutting_down, went_wrong
from onward.http.lifecycle import Lifecycle, Work
from onward.http.log import RequestLog
from onward.http.metrics import Metrics
from onward.http.record import Record
from onward.http.routes import Route, Routes
from onward.wire.errors import encode_failure

logger = logging.getLogger("onward")


class App:
    """Bare ASGI. Every answer carries `x-request-id`; every failure has its mount's shape."""

    def __init__(
        self,
        *,
        routes: Routes,
        keys: Keys,
        metrics: Metrics,
        log: RequestLog,
        ids: IdFactory,
        header_values: Mapping[HeaderValue, bytes],
        lifecycle: Lifecycle,
        recheck: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`header_values`: what headers of dialects hold that is the same for all requests.

        `recheck` looks for new keys before one is refused. It may raise STORE_DOWN.
        """
        self.work = Work()
        self._lifecycle = lifecycle
        self._recheck = recheck
        self._routes = routes
        self._keys = keys
        self._metrics = metrics
        self._log = log
        self._ids = ids
        self._header_values = header_values

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no application for {scope['type']}")
        exchange = Exchange(
            scope,
            receive,
            send,
            dialect=self._routes.dialect(scope["path"]),
            request_id=self._ids(),
            started=time.monotonic(),
            header_values=self._header_values,
        )
        exchange.closes = self._lifecycle.draining
        self._metrics.began()
        self.work.begin()
        route = None
        try:
            methods, exchange.tail = self._routes.find(exchange.path) or ({}, "")
            route = methods.get(exchange.method)
            await (self._not_found(exchange, methods) if route is None else self._answer(exchange, route))
        finally:
            self.work.end()
            self._metrics.ended(exchange.record)
            if route is None or not route.quiet or exchange.record.status == 500:
                self._log.write(exchange.record, time.monotonic())

    def refuse(
        self, failure: Failure, *, method: str | None, path: str | None, status: int | None, waited: float
    ) -> tuple[int, Headers, bytes]:
        """Log and count a request that the protocol refuses before it is one: `refusal.Refuse`."""
        now = time.monotonic()
        dialect = self._routes.dialect(path or "/")
        table = self._routes.table(path or "/")
        shape = table.failures if table is not None else None
        request_id = self._ids()
        encoded = encode_failure(dialect, failure, shape, request_id)
        record = Record(
            request_id=request_id,
            label=None,
            method=method or "-",
            path=path or "-",
            started=now - waited,
            status=status or encoded.status,
            failure=failure.kind,
        )
        self._metrics.began()
        self._metrics.ended(record)
        self._log.write(record, now)
        values = {**self._header_values, HeaderValue.REQUEST_ID: record.request_id.encode()}
        headers = [*encoded.headers, *dialect_headers(dialect, values, failed=True)]
        if shape is not None:
            headers.append((shape.header.encode(), request_id.encode()))
        return record.status, headers, encoded.body

    async def _not_found(self, exchange: Exchange, allow: Collection[str]) -> None:
        path = excerpt(exchange.path)
        exchange.table = self._routes.table(exchange.path)
        if not allow:
            meant = self._routes.closest(exchange.path)
            hint = f" Did you mean {meant}?" if meant else ""
            await exchange.fail(Failure(FailureKind.UNKNOWN_ROUTE, f"There is nothing at {path}.{hint}"))
            return
        allowed = ", ".join(sorted(allow))
        failure = Failure(
            FailureKind.METHOD_NOT_ALLOWED, f"{path} does not take {exchange.method}; it takes {allowed}."
        )
        await exchange.fail(failure, [(b"allow", allowed.encode())])

    async def _answer(self, exchange: Exchange, route: Route) -> None:
        exchange.record.surface = route.surface
        exchange.dialect = route.dialect or exchange.dialect
        exchange.table = route.table
        try:
            if not route.open:
                if self._lifecycle.draining:
                    raise shutting_down()
                key = exchange.key = await self._key(exchange)
                exchange.record.key = key.name if key else None
                exchange.tenant = self._keys.tenant(key)
            await route.endpoint(exchange)
        except Disconnected:
            exchange.record.disconnected = True
        except Failure as failure:
            await exchange.fail(failure)
        except asyncio.CancelledError:
            failure = shutting_down()
            exchange.record.failure = failure.kind
            if not exchange.answering:
                await exchange.fail(failure)
        except Exception:
            logger.exception("request_id=%s failed", exchange.request_id)
            exchange.record.failure = FailureKind.INTERNAL
            if exchange.answering:
                return  # the answer is cut: an end would make it look whole
            await exchange.fail(went_wrong(exchange))

    async def _key(self, exchange: Exchange) -> Key | None:
        secret = None
        for place in exchange.dialect.auth:
            secret = secret or _secret(exchange.headers, place)
        try:
            key = self._keys.find(secret)
        except Failure as unknown:
            if secret is None or self._recheck is None or unknown.kind is not FailureKind.INVALID_KEY:
                raise
            key = None
        if key is None and secret is not None and self._recheck is not None:
            await self._recheck()  # it may be new, or the first there ever was
            key = self._keys.find(secret)
        return key


def _secret(headers: dict[bytes, bytes], place: Auth) -> str | None:
    if place is Auth.X_API_KEY:
        return headers.get(b"x-api-key", b"").decode("latin-1") or None
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else None
