"""Whether a process takes new work, and when the last of an application's work has ended."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class Lifecycle:
    """What this process has before it, and behind."""

    draining: bool = field(default=False)
    """Whether it takes no new work."""
    newcomers: set[str] = field(default_factory=set[str])
    """Deployments that came while it ran and were never up: that they start makes it no less ready."""


class Work:
    """Counts what runs on one application: what it uses is let go behind the last of it."""

    def __init__(self) -> None:
        self._running = 0
        self._ended: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """A request has come."""
        self._running += 1

    def end(self) -> None:
        """It was answered, or its caller has gone."""
        self._running -= 1
        if not self._running and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def over(self) -> None:
        """Return once nothing runs. Nothing new may come any more."""
        if self._running:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
