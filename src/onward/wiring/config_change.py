"""What differs between two configs, and what of it a running server cannot take up."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from onward.wiring.config import Config

FIXED: Final = (
    "server.host",
    "server.port",
    "server.workers",
    "server.admin_token_env",
    "server.log_format",
    "store.url",
    "store.limits",
    "store.durability",
    "billing.currency",
)
"""Settings that a server has from its start to its end."""
_NAMED: Final = {"providers": "name", "models": "id", "tenants": "name", "keys": "name"}


class Change(msgspec.Struct, frozen=True):
    """What a reload did: settings by their path, models by their ID, all else by its name."""

    added: list[str]
    removed: list[str]
    changed: list[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def fixed_faults(running: Config, wanted: Config) -> Iterator[str]:
    """A line for each setting that only a restart changes."""
    for path in FIXED:
        section, _, name = path.partition(".")
        if getattr(getattr(running, section), name) != getattr(getattr(wanted, section), name):
            yield f"{path}: cannot change while the server runs; restart for this, or put back what it was"


def change_of(before: Config, after: Config) -> Change:
    """What is new, gone or different."""
    old, new = dict(_parts(before)), dict(_parts(after))
    return Change(
        added=[path for path in new if path not in old],
        removed=[path for path in old if path not in new],
        changed=[path for path in new if path in old and old[path] != new[path]],
    )


def _parts(config: Config) -> Iterator[tuple[str, Any]]:
    for section in config.__struct_fields__:
        value = getattr(config, section)
        if isinstance(value, msgspec.Struct):
            yield from ((f"{section}.{name}", getattr(value, name)) for name in value.__struct_fields__)
        elif isinstance(value, dict):
            yield from ((f"{section}.{name}", one) for name, one in value.items())
        else:
            yield from ((f"{section}.{getattr(one, _NAMED[section])}", one) for one in value)
