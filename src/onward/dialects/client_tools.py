"""Readers of tools, and of the choice among them, as Anthropic's API writes them."""

from typing import Any, Final, cast

import msgspec

from onward.core.failure import excerpt, invalid
from onward.dialects.tools import name_at, object_at, text_at
from onward.dialects.values import ClientToolChoice, ClientTools, mistyped, unlisted

_MODES: Final = {"auto": "auto", "any": "required", "none": "none"}


class ToolUse(msgspec.Struct, frozen=True):
    """A choice among tools, in the neutral request's words."""

    choice: str | dict[str, Any] | None = None
    parallel: bool = True


def read_client_tools(kind: ClientTools, value: Any, path: str) -> list[dict[str, Any]]:
    """Tools, as the functions that they are."""
    if type(value) is not list:
        raise mistyped(path, "an array of tools", value)
    items = cast("list[Any]", value)
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} tools; at most {kind.most} are taken.")
    names: set[str] = set()
    tools: list[dict[str, Any]] = []
    for position, item in enumerate(items):
        where = f"{path}[{position}]"
        function = _function(object_at(item, where), where)
        if function["name"] in names:
            raise invalid(f"{where}.name", f"'{where}.name' names a tool that '{path}' has already.")
        names.add(function["name"])
        tools.append({"type": "function", "function": function})
    return tools


def read_client_tool_choice(_: ClientToolChoice, value: Any, path: str) -> ToolUse:
    """``{"type": ..., "name": ..., "disable_parallel_tool_use": ...}``."""
    choice = object_at(value, path)
    alone = choice.get("disable_parallel_tool_use")
    if alone is not None and alone is not True and alone is not False:
        raise mistyped(f"{path}.disable_parallel_tool_use", "true or false", alone)
    mode = choice.get("type")
    if mode == "tool":
        name = name_at(choice.get("name"), f"{path}.name")
        return ToolUse({"type": "function", "function": {"name": name}}, not alone)
    if not isinstance(mode, str) or mode not in _MODES:
        raise unlisted(f"{path}.type", "'auto', 'any', 'none' or 'tool'", mode)
    return ToolUse(_MODES[mode], not alone)


def _function(tool: dict[str, Any], path: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind is not None and kind != "custom":
        shown = f"'{excerpt(kind, 40)}'" if isinstance(kind, str) else "of another kind"
        raise invalid(
            f"{path}.type",
            f"'{path}.type' is {shown}: only tools that the request itself describes are taken here. Send "
            "tools of your own, with 'name' and 'input_schema'.",
        )
    function: dict[str, Any] = {"name": name_at(tool.get("name"), f"{path}.name")}
    if tool.get("description") is not None:
        function["description"] = text_at(tool["description"], f"{path}.description")
    function["parameters"] = object_at(tool.get("input_schema"), f"{path}.input_schema")
    strict = tool.get("strict")
    if strict is not None:
        if strict is not True and strict is not False:
            raise mistyped(f"{path}.strict", "true or false", strict)
        function["strict"] = strict
    return function
