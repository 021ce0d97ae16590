"""Ends a request's work when its caller goes away or its time is over."""

import asyncio
from types import TracebackType
from typing import Self

from onward.http.exchange import Exchange

_ARM_AFTER_S = 0.05
"""A request that is faster is never watched: it costs a timer and no task."""


class Watch:
    """Cancels the task that entered it. `gone` and `expired` say why, if it was this watch.

    The body must have been read: what `receive` gives next is the disconnect.
    """

    def __init__(self, exchange: Exchange, limit_s: float) -> None:
        self._exchange = exchange
        self._limit_s = limit_s
        self._watching: asyncio.Task[None] | None = None
        self.gone = False
        self.expired = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._watched = task
        self._timer = loop.call_later(min(_ARM_AFTER_S, self._limit_s / 2), self._arm)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if kind is asyncio.CancelledError and (self.gone or self.expired):
            self._watched.uncancel()

    def _arm(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                while (await self._exchange.receive())["type"] != "http.disconnect":
                    self._exchange.nudge()  # the caller sends no more: is it still there?
            if self._exchange.answered:
                return
            self.gone = True
        except TimeoutError:
            self.expired = True
        self._watched.cancel()
