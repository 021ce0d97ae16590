"""Readers of tools and of the choice among them."""

from typing import Any, cast

from onward.core.failure import excerpt, invalid
from onward.dialects.values import ToolChoice, Tools, mistyped, unlisted

_LONGEST_NAME = 256
_MODES = ("none", "auto", "required")


def read_tools(kind: Tools, value: Any, path: str) -> list[dict[str, Any]]:
    """Function tools, as sent. An empty array is no tools: agents send it."""
    if type(value) is not list:
        raise mistyped(path, "an array of tools", value)
    tools = cast("list[Any]", value)
    if len(tools) > kind.most:
        raise invalid(path, f"'{path}' holds {len(tools)} tools; at most {kind.most} are taken.")
    names: set[str] = set()
    for position, tool in enumerate(tools):
        where = f"{path}[{position}]"
        name = _function_name(object_at(tool, where), where)
        if name in names:
            raise invalid(f"{where}.function.name", f"'{path}' declares the function '{name}' twice.")
        names.add(name)
    return tools


def read_tool_choice(_: ToolChoice, value: Any, path: str) -> str | dict[str, Any]:
    """``none``, ``auto``, ``required``, or ``{"type": "function", "function": {"name": ...}}``."""
    if type(value) is str:
        if value not in _MODES:
            raise invalid(
                path,
                f"'{path}' must be 'none', 'auto', 'required' or an object that names a function, "
                f"not '{excerpt(value, 40)}'.",
            )
        return value
    if type(value) is not dict:
        raise mistyped(path, "a string or an object", value)
    choice = cast("dict[str, Any]", value)
    return {"type": "function", "function": {"name": _named(choice, path)}}


def check_tool_choice(choice: str | dict[str, Any] | None, tools: list[dict[str, Any]], path: str) -> None:
    """Refuse a choice that needs tools where there are none, or that names one that is not there."""
    if choice is None or choice in ("none", "auto"):
        return
    if not tools:
        raise invalid(path, f"'{path}' needs 'tools': send them, or leave '{path}' out.")
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        if all(tool["function"]["name"] != name for tool in tools):
            raise invalid(path, f"'{path}' names the function '{name}', which 'tools' does not declare.")


def object_at(value: Any, path: str) -> dict[str, Any]:
    """`value` if it is an object."""
    if type(value) is not dict:
        raise mistyped(path, "an object", value)
    return cast("dict[str, Any]", value)


def text_at(value: Any, path: str) -> str:
    """`value` if it is a string."""
    if type(value) is not str:
        raise mistyped(path, "a string", value)
    return value


def function_type(value: Any, path: str) -> None:
    """Refuse a type of tool other than functions."""
    if value is not None and value != "function":
        raise unlisted(path, "'function', the one kind of tool there is", value)


def name_at(value: Any, path: str) -> str:
    """A function's name: a string of 1 to 256 characters."""
    name = text_at(value, path)
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise invalid(path, f"'{path}' must have 1 to {_LONGEST_NAME} characters.")
    return name


def _function_name(tool: dict[str, Any], path: str) -> str:
    function_type(tool.get("type"), f"{path}.type")
    inner = f"{path}.function"
    function = object_at(tool.get("function"), inner)
    if function.get("description") is not None:
        text_at(function["description"], f"{inner}.description")
    if function.get("parameters") is not None:
        object_at(function["parameters"], f"{inner}.parameters")
    strict = function.get("strict")
    if strict is not None and strict is not True and strict is not False:
        raise mistyped(f"{inner}.strict", "true or false", strict)
    return name_at(function.get("name"), f"{inner}.name")


def _named(choice: dict[str, Any], path: str) -> str:
    kind = choice.get("type")
    if kind != "function":
        raise unlisted(f"{path}.type", "'function'", kind)
    return name_at(object_at(choice.get("function"), f"{path}.function").get("name"), f"{path}.function.name")
