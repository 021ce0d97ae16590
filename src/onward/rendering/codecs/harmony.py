"""Harmony's message headers, and the calls that they announce (gpt-oss)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from onward.rendering.codecs.call import Body, Call, CodecError, Mark, Tools, name_of, object_text

_CHANNELS: Final = frozenset({"analysis", "commentary", "final"})
_FUNCTIONS: Final = "functions."
_TO: Final = "to="


class Header(msgspec.Struct, frozen=True):
    """What stands between ``<|start|>assistant`` and ``<|message|>``."""

    channel: str
    function: str | None
    """The function that the message calls."""


def header(pieces: Sequence[str]) -> Header:
    """Read a header: a recipient (here or behind the channel), a channel, a content type.

    Raises `CodecError` for a channel that the format does not have, a recipient that is no
    function, and anything that stands there besides.
    """
    marks = [place for place, piece in enumerate(pieces) if isinstance(piece, Mark)]
    if not marks or pieces[marks[0]] != "<|channel|>" or marks[0] > 1:
        raise CodecError("no channel")
    before = "".join(pieces[: marks[0]]).split()
    behind = pieces[marks[0] + 1] if len(pieces) > marks[0] + 1 else ""
    words = [] if isinstance(behind, Mark) or behind[:1].isspace() else behind.split()
    rest = pieces[marks[0] + 1 + bool(words) :]
    if not words or words[0] not in _CHANNELS:
        raise CodecError("no channel of the format")
    channel, *words = words
    if rest:
        words += [_constraint(rest)]
    if before and words and words[0].startswith(_TO):
        raise CodecError("two recipients")
    words = before + words
    to = words.pop(0) if words and words[0].startswith(_TO) else None
    if before and to is None:
        raise CodecError("a word before the channel")
    if len(words) > 1 or any(word.startswith(_TO) for word in words):
        raise CodecError("more than a recipient and a content type")
    if to is None:
        return Header(channel, None)
    name = to.removeprefix(_TO)
    if not name.startswith(_FUNCTIONS) or channel == "final":
        raise CodecError("a recipient that is no function")
    return Header(channel, name_of(name.removeprefix(_FUNCTIONS)))


def first_route(pieces: Sequence[str]) -> str:
    """Where the header of the first message leads: its ``<|start|>assistant`` is in the prompt."""
    found = header(pieces)
    if found.function is not None:
        return "call"
    return "reasoning" if found.channel == "analysis" else "content"


def next_route(pieces: Sequence[str]) -> str:
    """Where the header of a later message leads: it names the role as well."""
    return first_route(_without_role(pieces))


def call(body: Body, _: Tools) -> list[Call]:
    """The codec of a message to a function."""
    label = body.label
    found = header(_without_role(label) if label and label[0].lstrip().startswith("assistant") else label)
    if found.function is None:
        raise CodecError("no function")
    return [Call(found.function, object_text(body.text))]


def _constraint(rest: Sequence[str]) -> str:
    """``<|constrain|>json``: one word behind the mark."""
    if len(rest) != 2 or rest[0] != "<|constrain|>" or rest[1][:1].isspace() or len(rest[1].split()) != 1:
        raise CodecError("no constraint of the format")
    return rest[1].strip()


def _without_role(pieces: Sequence[str]) -> Sequence[str]:
    first = pieces[0].lstrip() if pieces and not isinstance(pieces[0], Mark) else ""
    role, rest = first[: len("assistant")], first[len("assistant") :]
    if role != "assistant" or (rest and not rest[0].isspace()):
        raise CodecError("a message that is not the model's")
    return [rest, *pieces[1:]] if rest else list(pieces[1:])
