"""Pictures as an engine gets them: decoded, red, green and blue."""

import msgspec


class Image(msgspec.Struct, frozen=True):
    """A picture without transparency."""

    width: int
    height: int
    rgb: bytes
    """Three bytes a pixel, row by row from the top: `3 * width * height` of them."""


class PlacedImage(msgspec.Struct, frozen=True):
    """A picture in a prompt of token IDs."""

    position: int
    """It stands in front of the prompt's ID of this number; behind all of them at their count."""
    image: Image
