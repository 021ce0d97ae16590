"""Jinja for templates that nobody here wrote.

A chat template comes with the model file and runs on every request, so it runs in Jinja's
immutable sandbox, and without the operations by which a few letters of template make a text of
any size. What it may call is what model makers count on: `raise_exception`, `strftime_now`,
`tojson` without HTML escapes, `break` and `continue`, and the `generation` block.
"""

import json
import re
from collections.abc import Iterable, Sized
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, cast

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from onward.core.clock import Clock

_MAX_TEXT: Final = 1 << 26
_MAX_REPEATED: Final = 1 << 20
_MAX_INDENT: Final = 64
_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_WIDE_FORMAT: Final = re.compile(r"[%{][^a-zA-Z]*(\d{4}|\*|\{)")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class RefusalError(TemplateError):
    """The template itself refused the conversation, in its own words."""


class TooLargeError(TemplateError):
    """The template asked for an operation whose result could be of any size."""


class _Generation(Extension):
    """The block that marks a reply for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it as a plain attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. `seams` stay as they are in `tojson`, whatever it escapes."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, clock: Clock, seams: Iterable[str]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self._seams: Final = frozenset(seams)
        self._clock: Final = clock
        filters = cast("dict[str, Any]", self.filters)  # pyright: ignore[reportUnknownMemberType]
        filters |= {"tojson": self._tojson, "indent": _indent, "center": _unsupported}
        names = cast("dict[str, Any]", self.globals)  # pyright: ignore[reportUnknownMemberType]
        names |= {"raise_exception": _raise, "strftime_now": self._now}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            fits = not isinstance(left, str) or len(left) + _size(right) <= _MAX_TEXT
        elif operator == "*":
            fits = _size(left) * _size(right) <= _MAX_REPEATED or _numbers(left, right)
        elif operator == "**":
            fits = _numbers(left, right) and abs(left) <= 1 << 16 and abs(right) <= 16
        else:
            fits = not isinstance(left, str) or not _WIDE_FORMAT.search(left)
        if not fits:
            raise TooLargeError(f"the result of the template's operator {operator} would be too large")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and _WIDE_FORMAT.search(owner) and obj.__name__.startswith("format"):
            raise TooLargeError("the template formats a text that would be too large")
        return super().call(context, obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _PADDING and super().is_safe_attribute(obj, attr, value)

    def _now(self, form: str) -> str:
        if _WIDE_FORMAT.search(form):
            raise TooLargeError("the template asks for a date that would be too large")
        return datetime.fromtimestamp(self._clock.unix(), tz=UTC).astimezone().strftime(form)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        indent = indent if indent is None else min(indent, _MAX_INDENT)
        text = json.dumps(
            value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
        )
        return _NOT_ASCII.sub(self._escaped, text) if ensure_ascii else text

    def _escaped(self, match: re.Match[str]) -> str:
        letter = match.group()
        return letter if letter in self._seams else json.dumps(letter)[1:-1]


def _numbers(left: Any, right: Any) -> bool:
    return isinstance(left, (int, float)) and isinstance(right, (int, float))


def _size(value: Any) -> int:
    """Letters of a text, items of a list, or how often a number repeats."""
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, Sized) else 1


def _raise(message: Any) -> NoReturn:
    raise RefusalError(str(message))


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if _size(width) > _MAX_INDENT:
        raise TooLargeError(f"the template indents by more than {_MAX_INDENT}")
    return do_indent(text, width, first, blank)


def _unsupported(*_: Any, **__: Any) -> NoReturn:
    raise TooLargeError("the template uses the filter center, which is not supported")
