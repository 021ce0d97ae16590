"""A body on its way to a provider: what is read of it, and the few places where it is changed.

The caller's bytes go on as they are, save the value of `model`, a limit that is lowered or added,
and the request for usage. They are spliced where they stand; nothing is encoded again.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from onward.core.failure import invalid
from onward.dialects.interpreter import read
from onward.dialects.schema import Surface
from onward.wire.passing.members import members, spliced, value_end, value_start
from onward.wire.passing.prompt_size import PromptSize, chat_size, completion_size

LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Names of the limit on output. Where a request has both, a provider may go by either."""
_COUNTED: Final = frozenset(
    {
        "model",
        "prompt",
        "messages",
        "tools",
        "functions",
        "response_format",
        "suffix",
        "system",
        "n",
        "best_of",
        *LIMITS,
        "stream",
        "stream_options",
    }
)
"""What the price depends on. A provider must find the same values in these as we do."""
_SPELLED: Final = {name: b'"%b"' % name.encode() for name in _COUNTED}
_MOST_FIELDS: Final = 10_000
"""Names of a body. Whoever sends more means us no good."""
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[4-7]")
_ASK: Final = b'"include_usage":true'
_NAMES: Final = msgspec.json.Encoder()
_LONGEST_KNOWN: Final = 128
"""Letters of a caller's name for a model that is kept in mind."""
_BACKSLASH: Final = 0x5C
"""As a number: to look for a byte takes a fraction of what it takes to look for bytes."""
_SPACE: Final = 0x20


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request that a provider will answer."""

    raw: bytes
    body: dict[str, Any]
    places: dict[str, int] | None
    """Where the names that the price depends on end; None: where each of them, within quotes, stands in the
    bytes, which it does once.
    """
    model: str
    stream: bool
    n: int
    best_of: int
    """1 where it is not sent."""
    limits: dict[str, int]
    """The limits on output that the caller set, each by its name."""
    max_tokens: int | None
    """The largest of them: the most that the caller lets each choice have; None: it set no limit."""
    choices: int
    """How many choices are generated, those that are not shown too (K-10)."""
    prompts: int
    size: PromptSize
    include_usage: bool
    """Whether the caller asked for usage in the stream."""
    continuous_usage: bool
    user: str | None
    model_max_tokens: bool = False
    """Whether the model's own default is the limit where the caller set none."""


def read_passed(surface: Surface, body: dict[str, Any], raw: bytes) -> Passed:
    """What a dialect reads of a body that it passes on: `surface` is one of `Dialect.passed`.

    Raises `Failure` with the field that is wrong, and where a name that the price depends on is in
    the body twice or in another case, as a provider might read another one than we do.
    """
    if len(body) > _MOST_FIELDS:
        raise invalid(None, f"The body has {len(body)} fields; at most {_MOST_FIELDS} are taken.")
    places = _places(body, raw)
    found = read(surface, body)
    get = found.get
    options: dict[str, bool] | None = get("stream_options")
    about: dict[str, str | None] | None = get("metadata")
    limits: dict[str, int] = {}
    most: int | None = None
    for name in LIMITS:
        limit = get(name)
        if limit is not None:
            limits[name] = limit
            if most is None or limit > most:
                most = limit
    n, best_of = get("n") or 1, get("best_of") or 1
    prompts, size = completion_size(body) if surface.name == "completions" else (1, chat_size(body))
    return Passed(
        raw=raw,
        body=body,
        places=places,
        model=found["model"],
        stream=found["stream"],
        n=n,
        best_of=best_of,
        limits=limits,
        max_tokens=most,
        choices=prompts if n == best_of == 1 else prompts * max(n, best_of, 1),
        prompts=prompts,
        size=size,
        include_usage=options is not None and options.get("include_usage", False),
        continuous_usage=options is not None and options.get("continuous_usage_stats", False),
        user=get("user") or (None if about is None else about.get("user_id")),
        model_max_tokens=get("model_max_tokens", False),
    )


