"""`/admin/v1/ledger`, `usage` and `requests`: what was charged, and what is held right now."""

import base64
import csv
import io

import msgspec

from onward.admission.gate import Gate
from onward.admission.ledger import State
from onward.admission.roster import Roster
from onward.admission.store import EntryQuery, Store, UsageQuery, UsageRow
from onward.core.failure import Failure, FailureKind, excerpt, invalid
from onward.http.admin import shown
from onward.http.admin.answers import NOT_KEPT, answer, answer_page, read_nothing
from onward.http.admin.asking import groups_of, limit_of, read_query, state_of, time_of
from onward.http.exchange import Exchange, HeldBodies

_CSV = (b"content-type", b"text/csv; charset=utf-8")
_Place = tuple[tuple[bool, str], ...]


class LedgerEndpoints:
    """`store` None: nothing was written down, and only what runs in this process is known."""

    def __init__(self, store: Store | None, gate: Gate, roster: Roster, held: HeldBodies) -> None:
        self._store = store
        self._held = held
        self._gate = gate
        self._roster = roster

    async def entries(self, exchange: Exchange) -> None:
        """Newest first, with the reservation, what became of it, and every attempt."""
        given = read_query(
            exchange, "request_id", "tenant", "key", "model", "state", "from", "to", "limit", "cursor"
        )
        query = EntryQuery(
            request_id=given.get("request_id"),
            tenant=given.get("tenant"),
            key_id=await self._key_id(given),
            model=given.get("model"),
            state=state_of(given),
            from_ms=time_of(given, "from"),
            before_ms=time_of(given, "to"),
            cursor=given.get("cursor"),
            limit=limit_of(given),
        )
        page = await self._written().entries(query)
        await answer_page(exchange, [shown.entry(one) for one in page.entries], page.cursor)

    async def usage(self, exchange: Exchange) -> None:
        """Sums of what has ended."""
        names = ("group_by", "tenant", "key", "model", "from", "to", "format", "limit", "cursor")
        given = read_query(exchange, *names)
        groups, limit, form = groups_of(given), limit_of(given), given.get("format", "json")
        if form not in {"json", "csv"}:
            raise invalid("format", "'format' must be json or csv.")
        query = UsageQuery(
            group_by=groups,
            tenant=given.get("tenant"),
            key_id=await self._key_id(given),
            model=given.get("model"),
            from_ms=time_of(given, "from"),
            before_ms=time_of(given, "to"),
        )
        after = _read_cursor(given.get("cursor"), len(groups))
        rows = sorted(await self._written().usage(query), key=_place)
        if form == "csv":
            await exchange.respond(200, _csv(groups, rows), [_CSV, NOT_KEPT])
            return
        rest = [row for row in rows if after is None or _place(row) > after]
        cursor = _cursor(rest[limit - 1]) if len(rest) > limit else None
        await answer_page(exchange, [shown.usage_row(row) for row in rest[:limit]], cursor)

    async def running(self, exchange: Exchange) -> None:
        """Requests in flight, newest first: of every process that shares the store."""
        given = read_query(exchange, "limit", "cursor")
        limit, cursor = limit_of(given), given.get("cursor")
        here = {grant.demand.request_id: grant for grant in self._gate.running}
        if self._store is None:
            names = sorted((name for name in here if cursor is None or name < cursor), reverse=True)
            more = names[limit - 1] if len(names) > limit else None
            await answer_page(exchange, [shown.granted(here[name]) for name in names[:limit]], more)
            return
        page = await self._store.entries(EntryQuery(state=State.HELD, cursor=cursor, limit=limit))
        data = [
            # what runs here is known to the last token; other processes wrote it down within the last second
            shown.granted(here[one.request_id]) if one.request_id in here else shown.running(one)
            for one in page.entries
        ]
        await answer_page(exchange, data, page.cursor)

    async def cancel(self, exchange: Exchange) -> None:
        """End a request in flight, here at once, in another process or on another host within a second."""
        read_query(exchange)
        await read_nothing(exchange, self._held)
        request_id = exchange.tail
        here = self._gate.cancel(request_id)
        if not here and (self._store is None or not await self._store.cancel(request_id)):
            raise Failure(
                FailureKind.UNKNOWN_ROUTE,
                f"No request {excerpt(request_id)} is running. 'GET /admin/v1/requests' lists those that are,"
                " with their request_id.",
            )
        await answer(exchange, {"request_id": request_id, "cancelled": True})

    async def _key_id(self, given: dict[str, str]) -> str | None:
        return await self._roster.key_id(given["key"]) if "key" in given else None

    def _written(self) -> Store:
        if self._store is None:
            raise Failure(
                FailureKind.UNKNOWN_ROUTE,
                "There is no store ([store] url is none), so nothing is written down.",
            )
        return self._store


def _place(row: UsageRow) -> _Place:
    """Where a row stands among the others; no value comes first."""
    return tuple((value is not None, value or "") for value in row.group.values())


def _cursor(row: UsageRow) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_place(row))).decode()


def _read_cursor(text: str | None, columns: int) -> _Place | None:
    if text is None:
        return None
    try:
        place = msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Place)
    except (ValueError, msgspec.MsgspecError):
        place = ()
    if not columns or len(place) != columns:
        raise invalid("cursor", "This cursor is none of ours. Use the one that the page before gave.")
    return place


def _csv(groups: tuple[str, ...], rows: list[UsageRow]) -> bytes:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow([*groups, *shown.SUMS])
    writer.writerows(shown.usage_cells(row) for row in rows)
    return lines.getvalue().encode()
