"""What operators send: every field typed, unknown ones refused, and a sentence that names the one at fault.

Commands read their arguments by the same types.
"""

import types
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onward.admission.keys import TenantStatus
from onward.admission.roster import KeySettings, TenantSettings
from onward.core.failure import Failure, excerpt, invalid
from onward.core.money import parse_amount

_MOST: Final = 10**12
_T = TypeVar("_T", bound=msgspec.Struct)

Name = Annotated[str, Meta(min_length=1, max_length=200, description="a string of 1 to 200 characters")]
Names = Annotated[list[Name], Meta(max_length=1000, description="a list of at most 1000 model IDs")]
SomeNames = Annotated[
    list[Name], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000 model IDs")
]
Amount = Annotated[str, Meta(max_length=30, description='a decimal string such as "0.40"')]
Count = Annotated[int, Meta(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST}")]
Flag = Annotated[bool, Meta(description="true or false")]
Note = Annotated[str, Meta(max_length=500, description="a string of at most 500 characters")]
Status = Annotated[
    Literal["active", "suspended", "unpaid"], Meta(description='"active", "suspended" or "unpaid"')
]


class _KeyFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a key may do. Null: no limit, all models, nobody's."""

    tenant: Name | UnsetType | None = UNSET
    models: SomeNames | UnsetType | None = UNSET
    monthly_cap: Amount | UnsetType | None = UNSET
    requests_per_minute: Count | UnsetType | None = UNSET
    tokens_per_minute: Count | UnsetType | None = UNSET
    concurrency: Count | UnsetType | None = UNSET


class NewKey(_KeyFields, kw_only=True, forbid_unknown_fields=True):
    """A key to be made."""

    name: Name


class ChangedKey(_KeyFields, kw_only=True, forbid_unknown_fields=True):
    """What is to be another of a key."""

    name: Name | UnsetType = UNSET


class ChangedTenant(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be changed of a tenant."""

    status: Status | UnsetType = UNSET
    prepaid: Flag | UnsetType = UNSET
    monthly_budget: Amount | UnsetType | None = UNSET
    agreements: Names | UnsetType = UNSET


class NewTenant(ChangedTenant, kw_only=True, forbid_unknown_fields=True):
    """A tenant to be made. `balance`: what was paid in already, so that it is prepaid."""

    name: Name
    balance: Amount | None = None


class Credit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is added to a balance; below zero it is taken from it."""

    amount: Amount
    note: Note = ""


def read(kind: type[_T], values: dict[str, Any]) -> _T:
    """The struct that `values` make. Raises `Failure` (INVALID_REQUEST) with the first field at fault."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        raise _fault(kind, values) from None


def key_settings(given: NewKey | ChangedKey) -> KeySettings:
    """The settings that a body names. Raises `Failure`."""
    if isinstance(given.name, str):
        _check_name(given.name)
    models = given.models
    return KeySettings(
        name=given.name,
        tenant=given.tenant,
        models=frozenset(models) if isinstance(models, list) else models,
        monthly_cap=_amount("monthly_cap", given.monthly_cap),
        requests_per_minute=given.requests_per_minute,
        tokens_per_minute=given.tokens_per_minute,
        concurrency=given.concurrency,
    )


def tenant_settings(given: ChangedTenant) -> TenantSettings:
    """The settings that a body names. Raises `Failure`."""
    return TenantSettings(
        status=TenantStatus(given.status) if isinstance(given.status, str) else given.status,
        prepaid=given.prepaid,
        monthly_budget=_amount("monthly_budget", given.monthly_budget),
        agreements=frozenset(given.agreements) if isinstance(given.agreements, list) else given.agreements,
    )


def new_tenant(given: NewTenant) -> tuple[str, TenantSettings, int | None]:
    """Name, settings and opening balance of a new tenant. Raises `Failure`."""
    _check_name(given.name)
    if "/" in given.name or given.name in {".", ".."}:
        raise invalid("name", "The name of a tenant stands in addresses, so it has no slash. Choose another.")
    opening = None if given.balance is None else parse("balance", given.balance)
    if opening is not None and given.prepaid is False:
        raise invalid("prepaid", "A tenant with a balance is prepaid. Leave out one of the two.")
    return given.name, tenant_settings(given), opening


def credited(given: Credit) -> int:
    """The amount of a credit; below zero it is taken. Raises `Failure`."""
    text = given.amount
    amount = parse("amount", text.removeprefix("-"))
    if not amount:
        raise invalid("amount", "'amount' is nothing. Say how much is paid in.")
    return -amount if text.startswith("-") else amount


def parse(field: str, text: str) -> int:
    """An amount in units of 10^-9. Raises `Failure`."""
    try:
        return parse_amount(text)
    except ValueError as error:
        raise invalid(field, f"'{field}' {error}.") from None


def _amount(field: str, text: str | UnsetType | None) -> int | UnsetType | None:
    return parse(field, text) if isinstance(text, str) else text


def _check_name(name: str) -> None:
    if not name.isprintable() or name != name.strip():
        raise invalid("name", "'name' must be visible characters, with no space at its ends.")


def _fault(kind: type[msgspec.Struct], values: dict[str, Any]) -> Failure:
    hints = get_type_hints(kind, include_extras=True)
    for name in values:
        if name not in hints:
            fields = ", ".join(sorted(hints))
            return invalid(
                excerpt(name, 40), f"There is no field '{excerpt(name, 40)}' here. There is {fields}."
            )
    for field in msgspec.structs.fields(kind):
        if field.name not in values and field.required:
            return invalid(field.name, f"'{field.name}' is missing. It is {_said(hints[field.name])}.")
        if field.name in values:
            try:
                msgspec.convert(values[field.name], hints[field.name])
            except msgspec.ValidationError:
                return invalid(field.name, f"'{field.name}' must be {_said(hints[field.name])}.")
    raise AssertionError("a fault of no field")


def _said(hint: Any) -> str:
    """What a field takes, in words."""
    if get_origin(hint) is Annotated:
        return next(meta.description for meta in hint.__metadata__ if isinstance(meta, Meta)) or ""
    if get_origin(hint) in {Union, types.UnionType}:
        said = ["null" if one is type(None) else _said(one) for one in get_args(hint) if one is not UnsetType]
        return ", or ".join(said)
    raise TypeError(hint)
