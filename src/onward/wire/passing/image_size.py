"""The images of a body that goes on to a provider: whether the model takes any, and how large they are."""

from collections.abc import Iterator
from typing import Any, cast

from onward.core.failure import media_too_large
from onward.rendering.conversation import no_images
from onward.wire.passing.prompt_size import IMAGES


def check_images(body: dict[str, Any], longest: int, *, taken: bool) -> None:
    """Refuse an image of more than `longest` bytes that came along, as base64; all images where the model
    declares that it takes none: `taken` False (P-1).

    Raises `Failure` (MEDIA_TOO_LARGE, MEDIA_UNSUPPORTED). What is no image, or none that is well-formed, is
    for the provider to refuse.
    """
    for path, data in _images(body.get("messages"), "messages"):
        if not taken:
            raise no_images(path)
        size = len(data) * 3 // 4
        if size > longest:
            raise media_too_large(path, f"'{path}' is an image of {size} bytes; at most {longest} are taken.")


def _images(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The base64 of each image in a list of messages, or of parts of one; of one by its address: nothing."""
    for number, item in enumerate(cast("list[Any]", value) if type(value) is list else ()):
        if type(item) is not dict:
            continue
        fields, where = cast("dict[str, Any]", item), f"{path}[{number}]"
        yield from _images(fields.get("content"), f"{where}.content")
        if fields.get("type") not in IMAGES:
            continue
        source, image = fields.get("source"), fields.get("image_url")
        if type(source) is dict:
            data = cast("dict[str, Any]", source).get("data")
            yield f"{where}.source.data", data if type(data) is str else ""
            continue
        at = f"{where}.image_url"
        if type(image) is dict:
            image, at = cast("dict[str, Any]", image).get("url"), f"{at}.url"
        inline = type(image) is str and image[:5].lower() == "data:"
        yield at, cast("str", image).partition(",")[2] if inline else ""
