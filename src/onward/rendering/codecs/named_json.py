"""Calls that are a name, a separator and a JSON object: DeepSeek V3.1, Kimi."""

import re
from typing import Final

from onward.rendering.codecs.call import Body, Call, Codec, CodecError, Mark, Tools, name_of, object_text

_KIMI_ID: Final = re.compile(r"(?!functions\.:)(?:functions\.)?(\S+):\d+")


def named_json(separator: str) -> Codec:
    """A codec for ``NAME separator {...}``."""

    def read(body: Body, _: Tools) -> list[Call]:
        name, arguments = _parts(body, separator)
        return [Call(name_of(name), object_text(arguments))]

    return read


def kimi_call(separator: str) -> Codec:
    """A codec for ``functions.NAME:NUMBER separator {...}``; what is in front is the call's ID too."""

    def read(body: Body, _: Tools) -> list[Call]:
        given, arguments = _parts(body, separator)
        identity = given.strip()
        found = _KIMI_ID.fullmatch(identity)
        if found is None:
            raise CodecError("a call's ID is functions.NAME:NUMBER")
        return [Call(name_of(found[1]), object_text(arguments), identity)]

    return read


def _parts(body: Body, separator: str) -> tuple[str, str]:
    match body.pieces:
        case [name, Mark() as mark, arguments] if mark == separator and not isinstance(name, Mark):
            return name, arguments
        case _:
            raise CodecError("a call is a name, one separator, and arguments")
