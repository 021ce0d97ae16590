"""The admin API of an HTTP process: its token, what it tells of the config, and what it works on."""

import os
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onward import __version__
from onward.admission.roster import Roster
from onward.admission.store import Store
from onward.core.clock import SystemClock
from onward.core.failure import Failure
from onward.dialects import DIALECTS
from onward.http.admin.admin import Admin, Token
from onward.http.admin.reload import Reload
from onward.http.exchange import HeldBodies
from onward.http.served import Models
from onward.routing.breaker import Breakers
from onward.wiring import config as settings
from onward.wiring.admission import Admission
from onward.wiring.directory import keys_of, tenants_of


def admin_of(
    config: settings.Config,
    models: Models,
    breakers: Breakers,
    *,
    held: HeldBodies,
    admission: Admission,
    store: Store | None,
    reload: Reload | None = None,
) -> Admin:
    """The endpoints of operators over what a process has."""

    async def changed() -> None:
        """Let a new key in, and keep a revoked one out, from this moment on."""
        with suppress(Failure):  # it is asked again within a second anyway
            await admission.refresh()

    return Admin(
        token=Token.of(config.server.admin_token_env, os.environ.get(config.server.admin_token_env)),
        roster=Roster(
            store,
            keys=keys_of(config),
            tenants=tenants_of(config),
            models=frozenset(model.id for model in models.visible(None)),
            clock=SystemClock(),
        ),
        store=store,
        gate=admission.gate,
        models=models,
        breakers=breakers,
        dialects=[DIALECTS[name] for name in config.dialects],
        config=config_view(config),
        held=held,
        changed=changed,
        reload=reload,
    )


def config_view(config: settings.Config) -> dict[str, Any]:
    """What operators are told of a loaded config: all of it but hashes of keys and what addresses hide."""
    shown = msgspec.to_builtins(config)
    for key in shown["keys"]:
        del key["sha256"]
    return {"onward": __version__, "version": config.version, "config": _without_secrets(shown)}


def _without_secrets(value: Any) -> Any:
    """`value` without the user, password and parameters of every address in it."""
    if isinstance(value, dict):
        return {name: _without_secrets(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]
    return _bare(value) if isinstance(value, str) and "://" in value else value


def _bare(address: str) -> str:
    """An address of which only what tells nobody a secret is left."""
    parts = urlsplit(address)
    if "@" in parts.path + parts.query + parts.fragment:  # an unescaped password may have been cut anywhere
        return f"{parts.scheme}://…"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
