"""Readers of images and of prompts that hold them (TC-10).

What can be told without decoding an image is told here: that a data URL is base64, of which kind
it says it is, and how large it becomes.
"""

import binascii
import re
from typing import Any, Final, cast

from onward.core.failure import excerpt, invalid, media_too_large, media_unsupported
from onward.core.request import ImagePart, PromptPart, TokensPart
from onward.dialects.prompts import checked_ids
from onward.dialects.schema import Dialect
from onward.dialects.tools import object_at, text_at
from onward.dialects.values import Images, Messages, PromptChunks, Turns, mistyped, unlisted

_LONGEST_ADDRESS: Final = 8192
_DETAILS: Final = ("auto", "low", "high", "original")
_DATA: Final = re.compile(r"data:([^;,]{0,100})((?:;[^;,]{0,100}){0,8}),", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"https?://[^/]", re.IGNORECASE)


def read_prompt_chunks(kind: PromptChunks, value: Any, path: str) -> list[PromptPart]:
    """The parts of one prompt, in order; together they are not empty."""
    if type(value) is not list:
        raise mistyped(path, "an array of parts", value)
    items = cast("list[Any]", value)
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} parts; at most {kind.most} are taken.")
    parts = [_part(kind, item, f"{path}[{position}]") for position, item in enumerate(items)]
    if not any(isinstance(part, ImagePart) or part.tokens for part in parts):
        raise invalid(path, f"'{path}' is empty: send at least one token ID or image.")
    return parts


def read_image(kind: Images, value: Any, path: str) -> ImagePart:
    """``{"url": ..., "detail": ...}``, or the URL alone, as some clients send it."""
    detail = None
    if type(value) is dict:
        image = cast("dict[str, Any]", value)
        detail = image.get("detail")
        if detail is not None and detail not in _DETAILS:
            known = ", ".join(f"'{name}'" for name in _DETAILS)
            raise invalid(f"{path}.detail", f"'{path}.detail' must be one of {known}.")
        value, path = image.get("url"), f"{path}.url"
    elif value is None:
        raise mistyped(path, "an object with a 'url'", value)
    url = text_at(value, path)
    if url[:5].lower() == "data:":
        _check_data(kind, url, path)
    elif not kind.remote:
        raise invalid(path, f"'{path}' must be a base64 data URL: no address is fetched here.")
    elif len(url) > _LONGEST_ADDRESS or not _ADDRESS.match(url):
        raise invalid(
            path,
            f"'{path}' must be a base64 data URL, or an http or https address of at most "
            f"{_LONGEST_ADDRESS} characters.",
        )
    return ImagePart(url, detail)


def takes_addresses(dialect: Dialect) -> bool:
    """Whether an image may be named by an address in any of its surfaces."""
    values = [field.value for surface in dialect.surfaces.values() for field in surface.fields]
    return any(isinstance(value, Messages | PromptChunks | Turns) and value.images.remote for value in values)


def _part(kind: PromptChunks, value: Any, path: str) -> PromptPart:
    part = object_at(value, path)
    name = part.get("type")
    if name == "tokens":
        tokens = part.get("tokens")
        if type(tokens) is not list:
            raise mistyped(f"{path}.tokens", "an array of token IDs", tokens)
        items = cast("list[Any]", tokens)
        return TokensPart(checked_ids(items, f"{path}.tokens") if items else [])
    if name == "image_url":
        return read_image(kind.images, part.get("image_url"), f"{path}.image_url")
    raise unlisted(f"{path}.type", "'tokens' or 'image_url'", name)


def _check_data(kind: Images, url: str, path: str) -> None:
    head = _DATA.match(url)
    if head is None or not head[2].lower().endswith(";base64"):
        raise invalid(path, f"'{path}' must be a base64 data URL, such as data:image/png;base64,….")
    if head[1].lower() not in kind.types:
        raise media_unsupported(
            path, f"'{path}' must be one of {', '.join(kind.types)}, not '{excerpt(head[1], 40)}'."
        )
    size = (len(url) - head.end()) * 3 // 4
    if size > kind.longest:
        raise media_too_large(
            path, f"'{path}' is an image of {size} bytes; at most {kind.longest} are taken."
        )
    try:
        data = binascii.a2b_base64(url[head.end() :], strict_mode=True)
    except ValueError:
        raise invalid(path, f"'{path}' holds no well-formed base64.") from None
    if not data:
        raise media_unsupported(path, f"'{path}' holds no image at all.")
