"""`onward check` and `onward keys`: what goes into a config."""

import argparse
import hashlib
import secrets
import sys

import msgspec

from onward.cli.error import CommandError
from onward.wiring import config


def check(chosen: argparse.Namespace) -> int:
    """Print every fault of a config on standard error; nothing if there is none."""
    faults = config.check(chosen.config)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def new_key(chosen: argparse.Namespace) -> None:
    """Print a fresh key, once, and the lines of config that know only its hash."""
    if not chosen.name.isprintable() or not 1 <= len(chosen.name) <= 200:
        raise CommandError("a key's name has 1 to 200 visible characters; choose another")
    secret = "on-" + secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    name = msgspec.json.encode(chosen.name).decode()
    print(f'# The key, shown this once: {secret}\n[[keys]]\nname = {name}\nsha256 = "{digest}"')
