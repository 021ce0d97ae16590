"""What is wrong with the token of the admin API, which stands in the environment."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onward.admission.roster import SHORTEST_TOKEN

if TYPE_CHECKING:
    from onward.wiring.config import Server


def admin_faults(server: "Server") -> Iterator[str]:
    """Faults of the token, if there is one."""
    name = server.admin_token_env
    token = os.environ.get(name, "")
    if token and (
        len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        yield (
            f"server.admin_token_env: the token in {name} must have {SHORTEST_TOKEN} or more visible ASCII"
            " characters; make it long and random, or leave it unset"
        )
