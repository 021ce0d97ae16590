"""The vocabulary of the two-phase ledger: what is written, and what the store answers.

A request's money moves in two steps. `Reserve` holds its worst case in every *account* that pays
for it, or in none. Then exactly one of `Settle` (charged, maybe nothing), `Release` (nothing is
charged, the request failed) or `Expire` (its process died) ends it. Every store decides by the same
pure code (`books.py`), so that a batch has one outcome wherever it is written.
"""

from enum import StrEnum

import msgspec

from onward.admission.idempotency import Binding
from onward.core.attempt import Attempt
from onward.core.usage import Usage


class AccountKind(StrEnum):
    """What an account limits. `Refused` names the one that was too small."""

    BALANCE = "balance"
    """A tenant's prepaid money. Its limit is what was credited."""
    TENANT_MONTH = "tenant_month"
    """A tenant's spending in a calendar month (UTC)."""
    KEY_MONTH = "key_month"
    """A key's spending in a calendar month (UTC)."""


class Account(msgspec.Struct, frozen=True, array_like=True):
    """An account that a request is paid from.

    Every account's `spent` and `held` are kept, also where nothing limits it: a limit that is set in
    the middle of a month counts what was spent before.
    """

    id: str
    """``balance:TENANT``, ``tenant:TENANT:2026-11`` or ``key:KEY_ID:2026-11``."""
    kind: AccountKind
    limit: int | None = None
    """The most of `spent` and `held` together. None: no limit; of BALANCE: what was credited."""


class State(StrEnum):
    """Where an entry of the ledger is. It leaves HELD once."""

    HELD = "held"
    SETTLED = "settled"
    RELEASED = "released"
    EXPIRED = "expired"
    """Its process died: charged by its last progress mark, or nothing without one."""


class Reserve(msgspec.Struct, frozen=True, kw_only=True, tag="reserve"):
    """Hold `amount` in all `accounts`, or in none."""

    request_id: str
    """Ours; unique for ever."""
    lease: str
    """Whose process runs the request."""
    key_id: str | None
    key_name: str | None
    tenant: str | None
    model: str
    surface: str
    """``completions``, ``chat`` or ``messages``."""
    at_ms: int
    """Unix milliseconds."""
    amount: int
    """In units of 10^-9; 0 is admitted always."""
    accounts: tuple[Account, ...]
    label: str | None = None
    """The caller's own `x-request-id`."""
    config_version: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """What a running request used so far: what is charged if its process dies."""

    request_id: str
    usage: Usage
    charge: int


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag="settle"):
    """End a reservation: charge `charge`, let go of the rest."""

    request_id: str
    charge: int
    """May be more than was held: then it is an overdraft (K-10) and flagged."""
    usage: Usage
    at_ms: int
    estimated: bool = False
    """Whether the usage was not reported by whom it ran at (K-9)."""
    outcome: str = "ok"
    """``ok``, ``disconnected``, or the kind of failure after output."""
    attempts: tuple[Attempt, ...] = ()
    binding: Binding | None = None
    """Kept in the same transaction (P-8)."""


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """End a reservation without a charge: nothing was made."""

    request_id: str
    at_ms: int
    outcome: str
    """The kind of failure."""
    attempts: tuple[Attempt, ...] = ()


class Expire(msgspec.Struct, frozen=True, kw_only=True, tag="expire"):
    """End every reservation of a lease whose process is gone."""

    lease: str
    at_ms: int


Operation = Reserve | Progress | Settle | Release | Expire


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """The amount is held."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing is held: this account cannot carry it."""

    kind: AccountKind
    available: int
    """What it could carry now; never below 0."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A `Progress`, `Settle`, `Release` or `Expire` was written.

    `ended` False: the reservation had ended before (or never was), and nothing changed. So is a
    `Reserve` answered whose request ID has ended: nothing is held.
    """

    ended: bool = True


Result = Granted | Refused | Done


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation and what became of it, as the ledger shows it."""

    request_id: str
    label: str | None
    key_id: str | None
    key_name: str | None
    tenant: str | None
    model: str
    surface: str
    state: State
    held: int
    """What was reserved; stays when it has ended."""
    charged: int
    usage: Usage
    estimated: bool
    overdraft: bool
    outcome: str | None
    attempts: tuple[Attempt, ...]
    at_ms: int
    ended_ms: int | None
    config_version: str
