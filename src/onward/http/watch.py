"""Ends a request's work when its caller goes away, its time is over, or an operator wants it to end."""

import asyncio
from types import TracebackType
from typing import Any, Self

from onward.http.exchange import Exchange


class Watch:
    """Cancels the task that entered it. `gone`, `expired` or `cancelled` says why, if it was this watch.

    The connection tells it at once that the caller has gone, and the time with every sweep over all
    connections, so up to a second late: it costs neither a timer nor a task. The body must have been read.
    `limit_s` counts from the beginning of the request.
    """

    __slots__ = ("_attended", "_exchange", "_until", "_watched", "cancelled", "expired", "gone")

    def __init__(
        self,
        exchange: Exchange,
        limit_s: float,
        *,
        attended: bool = True,
        task: asyncio.Task[None] | None = None,
    ) -> None:
        """`attended` False: its caller may go away. `task`: that enters it, where its caller knows."""
        self._exchange = exchange
        self._attended = attended
        self._until = exchange.record.started + limit_s
        self._watched: asyncio.Task[Any] | None = task
        self.gone = False
        self.expired = False
        self.cancelled = False

    def cancel(self) -> None:
        """End it for an operator."""
        if self._may_end():
            self.cancelled = True
            self._end()

    def leave(self) -> None:
        """The caller has gone."""
        if self._attended and self._may_end():
            self.gone = True
            self._end()

    def check(self, now: float) -> None:
        """Some time has passed."""
        if now >= self._until and self._may_end():
            self.expired = True
            self._end()

    def __enter__(self) -> Self:
        exchange = self._exchange
        if self._watched is None:
            self._watched = asyncio.current_task(exchange.loop)
        exchange.watch(self)
        if exchange.disconnected:
            self.leave()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        exchange, watched, self._watched = self._exchange, self._watched, None
        exchange.unwatch(self)
        if kind is asyncio.CancelledError and watched is not None and not self._may_end():
            watched.uncancel()

    def _may_end(self) -> bool:
        return not (self.gone or self.expired or self.cancelled)

    def _end(self) -> None:
        if self._watched is not None:
            self._watched.cancel()
