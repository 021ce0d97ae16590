"""What kind of picture some bytes are, and how large it becomes: read off its header, nothing decoded.

A few kilobytes can stand for gigabytes of pixels, so the size is known before any decoder runs.
"""

from collections.abc import Callable
from typing import Final

import msgspec

_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of frame headers (SOF0 to SOF15, without DHT, JPG and DAC between them)."""
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length behind them."""


class ImageError(ValueError):
    """Bytes that are no picture we take. The message goes on from a name: "is cut short"."""


class ImageTooLargeError(ImageError):
    """A picture that we could read, were it smaller."""


class Header(msgspec.Struct, frozen=True):
    """What a picture says of itself."""

    kind: str
    """PNG, JPEG, GIF or WEBP."""
    width: int
    height: int


def read_header(data: bytes) -> Header:
    """The header of a picture. Raises `ImageError` if it has none."""
    for start, kind, size in _KINDS:
        if data.startswith(start):
            try:
                return Header(kind, *size(data))
            except IndexError:
                raise ImageError(f"is a {kind} image that is cut short") from None
    raise ImageError("is no PNG, JPEG, GIF or WebP image")


def _png(data: bytes) -> tuple[int, int]:
    if _part(data, 12, 4) != b"IHDR":
        raise ImageError("is no valid PNG image: it does not begin with IHDR")
    return int.from_bytes(_part(data, 16, 4), "big"), int.from_bytes(_part(data, 20, 4), "big")


def _gif(data: bytes) -> tuple[int, int]:
    return _little(data, 6, 2), _little(data, 8, 2)


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        if data[at] != 0xFF:
            raise ImageError("is no valid JPEG image: its segments are broken")
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _JPEG_ALONE:
            continue
        if marker in _JPEG_FRAMES:
            height, width = _part(data, at + 3, 2), _part(data, at + 5, 2)
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        if marker in {0xD9, 0xDA}:
            raise ImageError("is no valid JPEG image: it has no frame header")
        length = int.from_bytes(_part(data, at, 2), "big")
        if length < 2:
            raise ImageError("is no valid JPEG image: its segments are broken")
        at += length


def _webp(data: bytes) -> tuple[int, int]:
    if _part(data, 8, 4) != b"WEBP":
        raise ImageError("is no PNG, JPEG, GIF or WebP image")
    kind = _part(data, 12, 4)
    if kind == b"VP8X":
        return 1 + _little(data, 24, 3), 1 + _little(data, 27, 3)
    if kind == b"VP8L":
        bits = _little(data, 21, 4)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    raise ImageError("is no valid WebP image: its first chunk is unknown")


def _part(data: bytes, start: int, count: int) -> bytes:
    """Bytes that must be there. Raises `IndexError`."""
    part = data[start : start + count]
    if len(part) < count:
        raise IndexError(start)
    return part


def _little(data: bytes, start: int, count: int) -> int:
    return int.from_bytes(_part(data, start, count), "little")


_KINDS: Final[tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int]]], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "PNG", _png),
    (b"\xff\xd8", "JPEG", _jpeg),
    (b"GIF87a", "GIF", _gif),
    (b"GIF89a", "GIF", _gif),
    (b"RIFF", "WEBP", _webp),
)
"""First bytes of a kind, its name, and what finds its size."""
