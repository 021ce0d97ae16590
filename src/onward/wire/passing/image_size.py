"""How large the images of a body are that goes on to a provider."""

from collections.abc import Iterator
from typing import Any, Final, cast

from onward.core.failure import media_too_large

_IMAGES: Final = ("image_url", "input_image", "image")


def check_images(body: dict[str, Any], longest: int) -> None:
    """Refuse an image of more than `longest` bytes that came along, as base64.

    Raises `Failure` (MEDIA_TOO_LARGE). What is no image, or none that is well-formed, is for the provider
    to refuse.
    """
    for path, data in _images(body.get("messages"), "messages"):
        size = len(data) * 3 // 4
        if size > longest:
            raise media_too_large(path, f"'{path}' is an image of {size} bytes; at most {longest} are taken.")


def _images(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The base64 of each image in a list of messages, or of parts of one."""
    for number, item in enumerate(cast("list[Any]", value) if type(value) is list else ()):
        if type(item) is not dict:
            continue
        fields, where = cast("dict[str, Any]", item), f"{path}[{number}]"
        yield from _images(fields.get("content"), f"{where}.content")
        if fields.get("type") not in _IMAGES:
            continue
        source, image = fields.get("source"), fields.get("image_url")
        if type(source) is dict:
            data = cast("dict[str, Any]", source).get("data")
            if type(data) is str:
                yield f"{where}.source.data", data
            continue
        at = f"{where}.image_url"
        if type(image) is dict:
            image, at = cast("dict[str, Any]", image).get("url"), f"{at}.url"
        if type(image) is str and image[:5].lower() == "data:":
            yield at, image.partition(",")[2]
