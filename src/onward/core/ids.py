"""Identifiers: unique over processes and restarts, cheap to make."""

import itertools
import os
import secrets
from typing import Protocol


class IdFactory(Protocol):
    """Makes the random part of identifiers."""

    def __call__(self) -> str:
        """A new identifier: letters and digits only."""
        ...


class RandomIds:
    """A random stem for each process and a counter; a fork gets a stem of its own."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._stem = secrets.token_hex(10)
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._stem}{next(self._count):06x}"
