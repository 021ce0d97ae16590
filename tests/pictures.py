"""Pictures for tests, made on the spot."""

import base64
import io
import struct
import zlib

import PIL.Image


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, body: bytes | None = None) -> bytes:
    """A black PNG of 8 bits grey; a `body` of your own instead of its pixels."""
    rows = zlib.compress(bytes((width + 1) * height), 9) if body is None else body
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def picture(
    kind: str = "PNG", color: tuple[int, ...] = (200, 30, 60), size: tuple[int, int] = (24, 16), **options
) -> bytes:
    """A picture with a gradient in it, so that no two colours look alike to a model."""
    image = PIL.Image.new("RGB", size, color[:3])
    for x in range(size[0] // 2):
        for y in range(size[1]):
            image.putpixel((x, y), (x * 7 % 256, y * 11 % 256, (color[2] + x * y) % 256))
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def animation(first: tuple[int, int, int], second: tuple[int, int, int]) -> bytes:
    """A GIF of two frames."""
    frames = [PIL.Image.new("RGB", (8, 8), color) for color in (first, second)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=100)
    return buffer.getvalue()


def data_url(data: bytes, type_: str = "image/png") -> str:
    return f"data:{type_};base64,{base64.b64encode(data).decode()}"


def part(data: bytes, type_: str = "image/png") -> dict:
    """An image part, of a message or of a prompt."""
    return {"type": "image_url", "image_url": {"url": data_url(data, type_)}}
