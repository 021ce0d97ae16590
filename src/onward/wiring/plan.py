"""What an HTTP process is told, and the words it is told afterwards."""

import msgspec

from onward.wiring.config import Config

READY, DRAIN, HURRY = b"ready\n", b"drain\n", b"hurry\n"
LONGEST_PLAN = 16 * 1024 * 1024
"""Bytes of a plan, as JSON."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an HTTP process needs to know, in a form that crosses to another process."""

    config: Config
    model_files: dict[str, str]
    """Deployment name to the path of its model."""
    sockets: dict[str, str]
    """Deployment name to the Unix socket of its engine."""
    lease: str = ""
    """Under which name the process holds money and limits."""
    stores: str = ""
    """The Unix socket of the host's stores; empty: they are in the same process."""
