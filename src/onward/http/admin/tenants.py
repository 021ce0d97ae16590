"""`/admin/v1/tenants`: made, listed, changed, suspended, and what is paid in."""

from collections.abc import Awaitable, Callable

from onward.admission.keys import TenantStatus
from onward.admission.roster import Roster, TenantSettings
from onward.core.failure import invalid
from onward.dialects.schema import HeaderValue
from onward.http.admin import bodies, shown
from onward.http.admin.answers import answer, answer_page, read_nothing, read_object
from onward.http.admin.asking import LONGEST_MONEY_PAGE, limit_of, read_query
from onward.http.exchange import Exchange, HeldBodies


class TenantEndpoints:
    """`changed` is awaited after every change, so that it counts here at once."""

    def __init__(self, roster: Roster, held: HeldBodies, changed: Callable[[], Awaitable[None]]) -> None:
        self._roster = roster
        self._held = held
        self._changed = changed

    async def list(self, exchange: Exchange) -> None:
        given = read_query(exchange, "limit", "cursor")
        known, cursor = await self._roster.tenants(given.get("cursor"), limit_of(given, LONGEST_MONEY_PAGE))
        await answer_page(exchange, [shown.tenant(one) for one in known], cursor)

    async def create(self, exchange: Exchange) -> None:
        read_query(exchange)
        given = bodies.read(bodies.NewTenant, await read_object(exchange, self._held))
        known = await self._roster.create_tenant(*bodies.new_tenant(given))
        await self._changed()
        await answer(exchange, shown.tenant(known))

    async def show(self, exchange: Exchange) -> None:
        read_query(exchange)
        await answer(exchange, shown.tenant(await self._roster.tenant(exchange.tail)))

    async def change(self, exchange: Exchange) -> None:
        read_query(exchange)
        given = bodies.read(bodies.ChangedTenant, await read_object(exchange, self._held))
        await self._settle(exchange, bodies.tenant_settings(given))

    async def suspend(self, exchange: Exchange) -> None:
        """What DELETE does: nobody is erased who has money, or an entry in the ledger."""
        read_query(exchange)
        await read_nothing(exchange, self._held)
        await self._settle(exchange, TenantSettings(status=TenantStatus.SUSPENDED))

    async def credit(self, exchange: Exchange) -> None:
        """Pay in. With an `Idempotency-Key` the same one pays in once, however often it is sent."""
        read_query(exchange)
        once = exchange.header_values.get(HeaderValue.IDEMPOTENCY_KEY)
        if once is None and exchange.header(b"idempotency-key") is not None:
            raise invalid(
                None, "An Idempotency-Key must have 1 to 255 characters of printable ASCII, and be sent once."
            )
        given = bodies.read(bodies.Credit, await read_object(exchange, self._held))
        known = await self._roster.credit(
            exchange.tail,
            bodies.credited(given),
            note=given.note,
            once=None if once is None else f"api:{once.decode()}",
        )
        await self._changed()
        await answer(exchange, shown.tenant(known))

    async def _settle(self, exchange: Exchange, settings: TenantSettings) -> None:
        known = await self._roster.change_tenant(exchange.tail, settings)
        await self._changed()
        await answer(exchange, shown.tenant(known))
