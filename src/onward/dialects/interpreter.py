"""Reads a request body by the tables of a dialect.

A surface's tables are compiled once, on first use. Reading then walks over the fields that were
sent, so it costs what the caller sent and not what the dialect knows.
"""

from collections.abc import Callable
from functools import cache
from operator import eq, gt, lt
from typing import Any

from onward.core.failure import invalid
from onward.dialects.readers import Reader, field_reader
from onward.dialects.schema import Action, Condition, Field, Is, NamedTool, Product, Rule, Surface
from onward.dialects.tools import check_tool_choice

_Check = Callable[[dict[str, Any]], None]
_Holds = Callable[[dict[str, Any]], bool]
_Row = tuple[str, Reader, tuple[str, ...]]
"""Target, reader, and the names that go before this one."""


class _Table:
    """A compiled surface."""

    __slots__ = ("checks", "defaults", "required", "rows")

    def __init__(self, surface: Surface) -> None:
        self.rows: dict[str, _Row] = {}
        self.defaults: dict[str, Any] = dict(surface.constants)
        self.required: list[tuple[str, str]] = []
        for field in surface.fields:
            if field.action is Action.IGNORE:
                continue
            target = field.target or field.name
            if field.action is Action.REJECT:
                self.rows[field.name] = (target, _rejecter(field), ())
                continue
            read_value = field_reader(field)
            names = (field.name, *field.aliases)
            for position, name in enumerate(names):
                self.rows[name] = (target, read_value, names[:position])
            self.defaults[target] = field.default
            if field.required:
                self.required.append((field.name, target))
        self.checks = [_check(rule) for rule in surface.rules]


def read(surface: Surface, body: dict[str, Any]) -> dict[str, Any]:
    """The neutral values of a body: every target of the surface, defaults set.

    null is absent and unknown fields are ignored. Raises `Failure` (INVALID_REQUEST) with the
    path of the first field that is wrong. Defaults are shared between requests: do not change them.
    """
    table = _compiled(surface)
    rows = table.rows
    found = table.defaults.copy()
    for name, value in body.items():
        if value is None or (row := rows.get(name)) is None:
            continue
        target, read_value, before = row
        taken = read_value(value, name)
        if before and any(body.get(other) is not None for other in before):
            continue
        found[target] = taken
    for name, target in table.required:
        if found[target] is None:
            raise invalid(name, f"'{name}' is required.")
    for check in table.checks:
        check(found)
    return found


@cache
def _compiled(surface: Surface) -> _Table:
    return _Table(surface)


def _rejecter(field: Field) -> Reader:
    def refuse(_: Any, path: str) -> None:
        raise invalid(path, f"'{path}' is not taken. {field.note}")

    return refuse


def _check(rule: Rule | Product | NamedTool) -> _Check:
    if isinstance(rule, Rule):
        return _rule(rule)
    if isinstance(rule, Product):
        return _product(rule)
    return lambda found: check_tool_choice(found[rule.choice], found[rule.tools] or [], rule.choice)


def _rule(rule: Rule) -> _Check:
    tests = [_condition(condition) for condition in rule.refuse_if]
    first, rest = tests[0], tests[1:]

    def check(found: dict[str, Any]) -> None:
        if first(found) and all(test(found) for test in rest):
            raise invalid(rule.param, rule.message)

    return check


def _product(rule: Product) -> _Check:
    def check(found: dict[str, Any]) -> None:
        items = 1 if found[rule.items] is None else len(found[rule.items])
        times = max(found[name] or 1 for name in rule.times)
        if items * times > rule.most:
            raise invalid(
                rule.param,
                f"{items} prompts times {times} choices are {items * times} in all; at most {rule.most} are "
                "taken. Send fewer prompts or ask for fewer choices.",
            )

    return check


def _condition(condition: Condition) -> _Holds:
    field, value, other = condition.field, condition.value, condition.other
    if condition.test is Is.GIVEN:
        return lambda found: found[field] is not None
    if condition.test is Is.ABSENT:
        return lambda found: found[field] is None
    if condition.test is Is.TRUE:
        return lambda found: bool(found[field])
    if condition.test is Is.FALSE:
        return lambda found: not found[field]
    compare: Callable[[Any, Any], bool] = {Is.EQUAL: eq, Is.BELOW: lt, Is.ABOVE: gt}[condition.test]
    if other is None:
        return lambda found: found[field] is not None and compare(found[field], value)
    return lambda found: (
        found[field] is not None and found[other] is not None and compare(found[field], found[other])
    )
