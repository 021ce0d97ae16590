"""`/admin/v1`: who may ask, and which endpoint answers what."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from onward.admission.gate import Gate
from onward.admission.keys import digest
from onward.admission.roster import SHORTEST_TOKEN, Roster
from onward.admission.store import Store
from onward.core.failure import Failure, FailureKind, excerpt
from onward.dialects import DIALECTS
from onward.dialects.schema import Dialect
from onward.http.admin.explain import ExplainEndpoint
from onward.http.admin.keys import KeyEndpoints
from onward.http.admin.ledger import LedgerEndpoints
from onward.http.admin.reload import ConfigEndpoints, Reload
from onward.http.admin.state import StateEndpoints
from onward.http.admin.tenants import TenantEndpoints
from onward.http.exchange import Exchange, HeldBodies
from onward.http.routes import Endpoint, Route, Routes
from onward.http.served import Models
from onward.routing.breaker import Breakers

MOUNT: Final = "/admin/v1"
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Token(msgspec.Struct, frozen=True):
    """What opens the admin API. It stands in an environment variable of the server."""

    variable: str
    digest: bytes | None
    """None: it is not set, and the admin API is off."""

    @classmethod
    def of(cls, variable: str, secret: str | None) -> "Token":
        """The token in a variable."""
        return cls(variable, digest(secret) if secret else None)

    def check(self, exchange: Exchange) -> None:
        """Raises `Failure` unless the request carries it. What is compared takes the same time for all."""
        if self.digest is None:
            raise Failure(
                FailureKind.UNKNOWN_ROUTE,
                f"The admin API is off. Set {self.variable} in the server's environment to a random"
                f" token of {SHORTEST_TOKEN} or more characters, and start the server again.",
            )
        scheme, _, secret = (exchange.header(b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Failure(
                FailureKind.INVALID_KEY,
                "No admin token was sent. Send it as 'Authorization: Bearer TOKEN'.",
            )
        if not hmac.compare_digest(self.digest, digest(secret.strip())):
            raise Failure(
                FailureKind.INVALID_KEY,
                f"This is not the admin token. It is what {self.variable} holds in the server's environment.",
            )


class Admin:
    """Every endpoint of operators. Failures have OpenAI's shape, whatever dialects are served."""

    def __init__(
        self,
        *,
        token: Token,
        roster: Roster,
        store: Store | None,
        gate: Gate,
        models: Models,
        breakers: Breakers,
        dialects: Sequence[Dialect],
        config: dict[str, Any],
        held: HeldBodies,
        changed: Callable[[], Awaitable[None]],
        reload: Reload | None = None,
    ) -> None:
        """`dialects`: those that are served. `config`: what is told of it.

        `changed`: awaited after a key or tenant changed.
        """
        self._token = token
        keys = KeyEndpoints(roster, held, changed)
        tenants = TenantEndpoints(roster, held, changed)
        ledger = LedgerEndpoints(store, gate, roster, held)
        state = StateEndpoints(models)
        settings = ConfigEndpoints(config, held, reload)
        self.endpoints: dict[tuple[str, str], Endpoint] = {
            ("GET", "/keys"): keys.list,
            ("POST", "/keys"): keys.create,
            ("GET", "/keys/{id}"): keys.show,
            ("PATCH", "/keys/{id}"): keys.change,
            ("DELETE", "/keys/{id}"): keys.revoke,
            ("GET", "/tenants"): tenants.list,
            ("POST", "/tenants"): tenants.create,
            ("GET", "/tenants/{name}"): tenants.show,
            ("PATCH", "/tenants/{name}"): tenants.change,
            ("DELETE", "/tenants/{name}"): tenants.suspend,
            ("POST", "/tenants/{name}/credits"): tenants.credit,
            ("GET", "/ledger"): ledger.entries,
            ("GET", "/usage"): ledger.usage,
            ("GET", "/requests"): ledger.running,
            ("DELETE", "/requests/{request_id}"): ledger.cancel,
            ("GET", "/models"): state.models,
            ("GET", "/models/{id}/explain"): ExplainEndpoint(models, breakers, dialects).explain,
            ("GET", "/deployments"): state.deployments,
            ("GET", "/config"): settings.show,
            ("POST", "/config/reload"): settings.reload,
        }
        """By method and path below `MOUNT`."""

    def add_to(self, routes: Routes) -> None:
        """Hang every endpoint at its path, and say no to the token-less anywhere below."""
        for (method, path), endpoint in self.endpoints.items():
            routes.add(
                method, MOUNT + path, self._route(endpoint, f"admin{path.partition('{')[0].rstrip('/')}")
            )
        for method in _METHODS:
            routes.add(method, f"{MOUNT}/{{rest}}", self._route(_nothing, "admin"))

    def _route(self, endpoint: Endpoint, surface: str) -> Route:
        async def guarded(exchange: Exchange) -> None:
            self._token.check(exchange)
            await endpoint(exchange)

        return Route(endpoint=guarded, surface=surface, dialect=DIALECTS["openai"], open=True)


async def _nothing(exchange: Exchange) -> None:
    raise Failure(FailureKind.UNKNOWN_ROUTE, f"There is nothing at {excerpt(exchange.path)}.")