def outgoing(
    passed: Passed,
    *,
    model: str,
    max_tokens: int | None = None,
    limit_field: str = "max_tokens",
    ask_usage: bool = False,
) -> bytes:
    """The bytes that a provider gets: the caller's own, with `model` by the provider's name.

    `max_tokens`: every higher limit of the caller is lowered to this; where it set none, one is added
    as `limit_field`. None: limits pass as they are. `ask_usage`: the stream is to report usage.
    """
    raw = passed.raw
    edits: list[tuple[int, int, bytes]] = []
    if model != passed.model:
        start, end, new = edit = _renamed(passed, model)
        if max_tokens is None and not ask_usage:
            return raw[:start] + new + raw[end:]
        edits.append(edit)
    added: list[bytes] = []
    if max_tokens is not None:
        limit = b"%d" % max_tokens
        edits += [
            _replaced(raw, _place(passed, name), limit)
            for name, given in passed.limits.items()
            if given > max_tokens
        ]
        if not passed.limits:
            if limit_field in passed.body:
                edits.append(_replaced(raw, _place(passed, limit_field), limit))
            else:
                added.append(b'"%b":%b' % (limit_field.encode(), limit))
    if ask_usage and not passed.include_usage:
        _ask_usage(passed, edits, added)
    if added:
        end = raw.rindex(b"}")
        edits.append((end, end, b"," + b",".join(added)))
    return spliced(raw, edits) if edits else raw


def _ask_usage(passed: Passed, edits: list[tuple[int, int, bytes]], added: list[bytes]) -> None:
    """What is no object in `stream_options` is for the provider to refuse."""
    raw, body = passed.raw, passed.body
    if "stream_options" not in body:
        added.append(b'"stream_options":{%b}' % _ASK)
        return
    options = body["stream_options"]
    place = _place(passed, "stream_options")
    if options is None:
        edits.append(_replaced(raw, place, b"{%b}" % _ASK))
    elif type(options) is dict:
        start = value_start(raw, place)
        asked = [member for member in members(raw, start) if member.name == "include_usage"]
        if asked:
            edits += [(member.value, member.end, b"true") for member in asked]
        else:
            edits.append((start + 1, start + 1, _ASK + (b"," if options else b"")))


@lru_cache(maxsize=1024)
def _named(model: str) -> bytes:
    """A name of a model, as JSON."""
    return _NAMES.encode(model)


def _renamed(passed: Passed, model: str) -> tuple[int, int, bytes]:
    """The edit that puts the name `model` in the place of the caller's."""
    raw, place = passed.raw, _place(passed, "model")
    if len(passed.model) <= _LONGEST_KNOWN:
        value = _named(passed.model)
        start = place + 2 if raw[place + 1] == _SPACE else place + 1  # behind a colon, and most often a space
        end = start + len(value)
        if raw[start:end] == value:
            return start, end, _named(model)
    return _replaced(raw, place, _named(model))


def _place(passed: Passed, name: str) -> int:
    """Where a counted name that the body has ends."""
    if passed.places is not None:
        return passed.places[name]
    spelled = _SPELLED[name]
    return passed.raw.find(spelled) + len(spelled)


def _replaced(raw: bytes, after_key: int, new: bytes) -> tuple[int, int, bytes]:
    start = value_start(raw, after_key)
    return start, value_end(raw, start), new


def _places(body: dict[str, Any], raw: bytes) -> dict[str, int] | None:
    """`Passed.places`, where each counted name is in the body once.

    Quotes inside of strings are escaped, so a name that stands in the bytes once, within quotes,
    stands where the body has it: unless its letters could be spelled by escapes.
    """
    if _BACKSLASH in raw and raw.find(b"\\u00") >= 0 and _ESCAPED_LETTER.search(raw):
        return _exact_places(raw)
    for name in body:
        if name not in _COUNTED:
            _check_case(name)
        elif raw.count(_SPELLED[name]) != 1:
            return _exact_places(raw)
    return None


def _exact_places(raw: bytes) -> dict[str, int]:
    places: dict[str, int] = {}
    for member in members(raw):
        if member.name not in _COUNTED:
            _check_case(member.name)
        elif member.name in places:
            raise invalid(member.name, f"'{member.name}' is in the body twice. Send it once.")
        else:
            places[member.name] = member.after_key
    return places


def _check_case(name: str) -> None:
    """Some providers read names in any case."""
    meant = name.casefold()
    if meant in _COUNTED:
        raise invalid(meant, f"'{meant}' is in the body in other letters. Write it in lower case.")
