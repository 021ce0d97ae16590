"""Pictures as an engine gets them: decoded, red, green and blue."""

import msgspec


class Image(msgspec.Struct, frozen=True, weakref=True):
    """A picture without transparency."""

    width: int
    height: int
    rgb: bytes
    """Three bytes a pixel, row by row from the top: `3 * width * height` of them."""


class ImageSpan(msgspec.Struct, frozen=True):
    """What a picture of a certain size takes in a prompt of a certain model."""

    tokens: int
    """Places in the context, those of `before` and `after` aside."""
    before: list[int] = []
    """Token IDs that the model's images stand behind. The engine adds none of them."""
    after: list[int] = []
    """Token IDs that stand behind its images."""


class PlacedImage(msgspec.Struct, frozen=True):
    """A picture in a prompt of token IDs."""

    position: int
    """It stands in front of the prompt's ID of this number; behind all of them at their count."""
    image: Image
