"""All text that a request's body brings to a model, in whichever shape, for its content filter.

What reaches the prompt is for the renderer, or for a provider, to know. So every string counts, but of
fields that are known to be none of the prompt: whoever adds a field of text shall not be a way around.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final, cast

from onward.core.content_filter import ContentFilter, Found
from onward.core.json_text import JSON_FIELDS, JsonText
from onward.wire.passing.prompt_size import UNSEEN

_NAMED: Final = frozenset({"tools", "functions", "response_format"})
"""Fields in which the names of members are the caller's own, and reach the prompt as well."""
_FORM: Final = frozenset(
    {
        "role",
        "type",
        "signature",
        "cache_control",
        "image_url",
        "video_url",
        "audio_url",
        "input_audio",
        "file_data",
    }
)
"""Members that are no text: words of the API, seals of a provider, addresses, pictures and sound."""
_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_DATA: Final = ("data", "url")
"""Members that are no text beside the `type` of something that is none."""
_OPAQUE: Final = ("base64", "url", "redacted_thinking")
_IDS: Final = ("prompt", "prompt_chunks", "prompt_token_ids", "input_ids", "prompt_embeds")


def blocked_text(
    content: ContentFilter, body: dict[str, Any], fields: Collection[str] | None
) -> tuple[str, Found] | None:
    """The path of the first text of a body that may not go in, and why. `fields`: those that are read of
    the body; None: a provider may read any.
    """
    for name, value in body.items():
        if name in UNSEEN or (fields is not None and name not in fields):
            continue
        for path, text in _texts(value, name, names=name in _NAMED):
            found = content.input_blocked(text)
            if found is not None:
                return path, found
    return None


def sent_twice(raw: bytes) -> str | None:
    """A name that an object of a body has twice: a provider may read another value of it than we do."""
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            twice.append(Counter(name for name, _ in pairs).most_common(1)[0][0])

    json.loads(raw, object_pairs_hook=members)
    return twice[0] if twice else None


def unreadable_prompt(body: dict[str, Any]) -> str | None:
    """The field of a body with a prompt in token IDs, or in numbers of another kind; None: there is none."""
    for name in _IDS:
        value = body.get(name)
        if name == "prompt_embeds" and value is not None:
            return name
        if type(value) is list and _has_ids(cast("list[Any]", value)):
            return name
    return None


def _has_ids(items: list[Any]) -> bool:
    for item in items:
        inner = cast("dict[str, Any]", item).get("tokens") if type(item) is dict else item
        if inner is not None and type(inner) is not str and type(item) is not dict:
            return True
        if type(item) is dict and inner:
            return True
    return False


def _texts(value: Any, path: str, *, names: bool) -> Iterator[tuple[str, str]]:
    """Each string below a value. The parts of one text are also one, joined."""
    if type(value) is str:
        yield path, value
    elif type(value) is list:
        joined: list[str] = []
        for number, item in enumerate(cast("list[Any]", value)):
            yield from _texts(item, f"{path}[{number}]", names=names)
            text = cast("dict[str, Any]", item).get("text") if type(item) is dict else None
            if type(text) is str:
                joined.append(text)
        if len(joined) > 1:
            yield path, "".join(joined)
    elif type(value) is dict:
        members = cast("dict[str, Any]", value)
        opaque = members.get("type") in _OPAQUE
        for name, inner in members.items():
            if names:
                yield path, name
            if name == "role" and type(inner) is str and inner not in _ROLES:
                yield f"{path}.{name}", inner  # some templates write any
            if name in _FORM and type(inner) is not list and not (names and type(inner) is dict):
                continue
            if opaque and name in _DATA:
                continue
            if name in JSON_FIELDS and type(inner) is str and "\\" in inner:
                yield f"{path}.{name}", JsonText().push(inner)  # what it means, spelled in any way
            yield from _texts(inner, f"{path}.{name}", names=names)
