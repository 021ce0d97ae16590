"""The application: finds the endpoint, checks the key, shows failures, keeps the record."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from onward.admission.keyring import Keys
from onward.admission.keys import Key, digest
from onward.core.failure import Failure, FailureKind, excerpt
from onward.core.ids import IdFactory
from onward.dialects.schema import Auth, HeaderValue
from onward.http.cycle import Connection
from onward.http.exchange import (
    Disconnected,
    Exchange,
    Headers,
    Labels,
    dialect_headers,
    shutting_down,
    went_wrong,
)
from onward.http.head import Head
from onward.http.lifecycle import Lifecycle, Work
from onward.http.log import RequestLog
from onward.http.metrics import Metrics
from onward.http.record import Record
from onward.http.routes import Routes
from onward.wire.errors import encode_failure

logger = logging.getLogger("onward")


class _Known:
    """What is known of all requests with one header."""

    __slots__ = ("dialect", "digest", "labels", "methods", "owner", "route", "tail")

    def __init__(self, owner: "App", head: Head, routes: Routes, labels: Labels) -> None:
        self.owner = owner
        self.labels = labels
        self.methods, self.tail = routes.find(head.path) or ({}, "")
        self.route = self.methods.get(head.method)
        own = None if self.route is None else self.route.dialect
        self.dialect = own or routes.dialect(head.path)
        secret = None
        for place in self.dialect.auth:
            secret = secret or _secret(head.fields, place)
        self.digest = digest(secret) if secret else None
        """Of the key that was sent."""


class App:
    """Answers requests. Every answer carries `x-request-id`; every failure has its mount's shape."""

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

    def open(self, connection: Connection, head: Head, length: int | None, body: bytes | None) -> Exchange:
        """See `shared.Application`."""
        known: _Known | None = head.known
        if known is None or known.owner is not self:
            known = head.known = _Known(self, head, self._routes, Labels(head, self._header_values))
        self.work.begin()
        return Exchange(
            self,
            connection,
            head,
            length,
            body,
            known.labels,
            known.dialect,
            self._ids(),
            time.monotonic(),
        )

    async def answer(self, exchange: Exchange) -> None:
        """See `cycle.Answering`. An answer that is not whole in the end is cut."""
        known: _Known = exchange.head.known  # of `open`
        route, record = known.route, exchange.record
        self._metrics.began()
        if self._lifecycle.draining:
            exchange.keep_alive = False
        try:
            if route is None:
                await self._not_found(exchange, known.methods)
                return
            record.surface = route.surface
            exchange.table = route.table
            exchange.tail = known.tail
            if not route.open:
                self._check_open()
                key = self._keys.known(known.digest) or await self._key(known.digest)
                if key is not None:
                    exchange.key = key
                    record.key = key.name
                    if key.tenant is not None:
                        exchange.tenant = self._keys.tenant(key)
            await route.endpoint(exchange)
        except Disconnected:
            record.disconnected = True
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is answered
            await self._fail(exchange, error)
        finally:
            self.work.end()
            self._metrics.ended(record)
            if route is None or not route.quiet or record.status == 500:
                self._log.write(record, time.monotonic())
            exchange.over()

    async def _fail(self, exchange: Exchange, error: BaseException) -> None:
        """Answer a request that has failed. Raises nothing."""
        try:
            if isinstance(error, Failure):
                await exchange.fail(error)
                return
            if isinstance(error, asyncio.CancelledError):
                failure = shutting_down()
            else:
                failure = went_wrong(exchange)
                logger.error("request_id=%s failed", exchange.request_id, exc_info=error)
            exchange.record.failure = failure.kind
            if not exchange.answering:  # else it is cut: an end would make it look whole
                await exchange.fail(failure)
        except asyncio.CancelledError:
            pass  # the server ends
        except Exception:
            logger.exception("request_id=%s failed where none may", exchange.request_id)

    def drop(self, exchange: Exchange) -> None:
        """See `cycle.Answering`."""
        del exchange
        self.work.end()

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
        headers = [
            *encoded.headers,
            *dialect_headers(dialect, self._header_values, request_id, failed=True),
        ]
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

    def _check_open(self) -> None:
        if self._lifecycle.draining:
            raise shutting_down()

    async def _key(self, wanted: bytes | None) -> Key | None:
        """The key of a digest that is not known, or is not needed. Raises `Failure`."""
        try:
            key = self._keys.find_digest(wanted)
        except Failure as unknown:
            if wanted is None or self._recheck is None or unknown.kind is not FailureKind.INVALID_KEY:
                raise
            key = None
        if key is None and wanted is not None and self._recheck is not None:
            await self._recheck()  # it may be new, or the first there ever was
            key = self._keys.find_digest(wanted)
        return key


def _secret(headers: Mapping[bytes, bytes], place: Auth) -> str | None:
    if place is Auth.X_API_KEY:
        return headers.get(b"x-api-key", b"").decode("latin-1") or None
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else None
