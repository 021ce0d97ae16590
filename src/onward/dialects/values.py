"""The types of a dialect's fields, as data: what JSON value a field takes and within what bounds.

Numbers are strict: a boolean is no number, ``5.0`` and ``"5"`` are no integers. A bound that a
dialect's page does not name is still set here, as nothing a caller sends may be unbounded.
"""

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from onward.core.failure import Failure, excerpt, invalid

if TYPE_CHECKING:
    from onward.dialects.schema import Field

INT32_HIGH = 2**31 - 1
INT64_LOW, INT64_HIGH = -(2**63), 2**63 - 1
FLOAT_HIGH = sys.float_info.max
LONGEST_TEXT = 64 * 1024 * 1024
"""Characters of a text that only the bound on bodies limits."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A type of field values."""


class Boolean(Value, frozen=True, kw_only=True):
    """true or false."""


class Integer(Value, frozen=True, kw_only=True):
    """A whole number written without a fraction, `low` to `high`."""

    low: int
    high: int
    zero_if_below: int | None = None
    """Values below this one mean 0: `top_k` -1 is the same as 0."""


class Number(Value, frozen=True, kw_only=True):
    """A finite number, `low` to `high`; what is not bounded here is bounded where it is used."""

    low: float = -FLOAT_HIGH
    high: float = FLOAT_HIGH
    above_low: bool = False
    """Whether `low` itself is outside the range."""


class Text(Value, frozen=True, kw_only=True):
    """A string of `shortest` to `longest` characters."""

    shortest: int = 0
    longest: int = LONGEST_TEXT
    empty_is_absent: bool = False


class Choice(Value, frozen=True, kw_only=True):
    """One of some strings."""

    values: tuple[str, ...]
    refused: dict[str, str] = {}
    """Strings that the dialect knows but this server does not serve: why, and what to do."""


class AnyOf(Value, frozen=True, kw_only=True):
    """A value of one of several types, told apart by their JSON types."""

    values: tuple[Value, ...]


class ListOf(Value, frozen=True, kw_only=True):
    """An array of `least` to `most` values of one type."""

    item: Value
    least: int = 0
    most: int


class Object(Value, frozen=True, kw_only=True):
    """An object with fields of its own; unknown ones are ignored."""

    fields: "tuple[Field, ...]"


class AnyObject(Value, frozen=True, kw_only=True):
    """Any object, kept as it is."""


class Prompts(Value, frozen=True, kw_only=True):
    """A prompt, or an array of at most `most` of them: texts, or arrays of token IDs."""

    most: int
    token_ids: bool = True
    """Whether token IDs are taken."""
    empty: bool = True
    """Whether a text may be empty; a model may still make no prompt of it."""


class TokenIds(Value, frozen=True, kw_only=True):
    """An array of token IDs. Whether the model has them is checked later."""

    least: int = 0
    most: int


class Stops(Value, frozen=True, kw_only=True):
    """Stop sequences: a string, an array of strings, or an array of token IDs."""

    most: int
    """Strings in an array."""
    token_ids: int
    """Token IDs in an array; 0: none are taken."""
    longest: int
    """Bytes of all strings together, in UTF-8."""


class LogitBias(Value, frozen=True, kw_only=True):
    """An object of token IDs, written as strings, to numbers."""

    low: float
    high: float
    most: int


class Images(msgspec.Struct, frozen=True, kw_only=True):
    """What images a dialect takes: base64 data URLs, and addresses where `remote` says so."""

    types: tuple[str, ...] = ("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp")
    longest: int
    """Bytes of an image, once decoded from base64."""
    remote: bool
    """Whether an address is taken too: fetched where the server's config says so, else refused later."""


class PromptChunks(Value, frozen=True, kw_only=True):
    """One prompt in parts: arrays of token IDs, and images."""

    most: int
    images: Images


class Messages(Value, frozen=True, kw_only=True):
    """A conversation."""

    roles: tuple[str, ...]
    most: int
    most_parts: int
    images: Images
    nullable: tuple[str, ...] = ()
    """Roles whose `content` may be null, as long as it is there. An assistant's may be missing
    beside calls or reasoning, in every dialect."""
    thinking_blocks: bool = False
    """Whether an assistant's may hold signed and sealed reasoning, as an answer told it."""


class Tools(Value, frozen=True, kw_only=True):
    """Functions that the model may call. An empty array is the same as none."""

    most: int


class ToolChoice(Value, frozen=True, kw_only=True):
    """``none``, ``auto``, ``required``, or a function by name."""


class Turns(Value, frozen=True, kw_only=True):
    """A conversation whose messages are made of blocks, as Anthropic's API writes it."""

    most: int
    most_parts: int
    images: Images


class ClientTools(Value, frozen=True, kw_only=True):
    """Functions that the model may call, as Anthropic's API declares them. None that a server runs."""

    most: int


class ClientToolChoice(Value, frozen=True, kw_only=True):
    """``{"type": "auto"}``, `any`, `none`, or `tool` with a name."""


def mistyped(path: str, wanted: str, value: Any) -> Failure:
    """The failure of a value of another type than `wanted`, a phrase such as "a string".

    null is a field that was not sent; in an array it is itself.
    """
    if value is None and not path.endswith("]"):
        return invalid(path, f"'{path}' is required: {wanted}.")
    return invalid(path, f"'{path}' must be {wanted}, not {json_type(value)}.")


def unlisted(path: str, wanted: str, value: Any) -> Failure:
    """The failure of a value that is none of the strings in the phrase `wanted`."""
    if not isinstance(value, str):
        return mistyped(path, wanted, value)
    return invalid(path, f"'{path}' must be {wanted}, not '{excerpt(value, 40)}'.")


def json_type(value: Any) -> str:
    """The name of a value's JSON type, with its article, as a message says it."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"
