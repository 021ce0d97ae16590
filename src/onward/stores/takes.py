"""The gate's ways to rate limits: at once within a process, or gathered into few calls."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator

from onward.admission.gate import Takes
from onward.admission.limits import Exceeded, GiveBack, RateLimits, Take
from onward.core.failure import Failure
from onward.stores.down import down
from onward.stores.limits import MemoryLimits

MOST_KEPT = 100_000
"""Ends of requests that are tried again while the limits do not answer. The lease's end frees the rest."""
_AGAIN_S = 1.0


class _Done:
    """What has been done already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE = _Done()


def direct(limits: MemoryLimits) -> Takes:
    """The way to limits in this process: no task, no queue."""

    async def take(take: Take) -> Exceeded | None:
        return limits.take_one(take)

    def give_back(end: GiveBack) -> Awaitable[None]:
        limits.give_back_one(end)
        return _DONE

    return Takes(take, give_back, limits.take_one, limits.give_back_one)


class GatheredLimits:
    """Sends what comes in one turn of the event loop as one call, over limits that keep calls in order.

    An end that cannot be sent is kept and sent again: a place is not lost because the limits were down.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._takes: list[tuple[Take, asyncio.Future[Exceeded | None]]] = []
        self._ends: list[GiveBack] = []
        self._scheduled = False
        self._kept: list[GiveBack] = []
        self._again: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def takes(self) -> Takes:
        """As the gate wants it. What `give_back` gives needs no waiting for."""
        return Takes(self._take, self._give_back)

    async def close(self) -> None:
        """Send what is left, once."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._ends += self._kept
        self._kept = []
        self._send()
        while self._running:
            await asyncio.wait(self._running)
        if self._again is not None:
            self._again.cancel()

    def _take(self, take: Take) -> Awaitable[Exceeded | None]:
        answer: asyncio.Future[Exceeded | None] = asyncio.get_running_loop().create_future()
        self._takes.append((take, answer))
        self._schedule()
        return answer

    def _give_back(self, end: GiveBack) -> Awaitable[None]:
        self._ends.append(end)
        self._schedule()
        return _DONE

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Ends go first, since they make room; but never before the take that they end."""
        self._scheduled = False
        takes, self._takes = self._takes, []
        ends, self._ends = self._ends, []
        taken = {take.request_id for take, _ in takes} if ends else set[str]()
        self._start_ends([end for end in ends if end.request_id not in taken])
        if takes:
            self._start(self._send_takes(takes))
        if taken:
            self._start_ends([end for end in ends if end.request_id in taken])

    def _start_ends(self, ends: list[GiveBack]) -> None:
        if ends:
            self._start(self._send_ends(ends))

    def _start(self, sending: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _send_takes(self, takes: list[tuple[Take, asyncio.Future[Exceeded | None]]]) -> None:
        try:
            results = await self._limits.take([take for take, _ in takes])
        except BaseException as error:
            for _, answer in takes:
                if not answer.done():
                    answer.set_exception(down())
            if not isinstance(error, Failure):
                raise
            return
        for (_, answer), result in zip(takes, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    async def _send_ends(self, ends: list[GiveBack]) -> None:
        try:
            await self._limits.give_back(ends)
        except Failure:
            self._kept += ends[: MOST_KEPT - len(self._kept)]
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._send_again)

    def _send_again(self) -> None:
        self._again = None
        self._ends += self._kept
        self._kept = []
        self._schedule()
