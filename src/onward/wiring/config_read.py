"""From TOML values to structs, finding every fault instead of the first.

The types of a struct's fields say what is allowed; structs, and lists of structs, are entered
field by field, everything else is checked whole.
"""

import difflib
import re
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

Built = TypeVar("Built", bound=msgspec.Struct)

_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "absent",
    "datetime": "a date and time",
    "date": "a date",
    "time": "a time",
}


def read(kind: type[Built], values: dict[str, Any]) -> tuple[Built, list[str]]:
    """A struct out of a TOML table, and its faults.

    With faults the struct is still whole, so that the rest of it can be checked too: a faulty
    field has its default, a required one something unlike anything else.
    """
    faults: list[str] = []
    struct = inspect.type_info(kind)
    if not isinstance(struct, inspect.StructType):
        raise TypeError(kind)
    return _struct(struct, values, "", faults), faults


def closest(word: str, known: list[str]) -> str:
    """A hint at what was probably meant, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _at(path: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name) else repr(name)[:100]
    return f"{path}.{shown}" if path else shown


def _struct(struct: inspect.StructType, values: dict[str, Any], path: str, faults: list[str]) -> Any:
    fields = {field.name: field for field in struct.fields}
    faults += [
        f"{_at(path, name)}: is not a setting{closest(name, list(fields))}"
        for name in values
        if name not in fields
    ]
    built: dict[str, Any] = {}
    for name, field in fields.items():
        before = len(faults)
        if name in values:
            built[name] = _value(field.type, values[name], _at(path, name), faults)
        elif field.required:
            faults.append(f"{_at(path, name)}: is missing")
        if len(faults) > before and built.get(name) is None:
            built.pop(name, None)
            if field.required:
                built[name] = f"?{path}.{name}"
    return struct.cls(**built)


def _value(kind: inspect.Type, value: Any, path: str, faults: list[str]) -> Any:
    if isinstance(kind, inspect.UnionType):
        kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if len(kinds) == 1:
            return _value(kinds[0], value, path, faults)
    if isinstance(kind, inspect.Metadata):
        return _value(kind.type, value, path, faults)
    if isinstance(kind, inspect.StructType):
        if not isinstance(value, dict):
            faults.append(f"{path}: must be a table, not {_described(value)}")
            return None
        return _struct(kind, value, path, faults)
    if isinstance(kind, inspect.ListType):
        if not isinstance(value, list):
            faults.append(f"{path}: must be a list, not {_described(value)}")
            return None
        return [_item(kind.item_type, item, f"{path}[{n}]", faults) for n, item in enumerate(value)]
    if isinstance(kind, inspect.DictType):
        if not isinstance(value, dict):
            faults.append(f"{path}: must be a table, not {_described(value)}")
            return None
        entries = {key: _value(kind.value_type, item, _at(path, key), faults) for key, item in value.items()}
        return {key: item for key, item in entries.items() if item is not None}
    return _plain(kind, value, path, faults)


def _item(kind: inspect.Type, value: Any, path: str, faults: list[str]) -> Any:
    """An item of a list; a faulty one leaves something in its place, so that later ones keep theirs."""
    built = _value(kind, value, path, faults)
    if built is None:
        return _struct(kind, {}, path, []) if isinstance(kind, inspect.StructType) else f"?{path}"
    return built


def _plain(kind: inspect.Type, value: Any, path: str, faults: list[str]) -> Any:
    if isinstance(kind, inspect.LiteralType):
        if value in kind.values and isinstance(value, str):
            return value
        choices = ", ".join(map(str, kind.values))
        hint = closest(value, [str(known) for known in kind.values]) if isinstance(value, str) else ""
        shown = repr(value)[:60] if isinstance(value, str) else _described(value)
        faults.append(f"{path}: must be one of {choices}, not {shown}{hint}")
        return None
    problem = _problem(kind, value)
    if problem is None:
        return float(value) if isinstance(kind, inspect.FloatType) else value
    faults.append(f"{path}: {problem}")
    return None


def _problem(kind: inspect.Type, value: Any) -> str | None:
    if isinstance(kind, inspect.StrType):
        if not isinstance(value, str):
            return f"must be a string, not {_described(value)}"
        if kind.min_length and len(value) < kind.min_length:
            return "must not be empty"
        if kind.max_length is not None and len(value) > kind.max_length:
            return f"must have at most {kind.max_length} characters, not {len(value)}"
        if kind.pattern and not re.search(kind.pattern, value):
            return f"must match {kind.pattern}"
        return None
    if isinstance(kind, inspect.BoolType):
        return None if isinstance(value, bool) else f"must be true or false, not {_described(value)}"
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        raise TypeError(kind)
    allowed = int if isinstance(kind, inspect.IntType) else int | float
    if not isinstance(value, allowed) or isinstance(value, bool) or value != value:  # noqa: PLR0124 - NaN
        wanted = "an integer" if isinstance(kind, inspect.IntType) else "a number"
        return f"must be {wanted}, not {_described(value)}"
    if kind.ge is not None and value < kind.ge:
        return f"must be at least {kind.ge}, not {value}"
    if kind.gt is not None and value <= kind.gt:
        return f"must be more than {kind.gt}, not {value}"
    if kind.le is not None and value > kind.le:
        return f"must be at most {kind.le}, not {value}"
    return None


def _described(value: Any) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return "nan"
    names = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object"}
    return _NAMES.get(names.get(type(value), type(value).__name__), type(value).__name__)
