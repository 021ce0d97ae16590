"""Ends a request's work when its caller goes away, its time is over, or an operator wants it to end."""

import asyncio
import time
from types import TracebackType
from typing import Self

from onward.http.exchange import Exchange

_ARM_AFTER_S = 0.05
"""A request that is faster is never watched: it costs a timer and no task."""


class Watch:
    """Cancels the task that entered it. `gone`, `expired` or `cancelled` says why, if it was this watch.

    The body must have been read: what `receive` gives next is the disconnect. `limit_s` counts from the
    beginning of the request.
    """

    def __init__(self, exchange: Exchange, limit_s: float, *, attended: bool = True) -> None:
        """`attended` False: its caller may go away."""
        self._exchange = exchange
        self._attended = attended
        self._limit_s = max(0.0, limit_s - (time.monotonic() - exchange.record.started))
        self._watching: asyncio.Task[None] | None = None
        self.gone = False
        self.expired = False
        self.cancelled = False

    def cancel(self) -> None:
        """End it for an operator."""
        if not (self.gone or self.expired or self.cancelled):
            self.cancelled = True
            self._watched.cancel()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._watched = task
        if self._attended:
            self._timer = loop.call_later(min(_ARM_AFTER_S, self._limit_s / 2), self._arm)
        else:
            self._timer = loop.call_later(self._limit_s, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if kind is asyncio.CancelledError and (self.gone or self.expired or self.cancelled):
            self._watched.uncancel()

    def _arm(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                while (await self._exchange.receive())["type"] != "http.disconnect":
                    self._exchange.nudge()  # the caller sends no more: is it still there?
            if self._exchange.answered or self.cancelled:
                return
            self.gone = True
        except TimeoutError:
            self._expire()
        else:
            self._watched.cancel()

    def _expire(self) -> None:
        if not self.cancelled:
            self.expired = True
            self._watched.cancel()
