"""Gemma 4's own notation for values and tool declarations, written into a prompt."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from onward.rendering.codecs.gemma4 import QUOTE
from onward.rendering.prompt import PromptBuilder

_DEEPEST: Final = 48
"""Schemas and arguments are a caller's: what is nested deeper is left out."""
_STANDARD: Final = frozenset({"description", "type", "properties", "required", "nullable"})
Schema: TypeAlias = Mapping[str, Any]


def string(text: str, prompt: PromptBuilder) -> None:
    """A string."""
    prompt.frame(QUOTE).text(text).frame(QUOTE)


def value(given: Any, prompt: PromptBuilder, *, quoted_keys: bool = False, depth: int = 0) -> None:
    """Any value of JSON."""
    if depth > _DEEPEST or given is None:
        prompt.frame("null")
    elif isinstance(given, str):
        string(given, prompt)
    elif isinstance(given, bool):
        prompt.frame("true" if given else "false")
    elif isinstance(given, dict):
        prompt.frame("{")
        for place, (key, inner) in enumerate(ordered(cast("dict[str, Any]", given))):
            if place:
                prompt.frame(",")
            if quoted_keys:
                string(key, prompt)
            else:
                prompt.text(key)
            prompt.frame(":")
            value(inner, prompt, quoted_keys=quoted_keys, depth=depth + 1)
        prompt.frame("}")
    elif isinstance(given, list):
        prompt.frame("[")
        for place, inner in enumerate(cast("list[Any]", given)):
            if place:
                prompt.frame(",")
            value(inner, prompt, quoted_keys=quoted_keys, depth=depth + 1)
        prompt.frame("]")
    else:
        prompt.text(str(given))


def arguments(given: Mapping[str, Any], prompt: PromptBuilder) -> None:
    """The arguments of a call, without braces."""
    for place, (key, inner) in enumerate(ordered(given)):
        if place:
            prompt.frame(",")
        prompt.text(key).frame(":")
        value(inner, prompt)


def declaration(tool: Mapping[str, Any], prompt: PromptBuilder, *, first: bool) -> None:
    """A function. `first`: as the first published templates write it."""
    function = _object(tool.get("function"))
    prompt.frame("<|tool>declaration:").text(_shown(function.get("name"))).frame("{description:")
    string(_shown(function.get("description")), prompt)
    parameters = _object(function.get("parameters"))
    if parameters:
        prompt.frame(",parameters:{")
        if properties := _object(parameters.get("properties")):
            prompt.frame("properties:{")
            _properties(properties, prompt, first=first, depth=0, own=not first)
            prompt.frame("},")
        if required := _list(parameters.get("required")):
            _required(required, prompt)
            prompt.frame(",")
        if parameters.get("type"):
            prompt.frame("type:")
            string(_upper(parameters.get("type")), prompt)
            prompt.frame("}")
    if "response" in function:
        response = _object(function["response"])
        prompt.frame(",response:{")
        if response.get("description"):
            prompt.frame("description:")
            string(_shown(response["description"]), prompt)
            prompt.frame(",")
        if _upper(response.get("type")) == "OBJECT":
            prompt.frame("type:")
            string("OBJECT", prompt)
            prompt.frame("}")
    prompt.frame("}<tool|>")


def _properties(properties: Schema, prompt: PromptBuilder, *, first: bool, depth: int, own: bool) -> None:
    """`own`: these are the names of parameters, and no words of a schema among them."""
    if depth > _DEEPEST:
        return
    shown = [(key, _object(inner)) for key, inner in ordered(properties) if own or key not in _STANDARD]
    for place, (key, schema) in enumerate(shown):
        if place:
            prompt.frame(",")
        prompt.text(key).frame(":{")
        writer = _Members(prompt)
        if schema.get("description"):
            writer.name("description")
            string(_shown(schema["description"]), prompt)
        kind = _upper(schema.get("type"))
        if first and schema.get("nullable"):
            writer.name("nullable").frame("true")
        if kind == "STRING" and schema.get("enum"):
            writer.name("enum")
            value(schema["enum"], prompt, quoted_keys=True)
        elif kind == "OBJECT" and first:
            _members(schema, writer, prompt, first=first, depth=depth)
        elif kind == "ARRAY" and (items := _object(schema.get("items"))):
            writer.name("items", always=first).frame("{")
            _items(items, prompt, first=first, depth=depth)
            prompt.frame("}")
        if not first and schema.get("nullable"):
            writer.name("nullable").frame("true")
        if not first and kind == "OBJECT":
            _members(schema, writer, prompt, first=first, depth=depth)
        writer.name("type")
        string(kind, prompt)
        prompt.frame("}")


def _members(schema: Schema, writer: "_Members", prompt: PromptBuilder, *, first: bool, depth: int) -> None:
    """What an object has; of one without declared properties, what else its schema says."""
    properties = schema.get("properties")
    writer.name("properties", always=first).frame("{")
    if isinstance(properties, dict):
        inner = cast("dict[str, Any]", properties)
        _properties(inner, prompt, first=first, depth=depth + 1, own=not first)
    else:
        _properties(schema, prompt, first=first, depth=depth + 1, own=False)
    prompt.frame("}")
    if required := _list(schema.get("required")):
        if first:
            prompt.frame(",")
        else:
            writer.comma()
        _required(required, prompt)


def _items(items: Schema, prompt: PromptBuilder, *, first: bool, depth: int) -> None:
    writer = _Members(prompt)
    for key, inner in ordered(items):
        if inner is None:
            continue
        writer.comma()
        if key == "properties":
            prompt.frame("properties:{")
            _properties(_object(inner), prompt, first=first, depth=depth + 1, own=not first)
            prompt.frame("}")
        elif key == "required":
            _required(_list(inner), prompt)
        elif key == "type":
            prompt.frame("type:")
            several = [_upper(one) for one in _list(inner)]
            value(several if several or inner == [] else _upper(inner), prompt)
        else:
            prompt.text(key).frame(":")
            value(inner, prompt, quoted_keys=True)


def _required(names: Sequence[Any], prompt: PromptBuilder) -> None:
    prompt.frame("required:[")
    for place, name in enumerate(names):
        if place:
            prompt.frame(",")
        string(_shown(name), prompt)
    prompt.frame("]")


class _Members:
    """Commas between the members of an object."""

    def __init__(self, prompt: PromptBuilder) -> None:
        self._prompt: Final = prompt
        self._any = False

    def comma(self) -> None:
        if self._any:
            self._prompt.frame(",")
        self._any = True

    def name(self, name: str, *, always: bool = False) -> PromptBuilder:
        """Begin a member; `always`: a comma even before the first one, which counts as none."""
        if always:
            return self._prompt.frame(f",{name}:")
        self.comma()
        return self._prompt.frame(f"{name}:")


def ordered(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Members by name, case aside."""
    return sorted(given.items(), key=lambda item: item[0].lower())


def _upper(kind: object) -> str:
    return "" if kind is None else str(kind).upper()


def _shown(text: object) -> str:
    return "" if text is None else str(text)


def _object(given: object) -> Schema:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _list(given: object) -> list[Any]:
    return cast("list[Any]", given) if isinstance(given, list) else []
