"""What a config says of stores, providers, tenants and keys that its types cannot rule out."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from onward.core.money import parse_amount
from onward.wiring.config_read import closest

if TYPE_CHECKING:
    from onward.wiring.config import Config, Key, Provider, Tenant

SHORTEST_SECRET = 16
_ROUTES = {"openai": ("completions", "chat"), "anthropic": ("messages",)}
_MORE_ROUTES = {"openai": ("messages",), "anthropic": ()}
"""Those that some servers have besides: named, they are used as they are."""
NOT_YET = "is not available in this version; leave it out"


def routes_of(provider: "Provider") -> frozenset[str]:
    """The routes that a provider has: those that it names, or all of its protocol."""
    return frozenset(provider.surfaces or _ROUTES[provider.protocol])


def store_faults(config: "Config") -> Iterator[str]:
    """Faults of where things are kept."""
    store = config.store
    kind, _, rest = store.url.partition(":")
    if kind == "sqlite":
        if not rest:
            yield "store.url: names no file; write sqlite:onward.db"
        elif rest.startswith("//"):
            yield "store.url: the file follows the colon; write sqlite:onward.db or sqlite:/var/lib/onward.db"
        elif not Path(rest).parent.is_dir():
            yield f"store.url: there is no folder {Path(rest).parent}; make it, or name another file"
        elif Path(rest).is_dir():
            yield f"store.url: {rest} is a folder; name a file"
    elif kind in {"postgresql", "postgres"} and rest.startswith("//"):
        if not urlsplit(store.url).path.strip("/"):
            yield "store.url: names no database; write postgresql://user:password@host/database"
    elif store.url != "none":
        yield "store.url: must be sqlite:FILE, postgresql://user:password@host/database, or none"
    if store.limits != "memory" and urlsplit(store.limits).scheme not in {"redis", "rediss", "unix"}:
        yield "store.limits: must be memory, or an address such as redis://host:6379/0"
    if store.url == "none":
        for n, tenant in enumerate(config.tenants):
            if tenant.balance is not None or tenant.monthly_budget is not None:
                yield f"tenants[{n}]: money is counted in a store, and store.url is none"
        for n, key in enumerate(config.keys):
            if key.monthly_cap is not None:
                yield f"keys[{n}].monthly_cap: money is counted in a store, and store.url is none"


def provider_faults(provider: "Provider", path: str) -> Iterator[str]:
    """Faults of one provider."""
    if provider.base_url and provider.base_urls:
        yield f"{path}.base_urls: not beside base_url; write all addresses into base_urls"
    elif not provider.base_url and not provider.base_urls:
        yield f"{path}.base_url: is missing"
    if provider.base_url:
        yield from _address_faults(provider.base_url, f"{path}.base_url")
    for n, url in enumerate(provider.base_urls):
        yield from _address_faults(url, f"{path}.base_urls[{n}]")
        if url.rstrip("/") in [other.rstrip("/") for other in provider.base_urls[:n]]:
            yield f"{path}.base_urls[{n}]: stands there twice"
    if provider.api_key_env:
        secret = os.environ.get(provider.api_key_env, "")
        if not secret:
            yield f"{path}.api_key_env: the environment variable {provider.api_key_env} is not set"
        elif not secret.isascii() or not secret.isprintable() or " " in secret:
            yield f"{path}.api_key_env: the key in {provider.api_key_env} must be visible ASCII characters"
    for n, surface in enumerate(provider.surfaces):
        if surface not in (*_ROUTES[provider.protocol], *_MORE_ROUTES[provider.protocol]):
            yield f"{path}.surfaces[{n}]: a provider that speaks {provider.protocol} has no {surface}"
        elif surface in provider.surfaces[:n]:
            yield f"{path}.surfaces[{n}]: {surface} stands there twice"


def _address_faults(url: str, path: str) -> Iterator[str]:
    try:
        address = urlsplit(url)
        good = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
        good = good and address.username is None and not address.query and not address.fragment
    except ValueError:
        good = False
    if not good:
        yield f"{path}: must be an address such as https://api.example.com/v1, and hold no secret"
    elif url.rstrip("/").endswith(("/completions", "/chat", "/messages")):
        yield f"{path}: must end above the routes, as in https://api.example.com/v1"


def routing_faults(config: "Config") -> Iterator[str]:
    """Faults of when deployments rest."""
    routing = config.routing
    if routing.breaker_open_most_s < routing.breaker_open_s:
        yield f"routing.breaker_open_most_s: is less than breaker_open_s ({routing.breaker_open_s:g})"


def tenant_faults(config: "Config", tenant: "Tenant", path: str) -> Iterator[str]:
    """Faults of one tenant."""
    for name in ("balance", "monthly_budget"):
        yield from amount_faults(getattr(tenant, name), f"{path}.{name}")
    if not tenant.name.isprintable():
        yield f"{path}.name: must be visible characters"
    models = [model.id for model in config.models]
    for n, model in enumerate(tenant.agreements):
        if model not in models:
            yield f"{path}.agreements[{n}]: there is no model with the ID {model}{closest(model, models)}"


def key_faults(config: "Config", key: "Key", path: str) -> Iterator[str]:
    """Faults of one key."""
    if bool(key.secret_env) == bool(key.sha256):
        yield f"{path}: needs secret_env or sha256, and not both; `onward keys new NAME` makes one"
    if key.secret_env:
        secret = os.environ.get(key.secret_env, "")
        if not secret:
            yield f"{path}.secret_env: the environment variable {key.secret_env} is not set"
        elif (
            len(secret) < SHORTEST_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret
        ):
            yield (
                f"{path}.secret_env: the key in {key.secret_env} must have {SHORTEST_SECRET} or more visible"
                " ASCII characters; `onward keys new NAME` makes one"
            )
    tenants = [tenant.name for tenant in config.tenants]
    if key.tenant is not None and key.tenant not in tenants:
        yield f"{path}.tenant: there is no tenant {key.tenant}{closest(key.tenant, tenants)}"
    models = [model.id for model in config.models]
    for n, model in enumerate(key.models or []):
        if model not in models:
            yield f"{path}.models[{n}]: there is no model with the ID {model}{closest(model, models)}"
    if key.models == []:
        yield f"{path}.models: is empty, so that the key could use nothing; leave it out for all models"
    yield from amount_faults(key.monthly_cap, f"{path}.monthly_cap")


def amount_faults(text: str | None, path: str) -> Iterator[str]:
    """What is wrong with a decimal string of money."""
    if text is not None:
        try:
            parse_amount(text)
        except ValueError as error:
            yield f"{path}: {error}"
