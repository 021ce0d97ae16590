"""Readers of prompts, token IDs, stop sequences and biases."""

import math
from typing import Any, NoReturn, cast

import msgspec

from onward.core.failure import excerpt, invalid
from onward.dialects.values import INT32_HIGH, LogitBias, Prompts, Stops, TokenIds, json_type, mistyped

_INT_ONLY: frozenset[type] = frozenset({int})
_DIGITS_IN_AN_ID = 10


class PromptList(msgspec.Struct, frozen=True):
    """The prompts of a request; `batch` if the caller sent an array of them."""

    items: list[str | list[int]]
    batch: bool

    def __len__(self) -> int:
        return len(self.items)


class StopList(msgspec.Struct, frozen=True):
    """Stop sequences by kind."""

    texts: list[str] = []
    token_ids: list[int] = []


def read_prompts(kind: Prompts, value: Any, path: str) -> PromptList:
    """A text, token IDs, or an array of either: told apart by the first element.

    An empty text passes unless the dialect takes none: whether the model makes a prompt of it (its BOS
    token) is seen later.
    """
    if type(value) is str:
        _check_empty(kind, value, path)
        return PromptList([value], batch=False)
    if type(value) is not list:
        raise mistyped(path, _forms(kind), value)
    items = cast("list[Any]", value)
    if not items:
        raise invalid(path, f"'{path}' is an empty array: send at least one prompt.")
    first = type(cast("object", items[0]))
    if first is int and kind.token_ids:
        return PromptList([checked_ids(items, path)], batch=False)
    if first is not str and (first is not list or not kind.token_ids):
        raise invalid(f"{path}[0]", f"'{path}' must be {_forms(kind)}; '{path}[0]' is {json_type(items[0])}.")
    if len(items) > kind.most:
        taken = f"at most {kind.most} are taken at once" if kind.most > 1 else "send them one by one"
        raise invalid(path, f"'{path}' holds {len(items)} prompts; {taken}.")
    for position, item in enumerate(items):
        where = f"{path}[{position}]"
        if type(item) is not first:
            raise invalid(where, f"'{path}' must hold prompts of one kind; '{where}' is {json_type(item)}.")
        if first is str:
            _check_empty(kind, cast("str", item), where)
            continue
        if not item:
            raise invalid(where, f"'{where}' is empty: send at least one token ID.")
        checked_ids(cast("list[Any]", item), where)
    return PromptList(items, batch=True)


def _check_empty(kind: Prompts, text: str, path: str) -> None:
    if not text and not kind.empty:
        raise invalid(path, f"'{path}' is empty: send the text to continue.")


def read_token_ids(kind: TokenIds, value: Any, path: str) -> list[int]:
    """An array of token IDs, possibly empty."""
    if type(value) is not list:
        raise mistyped(path, "an array of token IDs", value)
    items = cast("list[Any]", value)
    if not kind.least <= len(items) <= kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} token IDs; {kind.least} to {kind.most} are taken.")
    return checked_ids(items, path) if items else []


def read_stops(kind: Stops, value: Any, path: str) -> StopList:
    """A string, an array of strings, or an array of token IDs; never both (1.7)."""
    if type(value) is str:
        return StopList(_stop_texts(kind, [value], path, alone=True))
    if type(value) is not list:
        raise mistyped(path, _stop_forms(kind), value)
    items = cast("list[Any]", value)
    if not items:
        return StopList()
    if type(items[0]) is int and kind.token_ids:
        if len(items) > kind.token_ids:
            raise invalid(path, f"'{path}' holds {len(items)} token IDs; at most {kind.token_ids} are taken.")
        return StopList(token_ids=checked_ids(items, path))
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} strings; at most {kind.most} are taken.")
    return StopList(_stop_texts(kind, items, path, alone=False))


def read_logit_bias(kind: LogitBias, value: Any, path: str) -> dict[int, float]:
    """Token IDs, written as strings, to addends."""
    if type(value) is not dict:
        raise mistyped(path, "an object of token IDs to numbers", value)
    items = cast("dict[str, Any]", value)
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' names {len(items)} tokens; at most {kind.most} are taken.")
    biases: dict[int, float] = {}
    for key, bias in items.items():
        if not (key.isascii() and key.isdigit() and len(key) <= _DIGITS_IN_AN_ID):
            raise invalid(path, f"'{path}': the key '{excerpt(key, 40)}' is no token ID.")
        if type(bias) is not int and type(bias) is not float:
            raise invalid(path, f"'{path}': the bias of token {key} must be a number, not {json_type(bias)}.")
        if not math.isfinite(bias) or not kind.low <= bias <= kind.high:
            raise invalid(
                path, f"'{path}': the bias of token {key} must be from {kind.low:g} to {kind.high:g}."
            )
        biases[int(key)] = float(bias)
    return biases


def _stop_texts(kind: Stops, items: list[Any], path: str, *, alone: bool) -> list[str]:
    size = 0
    for position, item in enumerate(items):
        where = path if alone else f"{path}[{position}]"
        if type(item) is not str:
            raise invalid(where, f"'{path}' must be {_stop_forms(kind)}; '{where}' is {json_type(item)}.")
        if not item:
            raise invalid(where, f"'{where}' is empty, which would stop at once. Leave it out.")
        size += len(item.encode())
    if size > kind.longest:
        raise invalid(path, f"'{path}' has {size} bytes; at most {kind.longest} are taken.")
    return items


def checked_ids(items: list[Any], path: str) -> list[int]:
    """A non-empty array of token IDs that some model could have.

    A prompt may hold many: the common case runs in C.
    """
    if _INT_ONLY.issuperset(map(type, items)) and min(items) >= 0 and max(items) <= INT32_HIGH:
        return items
    for position, item in enumerate(items):
        if type(item) is not int:
            _bad_id(path, position, f"{json_type(item)}; token IDs are integers, all of them")
        if not 0 <= item <= INT32_HIGH:
            _bad_id(path, position, f"{excerpt(str(item), 40)}, which is no token ID of any model")
    return items


def _bad_id(path: str, position: int, what: str) -> NoReturn:
    raise invalid(f"{path}[{position}]", f"'{path}[{position}]' is {what}.")


def _forms(kind: Prompts) -> str:
    several = "an array of them" if kind.most > 1 else "an array that holds one of them"
    return f"a string, an array of token IDs, or {several}" if kind.token_ids else f"a string or {several}"


def _stop_forms(kind: Stops) -> str:
    return "a string, an array of strings" + (", or an array of token IDs" if kind.token_ids else "")
