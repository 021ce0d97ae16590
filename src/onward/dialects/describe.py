"""The types of fields in words, for the documentation, and as JSON Schema, for OpenAPI."""

from typing import Any

from onward.dialects.schema import Action, Field
from onward.dialects.values import (
    FLOAT_HIGH,
    LONGEST_TEXT,
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
)

_STRING: dict[str, Any] = {"type": "string"}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def words(value: Value | None) -> str:
    """A type and its bounds in words."""
    match value:
        case Boolean():
            return "boolean"
        case Integer():
            return f"integer, {value.low} to {value.high}"
        case Number():
            return _number_words(value)
        case Text():
            return (
                "string" if value.longest == LONGEST_TEXT else f"string, at most {value.longest} characters"
            )
        case Choice():
            return " or ".join(f"`{item}`" for item in value.values)
        case AnyOf():
            return "; ".join(words(item) for item in value.values)
        case ListOf():
            return f"array of {value.least} to {value.most}: {words(value.item)}"
        case Object():
            return "object of " + ", ".join(
                f"`{field.name}` ({words(field.value)})" for field in value.fields
            )
        case Prompts():
            text = "string" if value.empty else "string that is not empty"
            kinds = f"{text} or token IDs" if value.token_ids else text
            several = f"at most {value.most} of them" if value.most > 1 else "one of them"
            return f"{kinds}; or an array of {several}"
        case PromptChunks():
            return (
                f"array of at most {value.most} parts: "
                '`{"type": "tokens", "tokens": […]}`, `{"type": "image_url", "image_url": {"url": "data:…"}}`'
            )
        case TokenIds():
            return f"array of at most {value.most} token IDs"
        case Stops():
            ids = f", or of at most {value.token_ids} token IDs" if value.token_ids else ""
            return f"string, or array of at most {value.most} strings{ids}; at most {value.longest} bytes"
        case LogitBias():
            return f"object of at most {value.most} token IDs to numbers from {value.low:g} to {value.high:g}"
        case Messages():
            roles = ", ".join(f"`{role}`" for role in value.roles)
            return f"array of at most {value.most} messages; roles {roles}"
        case Tools():
            return f"array of at most {value.most} function tools"
        case ToolChoice():
            return "`none`, `auto`, `required`, or an object that names a function"
        case Turns():
            return (
                f"array of at most {value.most} messages; roles `user`, `assistant`, `system`; content a "
                "string or blocks: `text`, `image`, `tool_use`, `tool_result`, `thinking`, "
                "`redacted_thinking`"
            )
        case ClientTools():
            return f"array of at most {value.most} tools of the caller"
        case ClientToolChoice():
            return "object of `type` (`auto`, `any`, `none` or `tool`), `name`, `disable_parallel_tool_use`"
        case None:
            return ""
        case AnyObject():
            return "object"
        case _:
            raise TypeError(f"no words for {value}")


def json_schema(value: Value | None) -> dict[str, Any]:
    """A type as JSON Schema (2020-12). It may be wider than what is read, never narrower."""
    match value:
        case Boolean():
            return {"type": "boolean"}
        case Integer():
            return {"type": "integer", "minimum": value.low, "maximum": value.high}
        case Number():
            return {"type": "number", **_number_bounds(value)}
        case Text():
            bounds = {"minLength": value.shortest} if value.shortest else {}
            return {**_STRING, **bounds, **_longest(value)}
        case Choice():
            return {"enum": list(value.values)}
        case AnyOf():
            return {"anyOf": [json_schema(item) for item in value.values]}
        case ListOf():
            return _array(json_schema(value.item), value.least, value.most)
        case Object():
            return object_schema(value.fields)
        case Prompts():
            text = _STRING if value.empty else {**_STRING, "minLength": 1}
            one = [text, *([{**_IDS, "minItems": 1}] if value.token_ids else [])]
            return {"anyOf": [*one, *[_array(item, 1, value.most) for item in one]]}
        case PromptChunks():
            part = {"type": "object", "required": ["type"]}
            return _array(part, 1, value.most)
        case TokenIds():
            return {**_IDS, "minItems": value.least, "maxItems": value.most}
        case Stops():
            ids = [{**_IDS, "maxItems": value.token_ids}] if value.token_ids else []
            return {"anyOf": [_STRING, _array({**_STRING, "minLength": 1}, 0, value.most), *ids]}
        case LogitBias():
            bias = {"type": "number", "minimum": value.low, "maximum": value.high}
            return {"type": "object", "additionalProperties": bias, "maxProperties": value.most}
        case Messages():
            role = {"enum": list(value.roles)}
            message = {"type": "object", "properties": {"role": role}, "required": ["role"]}
            return _array(message, 1, value.most)
        case Tools():
            return _array({"type": "object", "required": ["function"]}, 0, value.most)
        case ToolChoice():
            return {"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]}
        case Turns():
            properties = {"role": {"enum": ["user", "assistant", "system"]}}
            turn = {"type": "object", "properties": properties, "required": ["role", "content"]}
            return _array(turn, 1, value.most)
        case ClientTools():
            return _array({"type": "object", "required": ["name", "input_schema"]}, 0, value.most)
        case ClientToolChoice():
            kinds = {"enum": ["auto", "any", "none", "tool"]}
            return {"type": "object", "properties": {"type": kinds}, "required": ["type"]}
        case None:
            return {}
        case AnyObject():
            return {"type": "object"}
        case _:
            raise TypeError(f"no schema for {value}")


def object_schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    """The schema of an object with these fields. Every optional field may be null."""
    properties: dict[str, Any] = {}
    for field in fields:
        if field.action is Action.REJECT:
            properties[field.name] = {"type": "null", "description": field.note}
            continue
        schema = json_schema(field.value)
        if not field.required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        schema = {**schema, "description": field.note}
        if field.default is not None:
            schema["default"] = field.default
        for name in (field.name, *field.aliases):
            properties[name] = schema
    required = [field.name for field in fields if field.required]
    return {"type": "object", "properties": properties, "required": required}


def _number_words(value: Number) -> str:
    low = f"{'above' if value.above_low else 'from'} {value.low:g}" if value.low > -FLOAT_HIGH else ""
    high = f"to {value.high:g}" if value.high < FLOAT_HIGH else ""
    bounds = f"{low} {high}".strip()
    return f"number, {bounds}" if bounds else "number"


def _number_bounds(value: Number) -> dict[str, float]:
    low = "exclusiveMinimum" if value.above_low else "minimum"
    bounds = {low: value.low} if value.low > -FLOAT_HIGH else {}
    return bounds | ({"maximum": value.high} if value.high < FLOAT_HIGH else {})


def _array(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _longest(value: Text) -> dict[str, int]:
    return {} if value.longest == LONGEST_TEXT else {"maxLength": value.longest}
