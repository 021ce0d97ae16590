"""Tool declarations as TypeScript, as gpt-oss reads them (white space and all)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from onward.rendering.codecs.call import dumps

_DEEPEST: Final = 32
"""Schemas are a caller's: what is nested deeper is `any`."""
_PLAIN: Final = {"number": "number", "integer": "number", "boolean": "boolean"}
_ITEMS: Final = {"string": "string[]", "number": "number[]", "integer": "number[]", "boolean": "boolean[]"}


def namespace(name: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """The declarations of a namespace."""
    declared = "".join([_function(_object(tool.get("function"))) for tool in tools])
    return f"## {name}\n\nnamespace {name} {{\n\n{declared}}} // namespace {name}"


def _function(function: Mapping[str, Any]) -> str:
    opening = f"// {_text(function.get('description'))}\ntype {function.get('name')} = "
    parameters = _object(function.get("parameters"))
    properties = _object(parameters.get("properties"))
    if not properties:
        return opening + "() => any;\n\n"
    required = _required(parameters)
    lines = [_parameter(name, _object(schema), required) for name, schema in properties.items()]
    return opening + "(_: {\n" + "".join(lines) + "}) => any;\n\n"


def _parameter(name: str, schema: Mapping[str, Any], required: Sequence[Any]) -> str:
    about = f"// {schema['description']}\n" if schema.get("description") else ""
    optional = "" if name in required else "?"
    return f"{about}{name}{optional}: {_type(schema, 0)}{_default(schema)},\n"


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    if schema.get("enum"):
        return f", // default: {_text(default)}"
    if schema.get("oneOf"):
        return f"// default: {_text(default)}"
    return f", // default: {dumps(default)}"


def _type(schema: Mapping[str, Any], depth: int) -> str:
    kind = schema.get("type")
    if depth > _DEEPEST:
        return "any"
    if kind == "array":
        return _array(schema, depth) + (" | null" if schema.get("nullable") else "")
    if isinstance(kind, list) and kind:
        return " | ".join([str(one) for one in cast("list[object]", kind)])
    if schema.get("oneOf"):
        return _one_of(schema["oneOf"], depth)
    if kind == "string":
        values = schema.get("enum")
        if isinstance(values, list) and values:
            return '"' + '" | "'.join([str(one) for one in cast("list[object]", values)]) + '"'
        return "string | null" if schema.get("nullable") else "string"
    if kind == "object":
        return _members(schema, depth)
    return _PLAIN.get(kind, "any") if isinstance(kind, str) else "any"


def _array(schema: Mapping[str, Any], depth: int) -> str:
    items = _object(schema.get("items"))
    if not items:
        return "any[]"
    kind = items.get("type")
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    inner = _type(items, depth + 1)
    return "any[]" if inner == "object | object" or len(inner) > 50 else inner + "[]"


def _one_of(variants: object, depth: int) -> str:
    if not isinstance(variants, list):
        return "any"
    schemas = [_object(one) for one in cast("list[object]", variants)]
    written: list[str] = []
    for schema in schemas:
        about = f"// {schema['description']}" if schema.get("description") else ""
        default = f"{' ' * 20}// default: {dumps(schema['default'])}" if "default" in schema else ""
        written.append(_type(schema, depth + 1) + about + default)
    return " | \n".join(written)


def _members(schema: Mapping[str, Any], depth: int) -> str:
    properties = _object(schema.get("properties"))
    if not properties:
        return "object"
    required = _required(schema)
    members = [
        f"{name}{'' if name in required else '?'}: \n{' ' * 16}{_type(_object(member), depth + 1)}"
        for name, member in properties.items()
    ]
    return "{\n" + ", ".join(members) + "}"


def _required(schema: Mapping[str, Any]) -> Sequence[Any]:
    required = schema.get("required")
    return cast("list[Any]", required) if isinstance(required, list) else ()


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return "" if value is None else str(value)
