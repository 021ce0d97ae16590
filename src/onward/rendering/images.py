"""Pictures that callers send, decoded within bounds (TC-10).

Pillow decodes; what it may decode is settled before it is called: the kind by the first bytes, the
pixels by the header. A picture that is cut short is refused, never filled up with grey.
"""

import binascii
import io
from typing import Final

import numpy as np
import PIL.Image
from PIL import ImageOps

from onward.core.image import Image
from onward.rendering.image_header import Header, ImageError, ImageTooLargeError, read_header

MOST_PIXELS: Final = 4096 * 4096
"""Of one picture: a photo of a phone has 12 million."""
LONGEST_SIDE: Final = 16_384
MOST_STRETCHED: Final = 200
"""How many times longer than the other a side may be; models' own preprocessing refuses more."""

_TYPES: Final = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/jpg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
}
_16_BITS: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_WHITE: Final = (255, 255, 255, 255)


def decode_url(url: str) -> Image:
    """The picture of a base64 data URL. Raises `ImageError`."""
    type_, data = _parts(url)
    header = checked_header(data)
    said = _TYPES.get(type_)
    if said is not None and said != header.kind:
        raise ImageError(f"says that it is {type_}, but holds a {header.kind} image")
    return _decoded(data, header)


def decode(data: bytes) -> Image:
    """A picture: of an animation the first frame, transparency on white, upright. Raises `ImageError`."""
    return _decoded(data, checked_header(data))


def checked_header(data: bytes) -> Header:
    """What a picture says of itself, if that is within bounds. Raises `ImageError`."""
    header = read_header(data)
    _check_size(header.width, header.height)
    return header


def _parts(url: str) -> tuple[str, bytes]:
    """The media type of a data URL, in lower case, and what it holds."""
    head, comma, body = url.partition(",")
    if head[:5].lower() != "data:" or not comma or not head.lower().endswith(";base64"):
        raise ImageError("is no base64 data URL: addresses are not fetched here, send the image itself")
    try:
        data = binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError):
        raise ImageError("holds no well-formed base64") from None
    return head[5:].partition(";")[0].lower(), data


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"is an image of {width} x {height} pixels: it shows nothing")
    if width * height > MOST_PIXELS:
        raise ImageTooLargeError(
            f"is an image of {width} x {height} pixels; at most {MOST_PIXELS} in all are taken: scale it down"
        )
    longer, shorter = max(width, height), min(width, height)
    if longer > LONGEST_SIDE or longer > MOST_STRETCHED * shorter:
        raise ImageTooLargeError(
            f"is an image of {width} x {height} pixels; a side may have {LONGEST_SIDE}, and "
            f"{MOST_STRETCHED} times those of the other"
        )


def _decoded(data: bytes, header: Header) -> Image:
    try:
        with PIL.Image.open(io.BytesIO(data), formats=[header.kind]) as opened:
            _check_size(*opened.size)  # a frame can be larger than the header said
            opened.load()
            picture = _rgb(_upright(opened))
    except ImageError:
        raise
    except MemoryError:
        raise ImageTooLargeError("is an image that there is no memory for") from None
    except Exception as error:
        raise ImageError(f"is no valid {header.kind} image, or it is cut short") from error
    return Image(picture.width, picture.height, picture.tobytes())


def _upright(picture: PIL.Image.Image) -> PIL.Image.Image:
    """Turned as its EXIF data say, where they can be read: cameras store pictures lying."""
    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # noqa: BLE001 - broken EXIF data spoil no picture
        return picture


def _rgb(picture: PIL.Image.Image) -> PIL.Image.Image:
    if picture.mode in _16_BITS:
        picture = PIL.Image.fromarray((np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8))
    if picture.has_transparency_data:
        ground = PIL.Image.new("RGBA", picture.size, _WHITE)
        ground.alpha_composite(picture.convert("RGBA"))
        picture = ground
    return picture.convert("RGB")
