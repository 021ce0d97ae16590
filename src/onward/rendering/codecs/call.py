"""What every codec takes and gives."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import msgspec

Json = dict[str, Any]


class CodecError(ValueError):
    """What a model wrote is no call of its format."""


class Mark(str):
    """A mark among the pieces of a body; everything else there is text."""

    __slots__ = ()


class Call(msgspec.Struct, frozen=True):
    """A complete call."""

    name: str
    arguments: str
    """A JSON object, as text."""
    id: str | None = None
    """Where the format has one of its own."""


class Tools:
    """The tools of a request, for formats whose syntax does not say the type of an argument."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._tools: Final = tools
        self._properties: dict[str, Json] | None = None

    def properties(self, name: str) -> Json:
        """The schemas of a function's parameters, by name; empty if they are not declared."""
        if self._properties is None:
            self._properties = {}
            for tool in self._tools:
                function = _object(tool.get("function"))
                declared = _object(_object(function.get("parameters")).get("properties"))
                self._properties[str(function.get("name"))] = declared
        return self._properties.get(name, {})

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; empty if nothing is said of it."""
        return _types(self.properties(name).get(parameter))

    def value(self, name: str, parameter: str, text: str) -> Any:
        """What an untyped `text` is: a string where the schema says so, JSON where it says that.

        Where the schema says nothing, or allows several types, JSON if it is JSON, else a string.
        Text that is no JSON where none but other types are allowed stays a string: the schema is
        not enforced.
        """
        types = self.types(name, parameter)
        if types == frozenset(("string",)):
            return text
        try:
            value = loads(text)
        except CodecError:
            return text
        if "string" in types and not _is_of(value, types - {"string"}):
            return text
        return value


class Body(msgspec.Struct, frozen=True):
    """What a model wrote between the marks of a call: text, and marks that the state keeps."""

    pieces: Sequence[str]
    """No two texts in a row, none empty."""
    label: Sequence[str] = ()
    """Of formats with a label in front: its pieces."""
    state: str = ""
    """The name of the state that held it."""

    @property
    def text(self) -> str:
        """The body, if it is text alone."""
        if any(isinstance(piece, Mark) for piece in self.pieces):
            raise CodecError("a mark inside a call")
        return "".join(self.pieces)


Codec: TypeAlias = Callable[[Body, Tools], list[Call]]
"""Reads a body. Raises `CodecError`; nothing else, whatever is in it."""


def no_calls(_body: Body, _tools: Tools) -> list[Call]:
    """The codec of a family without calls."""
    raise CodecError("this format has no calls")


def loads(text: str) -> Any:
    """Strict JSON. Raises `CodecError`."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise CodecError("not JSON") from None


def dumps(value: Any) -> str:
    """JSON as most chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def object_text(text: str) -> str:
    """`text` without white space around it, if it is a JSON object. Raises `CodecError`."""
    if not isinstance(loads(text), dict):
        raise CodecError("the arguments are no object")
    return text.strip()


def name_of(value: object) -> str:
    """The name of a function. Raises `CodecError`."""
    if not isinstance(value, str) or not value or value != value.strip():
        raise CodecError("no name")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CodecError("a name that is no text") from None
    return value


def _no_constant(_: str) -> NoReturn:
    raise CodecError("NaN and Infinity are no JSON")


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _types(schema: object, depth: int = 0) -> frozenset[str]:
    fields = _object(schema)
    found: set[str] = set()
    declared = fields.get("type")
    if isinstance(declared, str):
        found.add(declared)
    elif isinstance(declared, list):
        found.update(str(one) for one in cast("list[object]", declared))
    elif isinstance(values := fields.get("enum"), list):
        found.update(_type_of(value) for value in cast("list[object]", values))
    if depth < 4:
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(several := fields.get(word), list):
                for one in cast("list[object]", several):
                    found |= _types(one, depth + 1)
    return frozenset(found)


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "string"


def _is_of(value: object, types: frozenset[str]) -> bool:
    kind = _type_of(value)
    return kind in types or (kind == "integer" and "number" in types)
