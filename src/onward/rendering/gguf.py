"""The metadata of a GGUF file, read from any buffer.

Only the header is read: never the tensors. Every length in the file is checked against the
bytes that are really there before anything is made of it, so a truncated or lying file ends in
a `GgufError`, at a cost that is linear in the bytes it has.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

GgufValue = int | float | bool | str | list[Any]

_MAX_HEADER_BYTES: Final = 512 * 1024 * 1024
_MAX_DEPTH: Final = 4

_COUNT: Final = struct.Struct("<Q")
_KIND: Final = struct.Struct("<I")
_STRING: Final = 8
_ARRAY: Final = 9
_BOOL: Final = 7

_NUMBERS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    _BOOL: "B",
    10: "Q",
    11: "q",
    12: "d",
}


class GgufError(ValueError):
    """The file is no GGUF, is cut short, or contradicts itself."""


def read_metadata(buffer: bytes | bytearray | memoryview) -> dict[str, GgufValue]:
    """All key-value pairs of the GGUF (version 2 or 3, little-endian) that `buffer` holds.

    `buffer` may be an `mmap` of the whole file or just its head. Strings that are no UTF-8 keep
    their bytes as lone surrogates (``surrogateescape``). Raises `GgufError`.
    """
    with memoryview(buffer) as view, view.cast("B") as octets:
        if len(octets) < 24:
            raise GgufError("the file is too short to be a GGUF")
        if octets[:4].tobytes() != b"GGUF":
            raise GgufError("the file is no GGUF: it does not begin with the letters GGUF")
        version, _tensors, pairs = struct.unpack_from("<IQQ", octets, 4)
        if version not in {2, 3}:
            if version & 0xFFFF == 0:
                raise GgufError("the file is a big-endian GGUF; only little-endian files can be read")
            raise GgufError(f"GGUF version {version} is not known; versions 2 and 3 are")
        return _Reader(octets).pairs(24, pairs)


class _Reader:
    """Walks the header; each method takes a position and gives what is there and the next."""

    def __init__(self, octets: memoryview) -> None:
        self._octets = octets
        self._end = min(len(octets), _MAX_HEADER_BYTES)

    def pairs(self, at: int, count: int) -> dict[str, GgufValue]:
        self._need(at, count, 13, "key-value pairs")
        found: dict[str, GgufValue] = {}
        for _ in range(count):
            key, at = self._string(at)
            if key in found:
                raise GgufError(f"the key {key[:100]!r} stands twice in the file")
            kind, at = self._number(at, _KIND)
            found[key], at = self._value(at, kind, 0)
        return found

    def _need(self, at: int, count: int, size: int, what: str) -> None:
        if count * size > self._end - at:
            raise GgufError(f"the file is cut short or damaged: {count} {what} do not fit at byte {at}")

    def _number(self, at: int, form: struct.Struct) -> tuple[int, int]:
        self._need(at, 1, form.size, "numbers")
        return form.unpack_from(self._octets, at)[0], at + form.size

    def _string(self, at: int) -> tuple[str, int]:
        size, at = self._number(at, _COUNT)
        self._need(at, size, 1, "bytes of a string")
        return str(self._octets[at : at + size], "utf-8", "surrogateescape"), at + size

    def _value(self, at: int, kind: int, depth: int) -> tuple[GgufValue, int]:
        if kind == _STRING:
            return self._string(at)
        if kind == _ARRAY:
            return self._array(at, depth)
        numbers, at = self._numbers(at, kind, 1)
        return numbers[0], at

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        if depth == _MAX_DEPTH:
            raise GgufError(f"arrays are nested more than {_MAX_DEPTH} deep")
        kind, at = self._number(at, _KIND)
        count, at = self._number(at, _COUNT)
        if kind == _STRING:
            return self._strings(at, count)
        if kind != _ARRAY:
            return self._numbers(at, kind, count)
        self._need(at, count, 12, "arrays")
        arrays: list[Any] = []
        for _ in range(count):
            array, at = self._array(at, depth + 1)
            arrays.append(array)
        return arrays, at

    def _numbers(self, at: int, kind: int, count: int) -> tuple[list[Any], int]:
        letter = _NUMBERS.get(kind)
        if letter is None:
            raise GgufError(f"value type {kind} at byte {at} is not known")
        size = struct.calcsize("<" + letter)
        self._need(at, count, size, "numbers")
        numbers = list(struct.unpack_from(f"<{count}{letter}", self._octets, at))
        return [number != 0 for number in numbers] if kind == _BOOL else numbers, at + count * size

    def _strings(self, at: int, count: int) -> tuple[list[str], int]:
        """A vocabulary's worth of strings: the one loop that has to be fast."""
        self._need(at, count, 8, "strings")
        octets, end, unpack = self._octets, self._end, _COUNT.unpack_from
        strings: list[str] = []
        append: Callable[[str], None] = strings.append
        try:
            for _ in range(count):
                start = at + 8
                at = start + unpack(octets, at)[0]
                if at > end:
                    break
                append(str(octets[start:at], "utf-8", "surrogateescape"))
        except struct.error:
            at = end + 1
        if len(strings) != count or at > end:
            raise GgufError(
                f"the file is cut short or damaged: string {len(strings)} of {count} does not fit"
            )
        return strings, at
