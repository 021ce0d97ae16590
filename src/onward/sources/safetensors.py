"""What a safetensors file holds and where, read from its header alone."""

import struct
from pathlib import Path
from typing import Any

import msgspec

from onward.core.checkpoint import StoredTensor

MAX_HEADER = 16 * 1024 * 1024
"""Bytes. The header of an adapter has a few hundred for each weight."""

_LENGTH = struct.Struct("<Q")
_BITS = {
    "F64": 64, "I64": 64, "U64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
}  # fmt: skip


class IncompleteError(Exception):
    """A file is not, or not yet, whole: one line that says what is missing."""


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_tensors(path: Path) -> tuple[StoredTensor, ...]:
    """The tensors of a file, in their order. Raises `IncompleteError` unless they fill it exactly."""
    with path.open("rb") as file:
        start = file.read(_LENGTH.size)
        if len(start) < _LENGTH.size:
            raise IncompleteError("it ends within its header")
        (length,) = _LENGTH.unpack(start)
        if length > MAX_HEADER:
            raise IncompleteError(f"its header would have {length} bytes")
        header = file.read(length)
        file.seek(0, 2)
        size = file.tell()
    if len(header) < length:
        raise IncompleteError("it ends within its header")
    begin = _LENGTH.size + length
    tensors = sorted(_tensors(header, begin), key=lambda tensor: tensor.offset)
    end = begin
    for tensor in tensors:
        if tensor.offset != end:
            raise IncompleteError("its tensors overlap or leave gaps")
        end += tensor.size
    if end != size:
        raise IncompleteError(f"it has {size} bytes of {end}")
    return tuple(tensors)


def _tensors(header: bytes, begin: int) -> list[StoredTensor]:
    try:
        fields: dict[str, Any] = msgspec.json.decode(header, type=dict[str, Any])
        fields.pop("__metadata__", None)
        return [_tensor(name, msgspec.convert(value, _Entry), begin) for name, value in fields.items()]
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise IncompleteError("its header is no list of tensors") from None


def _tensor(name: str, entry: _Entry, begin: int) -> StoredTensor:
    start, end = entry.data_offsets
    bits = _BITS.get(entry.dtype)
    count = 1
    for length in entry.shape:
        if not 0 <= length < 1 << 48:
            raise IncompleteError("its header is no list of tensors")
        count = min(count * length, 1 << 64)
    if not 0 <= start <= end or (bits is not None and (end - start) * 8 != count * bits):
        raise IncompleteError(f"its header gives {name[:100]!r} a size that its shape does not have")
    return StoredTensor(name, entry.dtype, tuple(entry.shape), begin + start, end - start)
