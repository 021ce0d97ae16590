"""Where the members of a JSON object lie in its bytes.

The bytes are known to be valid JSON: nothing is checked here, and nothing is copied.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

_KEY: Final = re.compile(rb'[\s,]*"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_COLON: Final = re.compile(rb"\s*:\s*")
_SCALAR: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^,\]}\s"]++', re.DOTALL)
_FLAT: Final = re.compile(rb'(?:[^\[\]{}"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""All up to the next bracket."""
_NEXT: Final = re.compile(rb"[\s,]*")
_OPENING: Final = frozenset(b"{[")
_END_OF_ARRAY: Final = ord("]")


class Member(NamedTuple):
    """A name and where its value stands: ``raw[value:end]``."""

    name: str
    after_key: int
    """Behind the closing quote of the name."""
    value: int
    end: int


def members(raw: bytes, start: int = 0) -> list[Member]:
    """The members of the object that begins at or after `start`, in order, repeated names too."""
    found: list[Member] = []
    position = raw.index(b"{", start) + 1
    while key := _KEY.match(raw, position):
        spelled = key[1]
        name = msgspec.json.decode(b'"%b"' % spelled, type=str) if b"\\" in spelled else spelled.decode()
        value = value_start(raw, key.end())
        position = value_end(raw, value)
        found.append(Member(name, key.end(), value, position))
    return found


def value_start(raw: bytes, after_key: int) -> int:
    """Where the value of the name that ends before `after_key` begins."""
    colon = _COLON.match(raw, after_key)
    if colon is None:
        raise ValueError("a name without a value: no JSON")
    return colon.end()


def value_end(raw: bytes, start: int) -> int:
    """Where the value that begins at `start` ends."""
    if raw[start] not in _OPENING:
        scalar = _SCALAR.match(raw, start)
        if scalar is None:
            raise ValueError("a name without a value: no JSON")
        return scalar.end()
    position, depth = start + 1, 1
    while depth:
        flat = _FLAT.match(raw, position)
        position = flat.end() if flat else position
        depth += 1 if raw[position] in _OPENING else -1
        position += 1
    return position


def spliced(raw: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """`raw` with each ``raw[start:end]`` replaced. The edits do not overlap."""
    if len(edits) == 1:
        start, end, new = edits[0]
        return b"%b%b%b" % (raw[:start], new, raw[end:])
    pieces: list[bytes] = []
    position = 0
    for start, end, new in sorted(edits, key=_start):
        pieces += raw[position:start], new
        position = end
    pieces.append(raw[position:])
    return b"".join(pieces)


def with_model(raw: bytes, model: bytes) -> bytes:
    """The object with `model`, encoded, in place of each model that it has."""
    edits = [(one.value, one.end, model) for one in members(raw) if one.name == "model"]
    return spliced(raw, edits) if edits else raw


def only(raw: bytes, names: Collection[str], model: bytes) -> bytes:
    """The object with the members of these names alone, and `model`, encoded, as its model."""
    kept = {
        member.name: model if member.name == "model" else raw[member.value : member.end]
        for member in members(raw)
        if member.name in names
    }
    kept.setdefault("model", model)
    made = b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), value) for name, value in kept.items()])
    return made.replace(b"\n", b" ")


def items(raw: bytes) -> list[tuple[int, int]]:
    """Where the values of the array that is `raw` stand."""
    found: list[tuple[int, int]] = []
    position = _NEXT.match(raw, 1).end()  # type: ignore[union-attr]
    while raw[position] != _END_OF_ARRAY:
        end = value_end(raw, position)
        found.append((position, end))
        position = _NEXT.match(raw, end).end()  # type: ignore[union-attr]
    return found


def _start(edit: tuple[int, int, bytes]) -> int:
    return edit[0]
