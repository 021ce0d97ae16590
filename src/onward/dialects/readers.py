"""Readers of single values: each type of `values` compiled to a function, once.

A reader gets a JSON value that is not null and the path a message calls it by; it returns the
neutral value or raises `Failure`.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, NoReturn, TypeVar, cast

from onward.core.failure import Failure, excerpt, invalid
from onward.dialects.blocks import read_turns
from onward.dialects.client_tools import read_client_tool_choice, read_client_tools
from onward.dialects.conversation import read_messages
from onward.dialects.images import read_prompt_chunks
from onward.dialects.prompts import read_logit_bias, read_prompts, read_stops, read_token_ids
from onward.dialects.schema import Field
from onward.dialects.tools import read_tool_choice, read_tools
from onward.dialects.values import (
    AnyObject,
    AnyOf,
    Boolean,
    Choice,
    ClientToolChoice,
    ClientTools,
    Integer,
    ListOf,
    LogitBias,
    Messages,
    Number,
    Object,
    PromptChunks,
    Prompts,
    Stops,
    Text,
    TokenIds,
    ToolChoice,
    Tools,
    Turns,
    Value,
    mistyped,
    unlisted,
)

Reader = Callable[[Any, str], Any]

_V = TypeVar("_V", bound=Value)


def reader(value: Value) -> Reader:
    """The function that reads values of a type."""
    return _COMPILERS[type(value)](value)


def field_reader(field: Field) -> Reader:
    """The function that reads a field's values; a lenient field's default where one is not taken.

    A whole number above a lenient field's highest counts as that one: whoever it is passed on to may
    take it, and what is held must not be less for it (K-10).
    """
    if field.value is None:
        raise ValueError(f"the accepted field {field.name} has no type")
    strict, default = reader(field.value), field.default
    if not field.lenient:
        return strict

    highest = field.value.high if isinstance(field.value, Integer) else None
    guessed = field.guessed

    def read(value: Any, path: str) -> Any:
        try:
            return strict(value, path)
        except Failure:
            if highest is None:
                return default
            if guessed and (number := _guess(value, highest)) >= 1:
                return number
            return highest if type(value) is int and value > highest else default

    return read


def _guess(value: Any, highest: int) -> int:
    """The whole number that the most lenient of readers could find in a value, at most `highest`; else 0."""
    try:
        number = float(value) if type(value) in (int, float, str) else 0.0
    except (ValueError, OverflowError):
        try:
            number = int(value, 0) if type(value) is str else highest
        except ValueError:
            return 0
    if number != number:  # noqa: PLR0124 - NaN
        return 0
    return highest if number >= highest else ceil(max(number, 0))


def object_reader(fields: tuple[Field, ...]) -> Reader:
    """Reads an object's fields into a dict of all its targets; unknown fields are ignored."""
    defaults = {field.target or field.name: field.default for field in fields}
    readers = {
        field.name: (field.target or field.name, field_reader(field)) for field in fields if field.value
    }
    required = [field.name for field in fields if field.required]

    def read(value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            _wrong_type(path, "an object", value)
        body = cast("dict[str, Any]", value)
        found = defaults.copy()
        for name, item in body.items():
            if item is not None and name in readers:
                target, read_item = readers[name]
                found[target] = read_item(item, f"{path}.{name}")
        for name in required:
            if body.get(name) is None:
                raise invalid(f"{path}.{name}", f"'{path}.{name}' is required.")
        return found

    return read


def _boolean(_: Boolean) -> Reader:
    def read(value: Any, path: str) -> bool:
        if value is True or value is False:
            return value
        _wrong_type(path, "true or false", value)

    return read


def _integer(kind: Integer) -> Reader:
    low, high, floor = kind.low, kind.high, kind.zero_if_below

    def read(value: Any, path: str) -> int:
        if type(value) is not int:
            _wrong_type(path, "an integer", value)
        if not low <= value <= high:
            _out_of_range(path, value, low, high)
        return 0 if floor is not None and value < floor else value

    return read


def _number(kind: Number) -> Reader:
    low, high, above_low = kind.low, kind.high, kind.above_low

    def read(value: Any, path: str) -> float:
        if type(value) is not float and type(value) is not int:
            _wrong_type(path, "a number", value)
        # NaN and infinities fail every comparison, so they never pass
        if not low <= value <= high or (above_low and value == low):
            _out_of_range(path, value, low, high, above_low=above_low)
        return float(value)

    return read


def _text(kind: Text) -> Reader:
    shortest, longest, empty_is_absent = kind.shortest, kind.longest, kind.empty_is_absent

    def read(value: Any, path: str) -> str | None:
        if type(value) is not str:
            _wrong_type(path, "a string", value)
        if not shortest <= len(value) <= longest:
            if not value:
                raise invalid(path, f"'{path}' must not be empty.")
            raise invalid(path, f"'{path}' has {len(value)} characters; at most {longest} are taken.")
        return value or None if empty_is_absent else value

    return read


def _choice(kind: Choice) -> Reader:
    values, refused = frozenset(kind.values), kind.refused
    listed = ", ".join(f"'{value}'" for value in kind.values)

    def read(value: Any, path: str) -> str:
        if type(value) is not str:
            _wrong_type(path, f"a string, one of {listed}", value)
        if value not in values:
            if value in refused:
                raise invalid(path, f"'{path}': '{value}' is not served. {refused[value]}")
            raise unlisted(path, f"one of {listed}", value)
        return value

    return read


def _any_of(kind: AnyOf) -> Reader:
    by_type: dict[type, Reader] = {}
    for value in kind.values:
        for json_value in _JSON_TYPES[type(value)]:
            by_type[json_value] = reader(value)
    wanted = " or ".join(_TYPE_NAMES[type(value)] for value in kind.values)

    def read(value: Any, path: str) -> Any:
        read_value = by_type.get(cast("type[object]", type(value)))
        if read_value is None:
            _wrong_type(path, wanted, value)
        return read_value(value, path)

    return read


def _list_of(kind: ListOf) -> Reader:
    read_item, least, most = reader(kind.item), kind.least, kind.most

    def read(value: Any, path: str) -> list[Any]:
        if type(value) is not list:
            _wrong_type(path, "an array", value)
        items = cast("list[Any]", value)
        if not least <= len(items) <= most:
            raise invalid(path, f"'{path}' has {len(items)} items; {least} to {most} are taken.")
        return [read_item(item, f"{path}[{position}]") for position, item in enumerate(items)]

    return read


def _any_object(_: AnyObject) -> Reader:
    def read(value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            _wrong_type(path, "an object", value)
        return cast("dict[str, Any]", value)

    return read


def _wrong_type(path: str, wanted: str, value: Any) -> NoReturn:
    raise mistyped(path, wanted, value)


def _out_of_range(path: str, value: float, low: float, high: float, *, above_low: bool = False) -> NoReturn:
    got = excerpt(str(value), 40)
    if value < low or (above_low and value == low):
        least = "above" if above_low else "at least"
        raise invalid(path, f"'{path}' must be {least} {_shown(low)}, not {got}.")
    raise invalid(path, f"'{path}' must be at most {_shown(high)}, not {got}.")


def _shown(bound: float) -> str:
    """A bound, integers in full."""
    return str(bound) if isinstance(bound, int) else f"{bound:.10g}"


def _compiler(read: Callable[[_V, Any, str], Any]) -> Callable[[_V], Reader]:
    return lambda kind: lambda value, path: read(kind, value, path)


_COMPILERS: Final[Mapping[type[Value], Callable[[Any], Reader]]] = {
    Boolean: _boolean,
    Integer: _integer,
    Number: _number,
    Text: _text,
    Choice: _choice,
    AnyOf: _any_of,
    ListOf: _list_of,
    Object: lambda kind: object_reader(kind.fields),
    AnyObject: _any_object,
    Prompts: _compiler(read_prompts),
    PromptChunks: _compiler(read_prompt_chunks),
    TokenIds: _compiler(read_token_ids),
    Stops: _compiler(read_stops),
    LogitBias: _compiler(read_logit_bias),
    Messages: _compiler(read_messages),
    Tools: _compiler(read_tools),
    ToolChoice: _compiler(read_tool_choice),
    Turns: _compiler(read_turns),
    ClientTools: _compiler(read_client_tools),
    ClientToolChoice: _compiler(read_client_tool_choice),
}
_JSON_TYPES: Final[Mapping[type[Value], tuple[type, ...]]] = {
    Boolean: (bool,),
    Integer: (int,),
    Number: (int, float),
    Text: (str,),
    Choice: (str,),
    ListOf: (list,),
    Object: (dict,),
    AnyObject: (dict,),
}
_TYPE_NAMES: Final[Mapping[type[Value], str]] = {
    Boolean: "a boolean",
    Integer: "an integer",
    Number: "a number",
    Text: "a string",
    Choice: "a string",
    ListOf: "an array",
    Object: "an object",
    AnyObject: "an object",
}
