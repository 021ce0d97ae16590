"""Time as a value that tests can set."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def unix(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never runs back."""
        ...


class SystemClock:
    """The machine's own clock."""

    unix = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
