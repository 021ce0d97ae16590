"""Group commit: what is submitted while a batch is being written goes into the next one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from onward.core.failure import Failure

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class GroupCommit(Generic[_Item, _Result]):
    """Gathers items into batches, in order, one batch at a time.

    `write` gets the items of a batch and gives a result for each: a list where it has them at once,
    else something to await. A batch begins one turn of the event loop after its first item came, so
    that everything of one turn shares it, or as soon as the batch before it is written.

    Where `write` raises a `Failure`, every item of the batch fails by it. Any other error may be the
    fault of one item: then each is written alone, and those at fault fail.

    To be used within one event loop.
    """

    def __init__(
        self,
        write: Callable[[list[_Item]], list[_Result] | Awaitable[list[_Result]]],
        *,
        largest: int = 256,
    ) -> None:
        self._write = write
        self._largest = largest
        self._loop: asyncio.AbstractEventLoop | None = None
        self._items: list[_Item] = []
        self._futures: list[asyncio.Future[_Result]] = []
        self._due = False
        """Whether a batch is on its way: planned, or being written."""
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: _Item) -> asyncio.Future[_Result]:
        """Write `item`, after all that was submitted before. Cancelling what is returned does not undo it."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._items.append(item)
        self._futures.append(future)
        if not self._due:
            self._due = True
            loop.call_soon(self._flush)
        return future

    async def drain(self) -> None:
        """Wait until everything that was submitted is written, or has failed."""
        while self._futures or self._task is not None:
            if self._task is not None:
                await asyncio.wait([self._task])
            else:
                await asyncio.sleep(0)

    def _flush(self) -> None:
        items, futures = self._take()
        try:
            results = self._write(items)
        except Exception as error:  # noqa: BLE001 - whoever submitted gets it
            if isinstance(error, Failure) or len(items) == 1:
                _fail(futures, error)
                self._next()
            else:
                self._start(self._each(items, futures))
            return
        if isinstance(results, list):
            _answer(futures, results)
            self._next()
        else:
            self._start(self._later(results, items, futures))

    def _take(self) -> tuple[list[_Item], list[asyncio.Future[_Result]]]:
        items, futures, largest = self._items, self._futures, self._largest
        self._items, self._futures = items[largest:], futures[largest:]
        return items[:largest], futures[:largest]

    def _next(self) -> None:
        if self._items and self._loop is not None:
            self._loop.call_soon(self._flush)
        else:
            self._due = False

    def _start(self, work: Awaitable[None]) -> None:
        self._task = asyncio.ensure_future(self._run(work))

    async def _run(self, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            self._task = None
            self._next()

    async def _later(
        self,
        results: Awaitable[list[_Result]],
        items: list[_Item],
        futures: list[asyncio.Future[_Result]],
    ) -> None:
        try:
            _answer(futures, await results)
        except Exception as error:  # noqa: BLE001 - whoever submitted gets it
            if isinstance(error, Failure) or len(items) == 1:
                _fail(futures, error)
            else:
                await self._each(items, futures)
        except BaseException:
            _fail(futures, asyncio.CancelledError())
            raise

    async def _each(self, items: list[_Item], futures: list[asyncio.Future[_Result]]) -> None:
        """Write item by item: one of them is at fault, the others are not."""
        for item, future in zip(items, futures, strict=True):
            try:
                results = self._write([item])
                _answer([future], results if isinstance(results, list) else await results)
            except Exception as error:  # noqa: BLE001 - whoever submitted gets it
                _fail([future], error)


def joined(calls: list[list[_Item]]) -> list[_Item]:
    """All items of several batches, in order."""
    return calls[0] if len(calls) == 1 else [item for call in calls for item in call]


def parted(calls: list[list[_Item]], results: list[_Result]) -> list[list[_Result]]:
    """The results of `joined` batches, for each batch by itself."""
    if len(calls) == 1:
        return [results]
    each = iter(results)
    return [[next(each) for _ in call] for call in calls]


def _answer(futures: list[asyncio.Future[_Result]], results: list[_Result]) -> None:
    if len(results) != len(futures):
        _fail(futures, RuntimeError(f"{len(futures)} items were written and {len(results)} results came"))
    for future, result in zip(futures, results, strict=False):
        if not future.done():
            future.set_result(result)


def _fail(futures: list[asyncio.Future[_Result]], error: BaseException) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
            continue
        future.set_exception(_another(error) if len(futures) > 1 else error)
        future.exception()  # who does not wait for the result is not told that it failed


def _another(error: BaseException) -> BaseException:
    """The same failure once more: each waiter's traceback is its own."""
    if isinstance(error, Failure):
        return Failure(
            error.kind,
            error.message,
            param=error.param,
            retry_after=error.retry_after,
            upstream_status=error.upstream_status,
        )
    return error
