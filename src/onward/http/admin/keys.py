"""`/admin/v1/keys`: made, listed, changed, revoked."""

from collections.abc import Awaitable, Callable

from onward.admission.roster import Roster
from onward.http.admin import shown
from onward.http.admin.answers import answer, answer_page, read_nothing, read_object
from onward.http.admin.asking import LONGEST_MONEY_PAGE, limit_of, read_query
from onward.http.admin.bodies import ChangedKey, NewKey, key_settings, read
from onward.http.exchange import Exchange, HeldBodies


class KeyEndpoints:
    """`changed` is awaited after every change, so that it counts here at once."""

    def __init__(self, roster: Roster, held: HeldBodies, changed: Callable[[], Awaitable[None]]) -> None:
        self._roster = roster
        self._held = held
        self._changed = changed

    async def list(self, exchange: Exchange) -> None:
        given = read_query(exchange, "limit", "cursor")
        known, cursor = await self._roster.keys(given.get("cursor"), limit_of(given, LONGEST_MONEY_PAGE))
        await answer_page(exchange, [shown.key(one) for one in known], cursor)

    async def create(self, exchange: Exchange) -> None:
        """The one answer with the secret in it."""
        read_query(exchange)
        given = read(NewKey, await read_object(exchange, self._held))
        known, secret = await self._roster.create_key(key_settings(given))
        await self._changed()
        await answer(exchange, {**shown.key(known), "secret": secret})

    async def show(self, exchange: Exchange) -> None:
        read_query(exchange)
        await answer(exchange, shown.key(await self._roster.key(exchange.tail)))

    async def change(self, exchange: Exchange) -> None:
        read_query(exchange)
        given = read(ChangedKey, await read_object(exchange, self._held))
        known = await self._roster.change_key(exchange.tail, key_settings(given))
        await self._changed()
        await answer(exchange, shown.key(known))

    async def revoke(self, exchange: Exchange) -> None:
        read_query(exchange)
        await read_nothing(exchange, self._held)
        known = await self._roster.revoke_key(exchange.tail)
        await self._changed()
        await answer(exchange, shown.key(known))
