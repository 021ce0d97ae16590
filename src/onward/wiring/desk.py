"""The store of a config for a command: opened beside a server that may be running, and closed again."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from onward.admission.roster import Roster
from onward.admission.store import Store
from onward.core.clock import SystemClock
from onward.wiring import config as settings
from onward.wiring import config_check
from onward.wiring.authority import open_store
from onward.wiring.directory import keys_of, tenants_of
from onward.wiring.listen import ServeError

_OURS: Final = ("store.", "tenants[", "keys[")
"""What a command needs of a config; what else is wrong with it keeps the server from starting."""


class Desk(msgspec.Struct, frozen=True):
    """What a command of an operator works on."""

    store: Store
    roster: Roster
    place: str
    """Where the store is, without a secret."""


@asynccontextmanager
async def desk(path: str | None, *, makes: bool = False) -> AsyncGenerator[Desk]:
    """The store of a config file, None: of the default config in this folder.

    `makes`: a file that is not there yet is made. Raises `ConfigError` and `ServeError`.
    """
    config = read_config(path)
    place = _place(config, makes=makes)
    store = await open_store(config, owner=False)
    if store is None:
        raise ServeError("[store] url is none, so nothing is written down. Name a store there")
    try:
        roster = Roster(
            store,
            keys=keys_of(config),
            tenants=tenants_of(config),
            models=frozenset(model.id for model in config.models),
            clock=SystemClock(),
        )
        yield Desk(store, roster, place)
    finally:
        await store.close()


def _place(config: settings.Config, *, makes: bool) -> str:
    kind, _, rest = config.store.url.partition(":")
    if kind != "sqlite":
        return kind
    if not makes and not Path(rest).exists():
        raise ServeError(
            f"there is no store {rest}. Go to the folder of the server, or name its config with --config"
        )
    return rest


def read_config(path: str | None) -> settings.Config:
    """A config as far as a command needs it: secrets that only the server has in its environment may be
    missing. Raises `ConfigError`.
    """
    config, faults = settings.read(path, settings.Overrides())
    for fault in config_check.without_echoes(config_check.faults_of(config), faults):
        place = fault.partition(": ")[0]
        if place.startswith(_OURS) and not place.endswith("_env"):
            faults.append(fault)
    if faults:
        raise settings.ConfigError(faults)
    return config
