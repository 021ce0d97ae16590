"""The providers of a config, each with its connections, and with what is remembered of its replicas."""

import logging
import os
import time
from collections.abc import Callable

from onward.providers.anthropic import AnthropicProvider
from onward.providers.openai import OpenAiProvider
from onward.providers.protocol import Protocols, Provider
from onward.providers.replicas import Replicas
from onward.routing.breaker import Breakers, Policy
from onward.wiring import config as settings
from onward.wiring.gateway_check import routes_of

logger = logging.getLogger("onward")
_PROTOCOLS = {Protocols.OPENAI: OpenAiProvider, Protocols.ANTHROPIC: AnthropicProvider}


def providers_of(config: settings.Config) -> dict[str, Provider]:
    """Every provider, by name."""
    policy = policy_of(config.routing)
    return {one.name: provider_of(one, policy) for one in config.providers}


def provider_of(
    config: settings.Provider,
    policy: Policy | None = None,
    rests: Callable[[str, str, float | None], None] | None = None,
) -> Provider:
    """One provider. `policy`: when a replica rests. `rests` is told for how many seconds one does, by the
    names of both; None: it rests no more.
    """
    if not config.base_urls:
        return _at(config, config.base_url)

    def changed(replica: str, seconds: float | None) -> None:
        name = f"provider={config.name} replica={replica}"
        if rests is not None:
            rests(config.name, replica, seconds)
        if seconds is None:
            logger.info("%s answers again", name)
        else:
            logger.warning("%s rests for %g s", name, seconds)

    health = Breakers(policy or Policy(), time.monotonic, changed)
    return Replicas([_at(config, url) for url in config.base_urls], health)


def policy_of(routing: settings.Routing) -> Policy:
    """When deployments rest."""
    return Policy(
        failures=routing.breaker_failures,
        open_s=routing.breaker_open_s,
        open_most_s=routing.breaker_open_most_s,
        retry_after_most_s=routing.retry_after_most_s,
    )


def _at(config: settings.Provider, url: str) -> Provider:
    return _PROTOCOLS[Protocols(config.protocol)](
        name=config.name,
        base_url=url,
        api_key=os.environ.get(config.api_key_env) if config.api_key_env else None,
        surfaces=routes_of(config),
        connect_timeout_s=config.connect_timeout_s,
        first_byte_timeout_s=config.first_byte_timeout_s,
        idle_timeout_s=config.idle_timeout_s,
        connections=config.connections,
    )
