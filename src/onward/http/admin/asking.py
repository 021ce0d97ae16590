"""What an operator's address asks for, behind its question mark: filters, times, pages."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from onward.admission.ledger import State
from onward.core.failure import excerpt, invalid

if TYPE_CHECKING:
    from onward.http.exchange import Exchange

LONGEST_PAGE: Final = 1000
LONGEST_MONEY_PAGE: Final = 100
"""Of what is shown with its money: that is added up for each."""
GROUPS: Final = ("model", "key", "tenant", "day", "month", "surface")
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_LONGEST: Final = 1000


def read_query(exchange: "Exchange", *names: str) -> dict[str, str]:
    """The parameters of a request, each at most once. Raises `Failure` for any that is not in `names`."""
    given: dict[str, str] = {}
    text = exchange.head.query.decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise invalid(None, "The part of the address behind its '?' cannot be read.") from None
    for name, value in pairs:
        if name not in names:
            known = ", ".join(names) or "none"
            raise invalid(
                excerpt(name, 40), f"There is no parameter '{excerpt(name, 40)}' here. Known: {known}."
            )
        if name in given:
            raise invalid(name, f"'{name}' stands there twice.")
        if not value or len(value) > _LONGEST:
            raise invalid(name, f"'{name}' must have 1 to {_LONGEST} characters, or be left out.")
        given[name] = value
    return given


def limit_of(given: dict[str, str], most: int = LONGEST_PAGE) -> int:
    """How many a page may hold."""
    limit = _whole(given.get("limit", "100"))
    if limit is None or not 1 <= limit <= most:
        raise invalid("limit", f"'limit' must be a whole number from 1 to {most}.")
    return limit


def place_of(given: dict[str, str]) -> int:
    """The cursor of a list in memory: how many things stand before."""
    place = _whole(given.get("cursor", "0"))
    if place is None:
        raise invalid("cursor", "This cursor is none of ours. Use the one that the page before gave.")
    return place


def time_of(given: dict[str, str], name: str) -> int | None:
    """A moment in Unix milliseconds; without a zone it is UTC, a day is its beginning."""
    text = given.get(name)
    if text is None:
        return None
    # a plus sign that was not escaped arrives as a space
    text = re.sub(r" (\d\d:\d\d)$", r"+\1", text) if text.count(":") > 1 else text
    try:
        moment = datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        moment = None
    if moment is None:
        raise invalid(name, f"'{name}' must be a day or a time such as 2026-11-30 or 2026-11-30T12:00:00Z.")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def state_of(given: dict[str, str]) -> State | None:
    """A state of the ledger."""
    text = given.get("state")
    try:
        return None if text is None else State(text)
    except ValueError:
        raise invalid("state", f"'state' must be one of {', '.join(State)}.") from None


def groups_of(given: dict[str, str]) -> tuple[str, ...]:
    """What sums are grouped by."""
    text = given.get("group_by")
    groups = () if text is None else tuple(text.split(","))
    for n, name in enumerate(groups):
        if name not in GROUPS or name in groups[:n]:
            raise invalid(
                "group_by", f"'group_by' must be different words of {', '.join(GROUPS)}, with commas between."
            )
    return groups


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None
